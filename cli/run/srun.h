/* SPDX-License-Identifier: Apache-2.0 */
/* `run --launcher srun`: Slurm's srun starts this call once for each task of its step, with a
 * secret that they share. */
#ifndef JM_CLI_SRUN_H
#define JM_CLI_SRUN_H

#include "joulemark.h"

/* 0 = this is a task that srun has started; else it does not return, but after an error. */
int jm_run_by_srun(struct jm_err *err);

#endif
