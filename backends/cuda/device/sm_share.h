/* SPDX-License-Identifier: Apache-2.0 */
/* Restricts work to a share of the multiprocessors; this needs no privileges. */
#ifndef JM_CUDA_SM_SHARE_H
#define JM_CUDA_SM_SHARE_H

#include "cuda.h"

/* As jm_backend.restrict_units. */
int cuda_restrict(void *arg, double share, int *ret_units, int *ret_of, struct jm_err *err);
void cuda_sm_share_drop(struct cuda_dev *dev);

#endif
