/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --phase: steps that compute prompts alone, or tokens of answers alone, so that the energy of each
 * is measured and not estimated. prefill: each answer has the one token that its prompt makes.
 * decode: all prompts are computed before the first step that counts; a request whose answer is
 * complete is followed by one with the same prompt, whose keys and values are still in the cache.
 */
#ifndef JM_SERVE_PHASE_H
#define JM_SERVE_PHASE_H

#include "serve_state.h"

/* After the options are read; before the cache is planned. JM_EUSAGE: others do not go with the
 * phase. */
int jm_serve_phase_check(struct serve *s, struct jm_err *err);
/* decode: are there pages for all requests that run? JM_EUSAGE: no, so that prompts would have to
 * be computed again. */
int jm_serve_phase_fits(const struct serve *s, struct jm_err *err);
/* decode: are all prompts computed? */
bool jm_serve_phase_is_filled(const struct serve *s);
/* decode: the step makes the last token of the request; the next one with its prompt arrives. */
int jm_serve_phase_follow(struct serve *s, int number, int64_t now_ns, struct jm_err *err);

#endif
