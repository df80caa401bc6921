/* SPDX-License-Identifier: Apache-2.0 */
/* An outside command in a worker. */
#ifndef JM_WORKER_COMMAND_H
#define JM_WORKER_COMMAND_H

#include "worker_state.h"

int jm__worker_command(struct jm__worker *w, struct jm_err *err);

#endif
