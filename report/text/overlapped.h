/* SPDX-License-Identifier: Apache-2.0 */
/* What products and transfers cost each other: of runs of the workload overlap. */
#ifndef JM_OVERLAPPED_H
#define JM_OVERLAPPED_H

#include "run_table.h"

/* Products, transfers and both of each run: ms of a pair alone and beside the other, slow-down,
 * watts, joules; and what running both at once adds and saves. */
extern const struct jm_run_tables jm_overlapped;

#endif
