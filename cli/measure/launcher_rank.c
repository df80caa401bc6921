/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher_rank.h"
#include "base/text/number.h"

#include <limits.h>
#include <stdlib.h>

/* The first of these variables that is a whole number; -1 = none. */
static int first_of(const char *const *names)
{
	uint64_t number;

	for (; *names; names++) {
		const char *text = secure_getenv(*names);

		if (text && jm_number_whole(text, INT_MAX, &number))
			return (int)number;
	}
	return -1;
}

/* Each: Open MPI, PMIx, MPICH and Intel MPI, MVAPICH, Slurm. */
int jm_launcher_rank(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
		"MV2_COMM_WORLD_RANK", "SLURM_PROCID", NULL};

	return first_of(names);
}

int jm_launcher_local_rank(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
		"PMI_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID", "SLURM_LOCALID",
		NULL};

	return first_of(names);
}

/* SLURM_NTASKS is set in a batch script too, which is one process. */
int jm_launcher_world(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
		"MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", NULL};

	return first_of(names);
}
