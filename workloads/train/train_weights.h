/* SPDX-License-Identifier: Apache-2.0 */
/* Weights files of a training: what it starts from, and what it saves. */
#ifndef JM_TRAIN_WEIGHTS_H
#define JM_TRAIN_WEIGHTS_H

#include "train_state.h"

/* The run does not start from random values. */
static inline bool jm_train_weights_given(const struct jm_train_weights *w)
{
	return w->from.path || w->go_on;
}

/* Opens --from and tries --save, before any device is. */
int jm_train_weights_open(struct train *s, struct jm_err *err);
/* Writes the start values of the built program: random ones, then those of --from and
 * --continue. */
int jm_train_weights_start(struct train *s, struct jm_err *err);
/* Is a checkpoint to be written after the step that was begun last? */
bool jm_train_weights_due(const struct train *s);
/* Writes one; no step is under way. */
int jm_train_weights_checkpoint(struct train *s, struct jm_err *err);
/* Writes the files of --save and --checkpoint behind the last step; does nothing without them. */
int jm_train_weights_finish(struct train *s, struct jm_err *err);
void jm_train_weights_close(struct jm_train_weights *w);

#endif
