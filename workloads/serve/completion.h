/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/completions of a server that speaks OpenAI's interface: what is asked, and the events of a
 * streamed answer. */
#ifndef JM_COMPLETION_H
#define JM_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one event says; NAN = nothing. */
struct jm_completion {
	bool is_done; /* "[DONE]": no more events come */
	/* the server reports an error, the event is no JSON object, or its usage no counts */
	bool is_error;
	bool has_choice;      /* a piece of the answer */
	bool is_empty;	      /* its text is "" */
	bool is_last;	      /* it has a reason why the answer ended */
	double input, output; /* tokens, of "usage" */
};

struct jm_completion jm_completion_parse(const char *text, size_t n);

/* What is asked. */
struct jm_question {
	const char *model;
	const char *text;     /* the prompt; NULL: */
	const int32_t *token; /* [n] it is these tokens */
	int n;
	int output; /* tokens of the answer, exactly if the server can */
};

/* The body of the request, streamed, greedy, with usage; of malloc, NULL when out of memory. */
char *jm_completion_body(const struct jm_question *q);

#endif
