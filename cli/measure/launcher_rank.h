/* SPDX-License-Identifier: Apache-2.0 */
/* Where a launcher (mpirun, srun) has placed this process, by its variables; -1 = unknown. */
#ifndef JM_LAUNCHER_RANK_H
#define JM_LAUNCHER_RANK_H

int jm_launcher_rank(void);
/* Rank among the processes of this node. */
int jm_launcher_local_rank(void);
/* How many processes it has started. */
int jm_launcher_world(void);

#endif
