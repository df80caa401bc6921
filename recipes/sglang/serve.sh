#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# serve.sh MODEL GPUS nv|rocm: starts SGLang's server in the container, waits until it answers, warms it up, and sends it the
# requests. The marks make the phases load, warmup and serve.
set -eu

port=30000
prompts=ShareGPT_V3_unfiltered_cleaned_split.json
test -e $prompts || { echo "serve.sh: $prompts is missing; plan.yaml says where it is to be had." >&2; exit 1; }
gpu=$3
joulemark mark load
apptainer exec "--$gpu" "container-$gpu.sif" python3 -m sglang.launch_server --model-path "$1" --tp "$2" --port $port >&2 &
server=$!
trap 'kill $server; wait $server || :' EXIT
until curl --silent --fail --output /dev/null http://127.0.0.1:$port/health; do
	kill -0 $server
	sleep 1
done

# Prompts are tokens of this file, which would be downloaded in the middle of a phase if it were absent.
ask()
{
	apptainer exec "--$gpu" "container-$gpu.sif" python3 -m sglang.bench_serving --backend sglang --port $port \
		--dataset-name random --dataset-path $prompts "$@"
}

joulemark mark warmup
ask --num-prompts 100 --max-concurrency 256 >/dev/null
joulemark mark serve
ask --num-prompts 2048 --random-input-len 1024 --random-output-len 256 --seed 42
joulemark mark end
