/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks in host memory, in the order of the ranks, so that each transport gives the same
 * bits. */
#ifndef JM_COMM_SUM_RANKS_H
#define JM_COMM_SUM_RANKS_H

#include "comm.h"

/* 0 if host memory of this type can be added; the error names the transport. */
int jm__sum_check(const struct jm_transfer *t, const char *transport, struct jm_err *err);
/* to = from[0] + from[1] + ... from[world - 1], f32, f64 or bf16, so many bytes; `to` may be one of
 * them. */
void jm__sum_ranks(
	enum jm_comm_type type, char *to, const char *const *from, int world, size_t bytes);

#endif
