/* SPDX-License-Identifier: Apache-2.0 */
/* Sending marks: through a pipe that the receiver has taken, else through its socket. */
#ifndef JM_MARKER_H
#define JM_MARKER_H

#include "progress.h"

/* ---- the sending end: JM_ENOENT outside `measure` and `run` ---- */
int jm_progress_send(const char *name, double items, struct jm_err *err);

#endif
