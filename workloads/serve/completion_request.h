/* SPDX-License-Identifier: Apache-2.0 */
/* What a client of /v1/completions asks for, as this server reads it. */
#ifndef JM_COMPLETION_REQUEST_H
#define JM_COMPLETION_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "joulemark.h"

/* How the tokens of an answer are chosen: op sample (engine/graph/node.h). */
struct jm_rule {
	double temperature; /* 0 = the likeliest */
	double top_p;	    /* 1 = all */
	int top_k;	    /* 0 = all */
};

/* The model that answers. */
struct jm_answering {
	int64_t vocab;
	const char *name, *from; /* what requests may call it; from: NULL = only by its name */
};

/* Closed by jm_ask_close. */
struct jm_ask {
	int32_t *token; /* [n]: the prompt; NULL: */
	char *text;	/* it is this text */
	int n;
	int output;  /* tokens of the answer */
	bool stream; /* the answer comes in events */
	struct jm_rule rule;
	bool has_seed;
	uint64_t seed; /* of its draws */
	bool usage;    /* the last of them counts tokens */
};

/*
 * From the body of a request: a JSON object with `prompt`, a text or a list of tokens of the model,
 * `max_tokens` (16 if it is missing), `stream`, `stream_options.include_usage`, `temperature`,
 * `top_p`, `top_k` and `seed`; ret->rule holds what is not said. JM_EUSAGE: it is no such object,
 * or has a field that would change the answer and is not served here, such as `stop`; the sentence
 * names it. JM_ENOENT: `model` names another one. Other fields are ignored.
 */
int jm_ask_parse(const char *body, size_t n, const struct jm_answering *model, struct jm_ask *ret,
	struct jm_err *err);
void jm_ask_close(struct jm_ask *ask); /* takes a zeroed one */

#endif
