/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of serve: their prompts, and the tokens of their answers. */
#ifndef JM_SERVE_REQUESTS_H
#define JM_SERVE_REQUESTS_H

#include "serve_state.h"

/*
 * Adds the requests that have arrived. If none is under way, it waits for the next one, a fifth of
 * a second at most, so that the caller can look after its orders.
 */
int jm_serve_arrivals(struct serve *s, struct jm_err *err);
/* The tokens of the prompt of a request, with --text. */
const int32_t *jm_serve_prompt(const struct serve *s, const struct jm_answer *a, int *ret_n);
/* A token of a request by its position, which is known; those of prompts that are neither a
 * client's nor of --text are random numbers of the request. */
int32_t jm_serve_token(const struct serve *s, const struct jm_answer *a, int position);
/* How the tokens of its answer are chosen: as its client asks, or the run. */
struct jm_rule jm_serve_rule_of(const struct serve *s, int number);
/* Writes the rule and the draw of the token at that position into the step, for that slot. The draw
 * depends on the seed, the number of the request and the position alone. */
void jm_serve_rule(struct serve *s, int number, int position, int slot);
/* The latest token of a request of a client, which the listener sends after jm_desk_tell. With the
 * last one its tokens are freed, unless they are needed when the run has ended. */
void jm_serve_put_token(struct serve *s, int number, int32_t token);
/* Are all tokens of its answer known? */
bool jm_serve_is_done(const struct serve *s, int number);

#endif
