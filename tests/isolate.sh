#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test with its own state folder and temporary files, so that no test sees the journal or store of another
# test or of the user. Removes them afterwards.
set -u
dir=$(mktemp -d "${TMPDIR:-/tmp}/joulemark-test.XXXXXX") || exit 99
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
mkdir "$dir/state" "$dir/tmp" "$dir/home"
chmod 755 "$dir" "$dir/tmp" # a test may go on as another user
# neither sudo nor a batch job around us is the test's
unset JM_ROOT JM_NVML_LIB JM_FAKE_NVML JM_FAKE_NVML_STATE JM_DEBUG JM_PROGRESS XDG_STATE_HOME XDG_CONFIG_HOME \
	SUDO_UID SUDO_GID SUDO_USER SUDO_COMMAND CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES \
	SLURM_STEP_GPUS SLURM_JOB_GPUS
export PYTHONUTF8=1 JM_STATE="$dir/state" TMPDIR="$dir/tmp" HOME="$dir/home"
"$@"
