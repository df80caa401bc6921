/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of serve. Answers have a length that is known before, so what the next step computes does
 * not depend on the tokens of this one; with --steps-ahead 1 it is launched before they are known,
 * and takes them on the device.
 */
#ifndef JM_SERVE_STEP_H
#define JM_SERVE_STEP_H

#include "serve_state.h"

int jm_serve_steps_open(struct serve *s, struct jm_err *err); /* JM_ENOMEM */
void jm_serve_steps_close(struct serve *s);		      /* also after an error of open */
/*
 * As step of a workload; state: struct serve. Adds requests that have arrived, launches the next
 * step if there are rows for it, and takes the tokens of one if more steps than --steps-ahead are
 * under way or none was launched.
 */
int jm_serve_step(void *state, struct jm_step *ret, struct jm_err *err);
/* Takes the tokens of all steps under way; *ret: as if they were one. */
int jm_serve_finish(struct serve *s, struct jm_step *ret, struct jm_err *err);
/* Waits for all steps under way, whose tokens nobody takes. */
int jm_serve_give_up(struct serve *s, struct jm_err *err);

#endif
