#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# submit.sh [JOULEMARK]: a plan as jobs of Slurm (docs/slurm.md). On a cluster the two stand-ins for Slurm's commands, which
# run each job at once, are omitted.
# prints: 4 cases x 3 repeats in 3 jobs: 3 wait
# prints: 4 cases x 3 repeats in 3 jobs: 3 done
# prints: over 3 runs
set -eu
jm=$(realpath "$(command -v "${1:-joulemark}")")
work=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-submit.XXXXXX")
trap 'rm -rf "$work"' EXIT
export JM_STATE="$work/state" # leaves nothing behind

mkdir "$work/bin"
cat >"$work/bin/sbatch" <<'EOF'
#!/bin/sh
for word; do
	case $word in
	--array=*) last=${word##*-} ;;
	--chdir=*) cd "${word#*=}" ;;
	--*) ;;
	*) break ;;
	esac
	shift
done
export SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID
for SLURM_ARRAY_TASK_ID in $(seq 0 "$last"); do
	sh "$@" >>log 2>&1
done
echo 1
EOF
printf '#!/bin/sh\n' >"$work/bin/squeue"
chmod +x "$work/bin/sbatch" "$work/bin/squeue"
PATH=$work/bin:$PATH

cd "$work"
cat >plan.yaml <<'EOF'
title: one network under three power caps
work: sim
device: sim:h100x4
set: {gpu.power: 300:500+100W}
seconds: 2
repeat: 3
EOF

"$jm" submit plan.yaml --store caps.db --sbatch=--gres=gpu:4 --sbatch=--exclusive --dry-run # what sbatch would get
"$jm" submit plan.yaml --store caps.db --sbatch=--gres=gpu:4 --sbatch=--exclusive
"$jm" submit plan.yaml --store caps.db --wait # what is missing, and the records of all
"$jm" report caps.db
