#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hosts.sh [JOULEMARK]: one training on two hosts, without a launcher: the same call on each, and the number of its rank
# (docs/hosts.md). Here both run on this machine; on two, MASTER_ADDR is an address of the first one.
# prints: "world": 2
# prints: "transport": "net"
# prints: "status": "ok"
# prints: the agent ended with 0
set -eu
jm=${1:-joulemark}
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-hosts.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work" # leaves nothing behind

# the same on all hosts; the secret is drawn once, and copied
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 6000))
JM_GANG_SECRET=$(od -An -N16 -tx8 /dev/urandom | tr -d ' \n')
export JM_GANG_SECRET
train() {
	"$jm" run gpt --layers 2 --hidden 64 --heads 4 --seq 64 --vocab 256 --device cpu --batch 2 --warmup 1 --steps 5 \
		--source estimate --ranks 2 --launcher started "$@"
}

RANK=1 train & # on the second host
RANK=0 train --json "$work/record.json"
wait $! && echo "the agent ended with 0"
grep -E '^ *"(status|world|transport)":' "$work/record.json"
