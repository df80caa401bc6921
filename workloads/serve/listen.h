/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of serve come from clients over HTTP, and the answers go to them: --listen. */
#ifndef JM_LISTEN_H
#define JM_LISTEN_H

#include "serve_state.h"

/* Is the text of --listen an address and a port? JM_EUSAGE. */
int jm_listen_check(const char *text, struct jm_err *err);
/* Listens at --listen, "ADDRESS:PORT"; prints the address by the log. JM_EUSAGE, or as
 * jm_answer_server_start. */
int jm_listen_open(struct serve *s, struct jm_err *err);
/* Adds the requests that have come, as many as may hold up a step, and cancels those whose client
 * is gone. Waits for one while none is under way, a fifth of a second at most. */
int jm_listen_arrivals(struct serve *s, struct jm_err *err);
/* After the last step: long questions that are not read yet become requests that are not done. */
int jm_listen_finish(struct serve *s, struct jm_err *err);
/* What the client of a request asked for; its prompt is tokens. */
const struct jm_ask *jm_listen_ask(const struct serve *s, int number);
/* The latest token of the request was made: it goes to its client. */
void jm_listen_tell(struct serve *s, int number);
void jm_listen_close(struct serve *s); /* also without jm_listen_open */

#endif
