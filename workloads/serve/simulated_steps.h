/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of serve on a simulated GPU (--device sim:h100x1): requests, scheduler, pages and times are
 * those of any run, but nothing is computed. A step takes the time of its bytes and FLOPs under the
 * caps and clocks of the moment, and the node is under that load meanwhile. docs/simulation.md
 * says what is assumed.
 */
#ifndef JM_SIMULATED_STEPS_H
#define JM_SIMULATED_STEPS_H

#include "serve_state.h"

/* Is the device a simulated one? */
bool jm_simulated_wanted(const struct serve *s);
/* Opens the node and, to plan for, the reference. JM_EUSAGE: an option needs tokens that are
 * computed, or the node has several GPUs. */
int jm_simulated_open(struct serve *s, struct jm_err *err);
/* Bytes of the GPU that a program may take. */
size_t jm_simulated_memory(const struct serve *s);
/* Takes the time of the first step under way. All its tokens are 0. JM_EINTR. */
int jm_simulated_await(struct serve *s, struct jm_err *err);
/* The GPU has nothing to do until the next step. Without a simulated one nothing happens. */
void jm_simulated_rest(struct serve *s);
void jm_simulated_close(struct serve *s);

#endif
