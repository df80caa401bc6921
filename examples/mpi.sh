#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpi.sh [JOULEMARK]: mpirun starts the ranks of a training, which exchange what they compute by MPI (docs/hosts.md). Without
# the plug-in of transport mpi they do so by TCP, and without mpirun examples/hosts.sh takes its place.
# prints: "world": 2
# prints: "transport": "(mpi|net)"
# prints: "status": "ok"
set -eu
jm=${1:-joulemark}
command -v mpirun >/dev/null || exec "$(dirname "$0")/hosts.sh" "$jm"
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-mpi.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

transport=net
"$jm" doctor 2>/dev/null | grep -q 'yes mpi:' && transport=mpi

# where the ranks agree; on several hosts an address of the first one, and -x NAME for each variable
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((26000 + $$ % 3000))
JM_GANG_SECRET=$(od -An -N16 -tx8 /dev/urandom | tr -d ' \n')
export JM_GANG_SECRET
# containers have root alone, and fewer processors than ranks
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe -np 2 "$jm" run gpt --layers 2 --hidden 64 --heads 4 --seq 64 --vocab 256 --device cpu --batch 2 \
	--warmup 1 --steps 5 --source estimate --ranks 2 --launcher started --transport "$transport" --json "$work/record.json"
grep -E '^ *"(status|world|transport)":' "$work/record.json"
