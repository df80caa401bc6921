/* SPDX-License-Identifier: Apache-2.0 */
/* A question to an answer server (answer_server.h), and what clients may send. */
#ifndef JM_VENDOR_HTTP_QUESTION_H
#define JM_VENDOR_HTTP_QUESTION_H

#include <stddef.h>

#include "joulemark.h"

#define JM_ANSWER_BODY ((size_t)8 << 20) /* bytes of a question, at most */
/* bytes of questions and of what clients have not read yet, together */
#define JM_ANSWER_HELD ((size_t)128 << 20)
/* connections at once, at most, and at most half of the files that this process may open */
#define JM_ANSWER_CLIENTS 1024
#define JM_ANSWER_SECONDS                                                                          \
	60 /* for a whole question, and for the rest of an answer that is complete; a client that  \
	    * takes longer loses its connection */

/* A question that came whole: method, path, body (n bytes and a NUL), and when its last byte came,
 * by the real clock. */
struct jm_asked {
	const char *method, *path, *body;
	size_t n;
	int64_t t_ns;
};

#endif
