/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the plans of convolutions, times them and keeps the results. */
#include "conv_plan.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "plan_cache.h"
#include "timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/math_library.h"
#include "backends/cuda/dnn/dnn_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE ((size_t)256 << 20)
/* Engines without tensor cores transpose images in it: twice the largest image of ResNet-50 at
 * batch 256. */
#define WORKSPACE_EXACT ((size_t)2 << 30)
#define ROUNDS		5 /* timed runs of a plan, of which the median is used */
#define TOO_SLOW	2 /* times the best so far: such a plan is timed once only */
/* A warm-up run may include the loading of code. From this factor on the engine itself is slow. */
#define SLOW_WARM_UP   10 /* times the best so far */
#define SLOW_WARM_UP_S 0.05
#define SOME_PLANS     3 /* where engines are compiled at run time */

/* ---- finding --------------------------------------------------------------------------------- */

/* In f32 the sums of this engine over 25,000 pixels, a filter's gradient, were 10 times as far from
 * those in f64 as other engines' (cuDNN 9.19). */
#define INEXACT 17

static struct dnn_want want_of(const struct cuda_dev *dev, const struct cuda_conv_key *key)
{
	return (struct dnn_want){.exact = key->exact,
		.refused = key->exact && key->pattern == DNN_PATTERN_WGRAD ? INEXACT : 0,
		.repeatable = !dev->fast,
		.all = key->exact,
		.workspace = key->exact ? WORKSPACE_EXACT : WORKSPACE};
}

static struct cuda_conv_plan *find(const struct cuda_dev *dev, const struct cuda_conv_key *key)
{
	for (struct cuda_conv_plan *p = dev->conv_plans; p; p = p->next)
		if (p->key.pattern == key->pattern && p->key.exact == key->exact &&
			dnn_conv_shape_equal(&p->key.shape, &key->shape))
			return p;
	return NULL;
}

static void drop_one(struct cuda_dev *dev, struct cuda_conv_plan *p)
{
	for (int i = 0; i < p->n; i++)
		dnn_plan_drop(&dev->dnn, &p->plan[i]);
	free(p);
}

void cuda_conv_key_text(const struct cuda_dev *dev, const char *kind,
	const struct cuda_conv_key *key, char ret[CUDA_PLAN_KEY])
{
	const struct dnn_conv_shape *s = &key->shape;
	const int64_t value[] = {(int64_t)key->pattern, (int64_t)s->type, key->exact, s->x[0],
		s->x[1], s->x[2], s->x[3], s->w[0], s->w[1], s->w[2], s->w[3], s->window.stride[0],
		s->window.stride[1], s->window.pad[0], s->window.pad[1], s->window.dilation[0],
		s->window.dilation[1], s->add};
	int n = snprintf(ret, CUDA_PLAN_KEY, "%s/%zu", kind, dev->dnn.version);

	for (size_t i = 0; i < sizeof value / sizeof *value && n < CUDA_PLAN_KEY; i++)
		n += snprintf(ret + n, CUDA_PLAN_KEY - (size_t)n, ",%lld", (long long)value[i]);
	if ((s->window.more[0] || s->window.more[1]) && n < CUDA_PLAN_KEY)
		n += snprintf(ret + n, CUDA_PLAN_KEY - (size_t)n, ",more,%lld,%lld",
			(long long)s->window.more[0], (long long)s->window.more[1]);
	if (dev->fast && n < CUDA_PLAN_KEY)
		snprintf(ret + n, CUDA_PLAN_KEY - (size_t)n, ",fast");
}

void cuda_conv_way_text(const struct cuda_dev *dev, const struct jm_node *n,
	const struct cuda_conv_key *key, char ret[CUDA_PLAN_KEY])
{
	const bool bias = n->op == JM_OP_CONV_WGRAD ? n->out[1] : n->in[2];

	cuda_conv_key_text(dev, bias ? "way-bias" : "way", key, ret);
}

/* Finds the plan that was fastest before; 0 = none is known, or cuDNN no longer offers it. */
static int find_chosen(struct cuda_dev *dev, struct cuda_conv_plan *p, struct dnn_graph *g)
{
	struct dnn_want want = want_of(dev, &p->key);
	struct jm_err none = JM_ERR_INIT;
	char key[CUDA_PLAN_KEY];

	cuda_conv_key_text(dev, "conv", &p->key, key);
	want.name = cuda_plan_find(dev, key);
	return want.name ? dnn_plans(g, &want, p->plan, 1, &none) : 0;
}

/* Prefers engines that are compiled already: to compile one at run time takes half a second. Where
 * cuDNN prefers none of these, a few that it compiles are timed beside a fallback, which may be
 * very slow. */
static int look(struct cuda_dev *dev, struct cuda_conv_plan *p, struct jm_err *err)
{
	struct dnn_want want = want_of(dev, &p->key);
	struct jm_err none = JM_ERR_INIT;
	struct dnn_graph *g = dnn_conv_graph(&dev->dnn, p->key.pattern, &p->key.shape, &p->ids);

	if (!g)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	want.ready = true;
	want.preferred = !want.all;
	p->n = find_chosen(dev, p, g);
	if (!p->n)
		p->n = dnn_plans(g, &want, p->plan, CUDA_CONV_PLANS, &none);
	want.ready = want.preferred = false;
	want.all = true;
	if (!p->n)
		p->n = dnn_plans(g, &want, p->plan, SOME_PLANS, err);
	dnn_graph_free(g);
	for (int i = 0; i < p->n; i++)
		if (p->plan[i].workspace > p->workspace)
			p->workspace = p->plan[i].workspace;
	return p->n ? 0 : err->code;
}

struct cuda_conv_plan *cuda_conv_plan(
	struct cuda_dev *dev, const struct cuda_conv_key *key, struct jm_err *err)
{
	struct cuda_conv_plan *p = find(dev, key);

	if (p || cuda_dnn_open(dev, err))
		return p;
	p = calloc(1, sizeof *p);
	if (!p) {
		jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
		return NULL;
	}
	p->key = *key;
	p->best = -1;
	p->seconds = NAN;
	if (look(dev, p, err)) {
		drop_one(dev, p);
		return NULL;
	}
	p->next = dev->conv_plans;
	dev->conv_plans = p;
	return p;
}

int cuda_conv_ids(const struct cuda_conv_plan *plan, int64_t ret[CUDA_CONV_OPERANDS])
{
	const struct dnn_conv_ids *of = &plan->ids;
	const int64_t ids[] = {of->x, of->w, of->y, of->bias ? of->bias : of->sum,
		of->squares ? of->squares : of->image};
	int n = 0;

	while (n < CUDA_CONV_OPERANDS && ids[n]) {
		ret[n] = ids[n];
		n++;
	}
	return n;
}

void cuda_conv_drop(struct cuda_dev *dev)
{
	while (dev->conv_plans) {
		struct cuda_conv_plan *next = dev->conv_plans->next;

		drop_one(dev, dev->conv_plans);
		dev->conv_plans = next;
	}
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* Memory of one plan: the three operands, the bias or the two sums of a channel, the image that is
 * added, and the workspace. */
struct bench {
	void *data[CUDA_CONV_OPERANDS], *workspace;
	struct cuda_stopwatch watch;
};

static size_t bytes_of(const int64_t dim[4], cudnnDataType_t type)
{
	return (size_t)(dim[0] * dim[1] * dim[2] * dim[3]) * (type == CUDNN_DATA_FLOAT ? 4 : 2);
}

static enum cuda_type vec_type(cudnnDataType_t type)
{
	return type == CUDNN_DATA_BFLOAT16 ? CUDA_BF16
	       : type == CUDNN_DATA_HALF   ? CUDA_F16
					   : CUDA_F32;
}

static void close_bench(struct bench *b)
{
	for (int i = 0; i < CUDA_CONV_OPERANDS; i++)
		cudaFree(b->data[i]);
	cudaFree(b->workspace);
	cuda_stopwatch_close(&b->watch);
	cudaGetLastError(); /* clears the error, so that the next check does not report it */
}

/* The images and filters are random normal numbers: values change the power, and so the clock and
 * the time. */
static bool open_bench(struct cuda_dev *dev, const struct cuda_conv_plan *p, struct bench *b)
{
	const struct dnn_conv_shape *s = &p->key.shape;
	const int64_t *const dim[CUDA_CONV_OPERANDS] = {
		s->x, s->w, s->y, NULL, p->key.pattern == DNN_PATTERN_CONV_ADD ? s->y : NULL};
	bool fine;

	*b = (struct bench){0};
	fine = cuda_stopwatch_open(&b->watch);
	for (int i = 0; i < CUDA_CONV_OPERANDS && fine; i++) {
		size_t bytes = dim[i] ? bytes_of(dim[i], s->type) : (size_t)s->y[1] * sizeof(float);

		fine = !cudaMalloc(&b->data[i], bytes);
		if (fine && dim[i])
			cuda_random((struct cuda_vec){b->data[i], vec_type(s->type)},
				(int64_t)(bytes / (s->type == CUDNN_DATA_FLOAT ? 4 : 2)), 17 + i,
				dev->stream);
		else if (fine)
			fine = !cudaMemsetAsync(b->data[i], 0, bytes, dev->stream);
	}
	fine = fine && (!p->workspace || !cudaMalloc(&b->workspace, p->workspace));
	if (!fine)
		close_bench(b);
	return fine;
}

/* Seconds of one run; NAN = the run failed. */
static double run_once(struct cuda_dev *dev, const struct dnn_run *run, const struct bench *b)
{
	struct jm_err err = JM_ERR_INIT;

	cuda_stopwatch_start(&b->watch, dev->stream);
	if (dnn_run(&dev->dnn, run, &err))
		return NAN;
	return cuda_stopwatch_stop(&b->watch, dev->stream);
}

/* The median of the rounds; for a plan that is much slower than the best one, the time of the first
 * round or of the warm-up. */
static double time_rounds(
	struct cuda_dev *dev, const struct dnn_run *run, const struct bench *b, double best)
{
	double seconds[ROUNDS], warm = run_once(dev, run, b);
	int n = 0;

	if (isnan(warm) || (warm > SLOW_WARM_UP_S && warm > SLOW_WARM_UP * best))
		return warm;
	while (n < ROUNDS && !(n == 1 && seconds[0] > TOO_SLOW * best)) {
		seconds[n] = run_once(dev, run, b);
		if (isnan(seconds[n++]))
			return NAN;
	}
	return cuda_median(seconds, n);
}

/* Seconds of one run; NAN = the run failed. */
static double time_plan(
	struct cuda_dev *dev, const struct cuda_conv_plan *p, int i, const struct bench *b)
{
	struct jm_err err = JM_ERR_INIT;
	struct dnn_run run;
	double seconds;
	int64_t id[CUDA_CONV_OPERANDS];

	if (dnn_bind(&dev->dnn, &p->plan[i], cuda_conv_ids(p, id), id, b->data, b->workspace, &run,
		    &err))
		return NAN;
	seconds = time_rounds(dev, &run, b, p->seconds);
	dnn_unbind(&dev->dnn, &run);
	return seconds;
}

int cuda_conv_tune(struct cuda_dev *dev, struct cuda_conv_plan *p, struct jm_err *err)
{
	char key[CUDA_PLAN_KEY];
	struct bench b;

	if (p->best >= 0)
		return 0;
	p->best = 0;
	if (p->n == 1 || !open_bench(dev, p, &b))
		return 0;
	cuda_conv_key_text(dev, "conv", &p->key, key);
	for (int i = 0; i < p->n; i++) {
		double seconds = time_plan(dev, p, i, &b);

		cuda_timed(dev, "a convolution", p->plan[i].name, key);
		if (seconds > 0 && !(seconds >= p->seconds)) {
			p->seconds = seconds;
			p->best = i;
		}
	}
	close_bench(&b);
	if (cuda_lost(dev, err))
		return dev->lost.code;
	if (isnan(p->seconds))
		return jm_err_set(err, JM_EIO,
			"None of cuDNN's %d plans for a convolution runs on cuda:%d.", p->n,
			dev->index);
	cuda_plan_keep(dev, key, p->plan[p->best].name);
	return 0;
}

/* Seconds of one run of the plan that is chosen; NAN = it cannot be timed. */
static double seconds_of(struct cuda_dev *dev, struct cuda_conv_plan *p)
{
	struct jm_err none = JM_ERR_INIT;
	struct bench b;

	if (cuda_conv_tune(dev, p, &none))
		return NAN;
	if (isnan(p->seconds) && open_bench(dev, p, &b)) {
		p->seconds = time_plan(dev, p, p->best, &b);
		close_bench(&b);
	}
	return p->seconds;
}

/* The value in the plan cache: 1 where the first is faster, else 0, then the seconds of both. */
bool cuda_conv_is_faster(struct cuda_dev *dev, const char *kind, const struct cuda_conv_key *key,
	const struct cuda_conv_key *other, double more)
{
	struct jm_err none = JM_ERR_INIT;
	struct cuda_conv_plan *own, *plain;
	char name[CUDA_PLAN_KEY], value[CUDA_PLAN_VALUE];
	const char *known;
	double seconds[2];

	cuda_conv_key_text(dev, kind, key, name);
	known = cuda_plan_find(dev, name);
	if (known)
		return *known == '1';
	if (dev->rough)
		return true;
	own = cuda_conv_plan(dev, key, &none);
	plain = cuda_conv_plan(dev, other, &none);
	seconds[0] = own ? seconds_of(dev, own) : NAN;
	seconds[1] = plain ? seconds_of(dev, plain) + more : NAN;
	if (isnan(seconds[0]) || isnan(seconds[1]))
		return true;
	snprintf(value, sizeof value, "%d,%.4g,%.4g", seconds[0] < seconds[1], seconds[0],
		seconds[1]);
	cuda_plan_keep(dev, name, value);
	return seconds[0] < seconds[1];
}
