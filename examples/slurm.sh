#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slurm.sh [JOULEMARK]: a user of Slurm measures a job of several ranks: 'srun joulemark measure --store job.db ./train'.
# Here a loop starts the ranks, and the node is simulated; each rank finds job and step in its environment, as under srun.
# prints: joulemark: This is rank 0 of 4
# prints: joulemark: 4 records are parts of 1 run of a job
# prints: \(4 parts of job 4711\)
# prints: energy: sum over 2 GPUs, each counted once, simulated
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-slurm.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 # leaves nothing behind

for rank in 0 1 2 3; do
	SLURM_PROCID=$rank "$jm" measure --source sim:h100x2 --store "$work/job.db" --items-regex '([0-9]+) images' -- \
		sh -c "sleep 1.$rank; echo 128 images" 2>&1 &
done
wait
# rank 0 has printed its summary: the whole node while it ran
"$jm" report "$work/job.db" 2>&1 # the job: items of all ranks, each GPU once
