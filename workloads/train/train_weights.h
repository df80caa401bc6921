/* SPDX-License-Identifier: Apache-2.0 */
/* Weights files of a training: what it starts from, and what it saves. */
#ifndef JM_TRAIN_WEIGHTS_H
#define JM_TRAIN_WEIGHTS_H

#include "workloads/parts/weights_load.h"

struct train;

struct jm_train_weights {
	struct jm_safetensors from; /* zeroed = it starts from random values */
	struct jm_weights_loaded found;
	const char *save; /* NULL = nothing is saved */
};

/* Opens --from and tries --save, before any device is. */
int jm_train_weights_open(struct train *s, struct jm_err *err);
/* Writes the start values of the built program: random ones, then those of --from. */
int jm_train_weights_start(struct train *s, struct jm_err *err);
/* Writes the file of --save behind the last step; does nothing without it. */
int jm_train_weights_finish(struct train *s, struct jm_err *err);
void jm_train_weights_close(struct jm_train_weights *w);

#endif
