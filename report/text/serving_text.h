/* SPDX-License-Identifier: Apache-2.0 */
/* How long requests waited, and what each cost: of runs that serve a language model. */
#ifndef JM_SERVING_TEXT_H
#define JM_SERVING_TEXT_H

#include "run_table.h"

/* TTFT, TPOT, time between tokens and of a whole answer, in ms: mean, p50, p99 of each run. And
 * requests, goodput and joules of each run; whether the 99th percentiles keep the bounds --ttft and
 * --tpot (p99_in_bounds). */
extern const struct jm_run_tables jm_served;
/* Joules of prompts and of answers where steps computed both: estimated (serving.split). */
extern const struct jm_run_tables jm_served_split;

#endif
