/* SPDX-License-Identifier: Apache-2.0 */
/* Options that are given and change nothing, as another one decides that they are not used. */
#ifndef JM_IDLE_OPTIONS_H
#define JM_IDLE_OPTIONS_H

#include "train_state.h"

/* Says so in the note of the run: in a sweep they may be for other cases. */
void jm_train_note_idle(struct train *s);

#endif
