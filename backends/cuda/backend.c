/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend `cuda`: NVIDIA GPUs from compute capability 8.0 on. Products by cuBLASLt, convolutions
 * and attention by cuDNN, own kernels for the rest. All work of `run` is queued in order on one
 * stream. A second stream copies at the same time, and a third one carries the exchange between
 * ranks (queue.c).
 */
#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/choose/conv_plan.h"
#include "backends/cuda/device/sm_share.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/device/queue.h"
#include "backends/cuda/device/gpu_clock.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/ops/ops.h"
#include "backends/cuda/ops/attention_plans.h"
#include "backends/cuda/ops/ops_rope.h"
#include "backends/cuda/device/gpu_lanes.h"
#include "backends/cuda/device/math_library.h"
#include "engine/device/backend_events.h"

#define OLDEST_MAJOR 8

/* ---- the device ------------------------------------------------------------------------------ */

static void cuda_close(void *arg)
{
	struct cuda_dev *dev = arg;

	if (!dev)
		return;
	cudaSetDevice(dev->index);
	if (dev->stream)
		cudaStreamSynchronize(dev->stream);
	cuda_conv_drop(dev);
	cuda_attention_plans_free(dev);
	cuda_libraries_close(dev);
	cuda_angles_free(dev);
	cuda_plans_free(dev);
	while (dev->blocks) {
		struct cuda_block *next = dev->blocks->next;

		cudaFree(dev->blocks->data);
		free(dev->blocks);
		dev->blocks = next;
	}
	if (dev->stream)
		cudaStreamDestroy(dev->stream);
	cuda_sm_share_drop(dev);
	if (dev->copies)
		cudaStreamDestroy(dev->copies);
	if (dev->sums)
		cudaStreamDestroy(dev->sums);
	free(dev);
}

static int no_driver(cudaError_t rc, struct jm_err *err)
{
	int driver = 0, runtime = 0;

	if (rc == cudaErrorInsufficientDriver) {
		cudaDriverGetVersion(&driver);
		cudaRuntimeGetVersion(&runtime);
		if (!driver)
			return jm_err_set(err, JM_ENOENT,
				"There is no NVIDIA driver here (libcuda.so.1 cannot be loaded), "
				"so no GPU can compute; install the driver or use --device cpu.");
		return jm_err_set(err, JM_EVERSION,
			"The NVIDIA driver supports CUDA %d.%d, but this program was built with "
			"CUDA %d.%d; update the driver or use --device cpu.",
			driver / 1000, driver / 10 % 100, runtime / 1000, runtime / 10 % 100);
	}
	return jm_err_set(err, JM_ENOENT,
		"CUDA finds no GPU to compute on: %s (%s); see 'nvidia-smi' and "
		"CUDA_VISIBLE_DEVICES. A GPU in MIG mode needs an instance ('nvidia-smi mig "
		"-lgi'). Or use --device cpu.",
		cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static int check_index(int index, struct jm_err *err)
{
	int count = 0;
	cudaError_t rc = cudaGetDeviceCount(&count);

	if (rc)
		return no_driver(rc, err);
	if (index < count)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"Device cuda:%d does not exist: CUDA finds %d GPU%s here, cuda:0%s.", index, count,
		count == 1 ? "" : "s", count == 1 ? "" : " and so on");
}

static void write_uuid(struct cuda_dev *dev)
{
	const unsigned char *u = (const unsigned char *)dev->prop.uuid.bytes;
	int n = snprintf(dev->uuid, sizeof dev->uuid, "GPU-");

	for (int i = 0; i < 16; i++)
		n += snprintf(dev->uuid + n, sizeof dev->uuid - (size_t)n, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

static int start(struct cuda_dev *dev, struct jm_err *err)
{
	cudaError_t rc = cudaGetDeviceProperties(&dev->prop, dev->index);

	if (rc)
		return cuda_check(dev, rc, "Asking for its properties", err);
	if (dev->prop.major < OLDEST_MAJOR)
		return jm_err_set(err, JM_ENOSUP,
			"cuda:%d (%s) is of compute capability %d.%d; backend cuda needs 8.0 "
			"(Ampere) or newer.",
			dev->index, dev->prop.name, dev->prop.major, dev->prop.minor);
	write_uuid(dev);
	rc = cudaSetDevice(dev->index);
	if (!rc)
		rc = cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking);
	if (!rc)
		rc = cudaStreamCreateWithFlags(&dev->copies, cudaStreamNonBlocking);
	if (rc)
		return cuda_check(dev, rc, "Creating a context", err);
	return cuda_lt_open(dev, err); /* almost every program multiplies matrices */
}

/* The value of JM_CUDA_LOGITS in bytes; 0 = the variable is not set. */
static size_t most_logits(void)
{
	const char *given = secure_getenv("JM_CUDA_LOGITS");
	double bytes = given ? strtod(given, NULL) : 0;

	return bytes >= 1 ? (size_t)bytes : 0;
}

static int cuda_open(int index, int threads, void **ret_dev, struct jm_err *err)
{
	struct cuda_dev *dev;
	int code = check_index(index, err);

	(void)threads;
	if (code)
		return code;
	dev = calloc(1, sizeof *dev);
	if (!dev)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for device cuda:%d.", index);
	dev->index = index;
	dev->fast = secure_getenv("JM_CUDA_FAST") != NULL;
	code = start(dev, err);
	dev->logits_bytes = most_logits();
	if (code)
		cuda_close(dev);
	else
		*ret_dev = dev;
	return code;
}

/* ---- select and build ------------------------------------------------------------------------ */

static int cuda_select(
	void *arg, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	uint32_t row;
	const struct cuda_op *op;
	int n = 1;

	cudaSetDevice(dev->index); /* where libraries are opened and choices are timed */
	op = cuda_op_find(dev, group, &row, err);
	if (!op)
		return 0;
	choice[0].seconds = NAN;
	choice[0].flops_executed = NAN;
	if (op->choices)
		n = op->choices(dev, group, choice, err);
	else
		choice[0].scratch = op->scratch ? op->scratch(dev, group) : 0;
	for (int i = 0; i < n; i++)
		choice[i].tag = (uint64_t)row << 32 | (uint32_t)choice[i].tag;
	return n;
}

static void cuda_plan_roughly(void *arg, bool on)
{
	struct cuda_dev *dev = arg;

	dev->rough = on;
}

static void cuda_drop(void *arg_dev, void *arg)
{
	struct cuda_dev *dev = arg_dev;
	struct cuda_exec *exec = arg;

	if (!exec)
		return;
	cudaSetDevice(dev->index);
	if (exec->graph)
		cudaGraphExecDestroy(exec->graph);
	if (exec->op && exec->op->drop)
		exec->op->drop(dev, exec);
	free(exec);
}

static int cuda_build(void *arg, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	struct cuda_exec *exec = calloc(1, sizeof *exec);
	int code = 0;

	if (!exec)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a step of the program.");
	cudaSetDevice(dev->index);
	exec->op = cuda_op_row((uint32_t)(choice->tag >> 32));
	exec->tag = (uint32_t)choice->tag;
	exec->n_nodes = group->n_nodes;
	for (int i = 0; i < group->n_nodes; i++)
		exec->node[i] = *group->node[i];
	exec->scratch = group->scratch;
	exec->scratch_bytes = choice->scratch;
	exec->saved = group->saved;
	exec->fwd_saved = group->fwd ? group->fwd->saved : NULL;
	if (exec->op->build)
		code = exec->op->build(dev, exec, err);
	if (cuda_lost(dev, err))
		code = dev->lost.code;
	if (code)
		cuda_drop(dev, exec);
	else
		*ret_exec = exec;
	return code;
}

/* ---- run ------------------------------------------------------------------------------------- */

static int cuda_run(void *arg_dev, void *arg, struct jm_err *err)
{
	struct cuda_dev *dev = arg_dev;
	const struct cuda_exec *exec = arg;
	int code;

	cudaSetDevice(dev->index); /* the caller may be another thread than that of open */
	if (exec->graph) {
		code = cuda_check(
			dev, cudaGraphLaunch(exec->graph, dev->stream), "Starting the step", err);
		cuda_queued(dev, exec->n_nodes ? jm_op_name(exec->node[0].op) : "a step");
		return code;
	}
	code = exec->op->run(dev, exec, err);
	if (!code)
		code = cuda_started(dev, exec->node[0].op, err);
	cuda_queued(dev, jm_op_name(exec->node[0].op));
	return code;
}

/* Records the work of the units; a unit that cannot be recorded ends the capture with an error. */
static int record(
	struct cuda_dev *dev, void *const *units, int n, cudaGraph_t *ret_graph, struct jm_err *err)
{
	cudaError_t rc = cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal);
	int code = cuda_check(dev, rc, "Recording the step", err);
	long n_queued = dev->n_queued; /* what is recorded is not queued */

	if (code)
		return code;
	for (int i = 0; i < n && !code; i++)
		code = cuda_run(dev, units[i], err);
	rc = cudaStreamEndCapture(dev->stream, ret_graph);
	dev->n_queued = n_queued;
	return code ? code : cuda_check(dev, rc, "Recording the step", err);
}

static int cuda_capture(void *arg, void *const *units, int n, void **ret_exec, struct jm_err *err)
{
	struct cuda_dev *dev = arg;
	struct cuda_exec *exec = calloc(1, sizeof *exec);
	cudaGraph_t graph = NULL;
	int code;

	if (!exec)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a step of the program.");
	if (n == 1) { /* for messages */
		exec->node[0].op = ((const struct cuda_exec *)units[0])->node[0].op;
		exec->n_nodes = 1;
	}
	cudaSetDevice(dev->index);
	code = record(dev, units, n, &graph, err);
	if (!code)
		code = cuda_check(dev, cudaGraphInstantiate(&exec->graph, graph, 0),
			"Making a graph of the step", err);
	if (graph)
		cudaGraphDestroy(graph);
	if (code)
		cuda_drop(dev, exec);
	else
		*ret_exec = exec;
	return code;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *cuda_alloc(void *arg, size_t bytes)
{
	struct cuda_dev *dev = arg;
	void *memory = NULL;

	cudaSetDevice(dev->index);
	if (cudaMalloc(&memory, bytes) || cudaMemsetAsync(memory, 0, bytes, dev->stream) ||
		cudaStreamSynchronize(dev->stream)) { /* the copy queue may use the memory next */
		cudaGetLastError(); /* clears the error, because the caller sees NULL */
		cudaFree(memory);
		return NULL;
	}
	return memory;
}

static void cuda_release(void *arg, void *memory)
{
	struct cuda_dev *dev = arg;

	cudaSetDevice(dev->index);
	cudaFree(memory); /* waits for queued work that uses it */
}

static const struct jm_backend_events events = {
	.create = cuda_event_new,
	.record = cuda_event_record,
	.follow = cuda_event_follow,
	.wait = cuda_event_wait,
	.query = cuda_event_query,
	.seconds = cuda_event_seconds,
	.drop = cuda_event_drop,
};

static const struct jm_backend_clock clock = {.stamp = cuda_stamp, .read = cuda_clock};

static const struct jm_backend backend = {
	.abi = JM_BACKEND_ABI,
	.name = "cuda",
	.summary = "NVIDIA GPUs, by cuBLASLt, cuDNN and own kernels",
	.open = cuda_open,
	.props = cuda_props,
	.select = cuda_select,
	.build = cuda_build,
	.capture = cuda_capture,
	.run = cuda_run,
	.drop = cuda_drop,
	.alloc = cuda_alloc,
	.release = cuda_release,
	.copy = cuda_copy,
	.fill = cuda_fill,
	.sync = cuda_sync,
	.close = cuda_close,
	.pinned_alloc = cuda_pinned_alloc,
	.pinned_release = cuda_pinned_release,
	.memory_free = cuda_memory_free,
	.events = &events,
	.versions = cuda_versions,
	.restrict_units = cuda_restrict,
	.clock = &clock,
	.stream = cuda_stream,
	.peer = &cuda_peer,
	.plan_roughly = cuda_plan_roughly,
	.lanes = &cuda_lanes,
};

const struct jm_backend *jm_backend_entry(void)
{
	return &backend;
}
