/* SPDX-License-Identifier: Apache-2.0 */
/* Times the ways to run a group on a copy of it with its own memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/kernels/image_kernels.h"
#include "plan_cache.h"
#include "timed_choice.h"
#include "backends/cuda/device/gpu.h"

#define ROUNDS	7 /* timed runs of each way, of which the median is used */
#define FLUSH	((size_t)128 << 20)
#define TENSORS (CUDA_NODES * (JM_NODE_IN + JM_NODE_OUT))

struct trial {
	struct cuda_exec exec;
	struct jm_tensor tensor[TENSORS];
	const struct jm_tensor *of[TENSORS]; /* the group's own tensors */
	int n;
	void *flush; /* memory that is written before each run, so that caches hold no operands */
};

/* ---- memory ---------------------------------------------------------------------------------- */

static bool is_float(enum jm_dtype type)
{
	return type == JM_F32 || type == JM_BF16 || type == JM_F16;
}

/* Memory with random numbers that are approximately normal. */
static bool fill(struct cuda_dev *dev, struct jm_tensor *t, int seed)
{
	size_t bytes = jm_layout_bytes(t, &t->layout);

	t->data = NULL;
	if (t->is_virtual)
		return true;
	if (!is_float(t->type) || cudaMalloc(&t->data, bytes))
		return false;
	cuda_random(cuda_vec(t), (int64_t)(bytes / jm_dtype_bytes(t->type)), (uint64_t)seed,
		dev->stream);
	return true;
}

/* Replaces the operand by its copy, which is made when the operand is seen first. */
static bool replace(struct cuda_dev *dev, struct trial *trial, struct jm_tensor **operand)
{
	int i = 0;

	if (!*operand)
		return true;
	while (i < trial->n && trial->of[i] != *operand)
		i++;
	if (i == trial->n) {
		trial->of[i] = *operand;
		trial->tensor[i] = **operand;
		trial->n++;
		if (!fill(dev, &trial->tensor[i], i + 1))
			return false;
	}
	*operand = &trial->tensor[i];
	return true;
}

static bool replace_all(struct cuda_dev *dev, struct trial *trial)
{
	for (int i = 0; i < trial->exec.n_nodes; i++) {
		struct jm_node *n = &trial->exec.node[i];

		for (int k = 0; k < JM_NODE_IN; k++)
			if (!replace(dev, trial, &n->in[k]))
				return false;
		for (int k = 0; k < JM_NODE_OUT; k++)
			if (!replace(dev, trial, &n->out[k]))
				return false;
	}
	return true;
}

static void close_trial(struct trial *trial)
{
	for (int i = 0; i < trial->n; i++)
		cudaFree(trial->tensor[i].data);
	cudaFree(trial->flush);
	cudaFree(trial->exec.scratch);
	cudaGetLastError(); /* clears the error, so that the next check does not report it */
}

static bool open_trial(struct cuda_dev *dev, const struct cuda_exec *exec, struct trial *ret)
{
	bool fine;

	*ret = (struct trial){.exec = *exec};
	ret->exec.own = ret->exec.scratch = NULL;
	fine = replace_all(dev, ret) && !cudaMalloc(&ret->flush, FLUSH) &&
	       (!exec->scratch_bytes || !cudaMalloc(&ret->exec.scratch, exec->scratch_bytes));
	if (!fine)
		close_trial(ret);
	return fine;
}

/* ---- time ------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double cuda_median(double *seconds, int n)
{
	qsort(seconds, (size_t)n, sizeof *seconds, by_size);
	return seconds[n / 2];
}

/* While the device writes `flush`, the host queues the run, so its time has no latency of the
 * host. */
static double time_once(
	struct cuda_dev *dev, const struct trial *trial, const struct cuda_stopwatch *watch)
{
	struct jm_err err = JM_ERR_INIT;

	cudaMemsetAsync(trial->flush, 0, FLUSH, dev->stream);
	cuda_stopwatch_start(watch, dev->stream);
	if (trial->exec.op->run(dev, &trial->exec, &err) ||
		cuda_started(dev, trial->exec.node[0].op, &err))
		return NAN;
	return cuda_stopwatch_stop(watch, dev->stream);
}

/* A way that runs in the trial. */
struct candidate {
	void *own;		    /* of exec */
	double seconds[1 + ROUNDS]; /* the first one warms up */
	bool runs;
};

static void build_all(struct cuda_dev *dev, struct trial *trial, const struct cuda_way *way, int n,
	struct candidate *ret)
{
	for (int i = 0; i < n; i++) {
		struct jm_err none = JM_ERR_INIT;

		trial->exec.own = NULL;
		ret[i].runs = !way[i].build(dev, &trial->exec, &none);
		ret[i].own = trial->exec.own;
	}
}

static void drop_all(struct cuda_dev *dev, struct trial *trial, struct candidate *of, int n)
{
	for (int i = 0; i < n; i++) {
		trial->exec.own = of[i].own;
		trial->exec.op->drop(dev, &trial->exec);
	}
	trial->exec.own = NULL;
}

/* A run of each, in turns: under load a GPU lowers its clock after some milliseconds, which would
 * favour the way that is timed first. */
static void time_round(struct cuda_dev *dev, struct trial *trial, const struct cuda_way *way, int n,
	const struct cuda_stopwatch *watch, const char *key, int round, struct candidate *of)
{
	for (int i = 0; i < n; i++) {
		if (!of[i].runs)
			continue;
		trial->exec.own = of[i].own;
		cudaGetLastError(); /* clears errors of ways before, which are not this one's */
		of[i].seconds[round] = time_once(dev, trial, watch);
		cuda_timed(dev, jm_op_name(trial->exec.node[0].op), way[i].name, key);
		of[i].runs = !isnan(of[i].seconds[round]);
	}
}

/* The median of each way's runs; NAN = it cannot be built or fails. */
static void time_ways(struct cuda_dev *dev, struct trial *trial, const struct cuda_way *way, int n,
	const char *key, double *ret_seconds)
{
	struct candidate of[CUDA_WAYS] = {{0}};
	struct cuda_stopwatch watch;
	bool timed = cuda_stopwatch_open(&watch);

	build_all(dev, trial, way, n, of);
	for (int round = 0; timed && !dev->lost.code && round <= ROUNDS; round++)
		time_round(dev, trial, way, n, &watch, key, round, of);
	if (timed)
		cuda_stopwatch_close(&watch);
	drop_all(dev, trial, of, n);
	for (int i = 0; i < n; i++)
		ret_seconds[i] = timed && of[i].runs ? cuda_median(of[i].seconds + 1, ROUNDS) : NAN;
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* The value in the plan cache: the name of the chosen way, then the seconds of each. */
static void keep(
	struct cuda_dev *dev, const char *key, const char *name, const double *seconds, int n)
{
	char value[CUDA_PLAN_VALUE];
	int at = snprintf(value, sizeof value, "%s", name);

	for (int i = 0; i < n && at < CUDA_PLAN_VALUE; i++)
		at += snprintf(value + at, sizeof value - (size_t)at, ",%.4g", seconds[i]);
	cuda_plan_keep(dev, key, value);
}

/* True if the value has the seconds of n ways. */
static bool has_times(const char *value, int n)
{
	int times = 0;

	for (; *value; value++)
		times += *value == ',';
	return times == n;
}

int cuda_way_known(struct cuda_dev *dev, const char *key, const struct cuda_way *way, int n)
{
	const char *value = cuda_plan_find(dev, key);
	size_t length = value ? strcspn(value, ",") : 0;

	if (!value || !has_times(value, n))
		return -1;
	for (int i = 0; i < n; i++)
		if (strlen(way[i].name) == length && !strncmp(way[i].name, value, length))
			return i;
	return -1;
}

int cuda_way_choose(struct cuda_dev *dev, const struct cuda_exec *exec, const char *key,
	const struct cuda_way *way, int n)
{
	int best = cuda_way_known(dev, key, way, n);
	double seconds[CUDA_WAYS];
	struct trial trial;

	if (best >= 0 || !open_trial(dev, exec, &trial))
		return best < 0 ? 0 : best;
	time_ways(dev, &trial, way, n, key, seconds);
	for (int i = 0; i < n; i++)
		if (!isnan(seconds[i]) && (best < 0 || seconds[i] < seconds[best]))
			best = i;
	close_trial(&trial);
	if (best < 0)
		return 0;
	if (dev->lost.code) /* the ways behind the one that failed were not timed */
		return best;
	keep(dev, key, way[best].name, seconds, n);
	return best;
}
