/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products without pause, each of which is checked. All sets of operands hold the same values, so
 * all products are to be the same to the last bit. What is compared of y[n,n] is y^T p with eight
 * random columns p, in f32: a changed element changes the sums it is part of. The first sums are
 * compared with f64. Ranks do the same on other devices; after each step they sum their products.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "workloads/parts/gang.h"
#include "workloads/parts/host_load.h"
#include "workloads/parts/kernel_run.h"
#include "workloads/parts/memory.h"

#define COLUMNS	     8	 /* of p */
#define MOST_SETS    512 /* of operands */
#define STEP_SECONDS 0.1 /* of products, so that reading their sums takes a negligible share */
#define LOOK_NS	     (10 * JM_MILLISECOND) /* between looks whether the memory is filled */

struct burn {
	struct jm_kernel kernel; /* first */
	struct jm_gang gang;
	int64_t side;
	double fill;	/* share of the free memory for operands */
	int processors; /* threads that multiply on the host, of all ranks */
	double host_gb; /* of memory that they walk through */
	int sets, products;
	struct jm_operand values[3]; /* of x, w, p */
	struct jm_tensor *x[MOST_SETS], *w[MOST_SETS], *p;
	struct jm_tensor **sums; /* of each product */
	float *first, *now;	 /* sums of the first product, and those that were read last */
	bool known;
	struct jm_host_load *host; /* NULL = none */
};

static const struct jm_option options[] = {
	{.name = "side",
		JM_BIND(JM_INT, struct burn, side),
		.min = 8,
		.max = 1e6,
		.fallback = "4096",
		.help = "rows and columns of the matrices"},
	{.name = "fill",
		JM_BIND(JM_REAL, struct burn, fill),
		.min = 0,
		.max = 0.95,
		.fallback = "0",
		.help = "the share of the device's free memory that operands take; ranks on one "
			"device share it"},
	{.name = "products",
		JM_BIND(JM_INT, struct burn, products),
		.min = 1,
		.max = 1e4,
		.help = "products per step; without it as many as the device should do in 100 "
			"ms"},
	{.name = "processors",
		JM_BIND(JM_INT, struct burn, processors),
		.min = 0,
		.max = 1e4,
		.fallback = "0",
		.help = "number of host threads that multiply small matrices while the device "
			"works, "
			"each product checked; leave one processor for the thread that drives the "
			"device"},
	{.name = "host-memory",
		JM_BIND(JM_REAL, struct burn, host_gb),
		.min = 0,
		.max = 1e5,
		.fallback = "0",
		.needs = "processors",
		.help = "GB of the host's memory that the threads of --processors read, check and "
			"write between their products"},
	{.name = "ranks",
		.type = JM_INT,
		.min = 2,
		.max = JM_RANKS_MOST,
		.help = "processes that burn at once, 2 or more; --device names one device for "
			"all, or one for each. They share --processors and --host-memory"},
	JM_KERNEL_THREADS(struct burn),
	{0},
};

/* ---- setup ----------------------------------------------------------------------------------- */

static double matrix_bytes(const struct burn *s)
{
	return (double)s->side * (double)s->side * (double)jm_dtype_bytes(s->kernel.graph->compute);
}

/* Ranks that take of the same memory, this one included. */
static int sharers(const struct burn *s)
{
	const struct jm_work *work = s->kernel.work;
	int n = 0;

	for (int r = 0; work->gang && r < work->world; r++)
		n += !strcmp(work->gang[r].host, work->own.host) &&
		     (s->kernel.device.props.host_memory ||
			     !strcmp(work->gang[r].uuid, work->own.uuid));
	return n ? n : 1;
}

static void choose(struct burn *s)
{
	double n = (double)s->side,
	       free = (double)jm_fit_memory(s->kernel.work->ctx, &s->kernel.device) / sharers(s);
	int repeat = jm_kernel_repeat(&s->kernel, 2 * n * n * n, 3 * matrix_bytes(s));

	s->sets = (int)fmin(MOST_SETS, s->fill * free / (2 * matrix_bytes(s)));
	if (s->sets < 1)
		s->sets = 1;
	if (!s->products)
		s->products = repeat > 1 ? (int)(repeat * STEP_SECONDS / JM_KERNEL_SECONDS) : 1;
	if (s->products < s->sets)
		s->products = s->sets;
	for (int i = 0; i < 3; i++)
		s->values[i] =
			(struct jm_operand){.seed = jm_rng(s->kernel.work->seed, (uint64_t)i)};
}

static struct jm_tensor *matrix(
	struct burn *s, enum jm_class class, enum jm_dtype type, int64_t columns, const char *name)
{
	return jm_graph_tensor(
		s->kernel.graph, class, type, 2, (const int64_t[]){s->side, columns}, name);
}

static int declare(struct burn *s, struct jm_err *err)
{
	struct jm_graph *g = s->kernel.graph;

	s->sums = calloc((size_t)s->products, sizeof(struct jm_tensor *));
	if (!s->sums)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the burn workload.");
	s->p = matrix(s, JM_CLASS_INPUT, g->compute, COLUMNS, "p");
	for (int i = 0; i < s->sets; i++) {
		s->x[i] = matrix(s, JM_CLASS_INPUT, g->compute, s->side, "x");
		s->w[i] = matrix(s, JM_CLASS_INPUT, g->compute, s->side, "w");
	}
	for (int i = 0; i < s->products; i++) {
		struct jm_tensor *y = matrix(s, JM_CLASS_ACT, g->compute, s->side, "y");

		s->sums[i] = matrix(s, JM_CLASS_SCALAR, g->vector, COLUMNS, "sums");
		jm_graph_node(g, JM_OP_LINEAR,
			(struct jm_tensor *[JM_NODE_IN]){s->x[i % s->sets], s->w[i % s->sets]}, &y);
		jm_graph_node(g, JM_OP_LINEAR_WGRAD, (struct jm_tensor *[JM_NODE_IN]){y, s->p},
			(struct jm_tensor *[JM_NODE_OUT]){s->sums[i]});
	}
	s->kernel.each.items = s->products;
	return 0;
}

static int copy_matrix(
	struct burn *s, struct jm_tensor *to, const struct jm_tensor *from, struct jm_err *err)
{
	return jm_device_copy(&s->kernel.device, JM_QUEUE_COMPUTE, to->data, from->data, to->bytes,
		JM_ON_DEVICE, err);
}

static int write_operands(struct burn *s, struct jm_err *err)
{
	int code = jm_operand_write(&s->kernel, &s->values[2], s->p, err);

	if (!code)
		code = jm_operand_write(&s->kernel, &s->values[0], s->x[0], err);
	if (!code)
		code = jm_operand_write(&s->kernel, &s->values[1], s->w[0], err);
	for (int i = 1; i < s->sets && !code; i++) {
		code = copy_matrix(s, s->x[i], s->x[0], err);
		if (!code)
			code = copy_matrix(s, s->w[i], s->w[0], err);
	}
	return code ? code : jm_device_sync(&s->kernel.device, err);
}

static void burn_teardown(void *state)
{
	struct burn *s = state;

	if (!s)
		return;
	jm_host_load_free(s->host);
	jm_gang_close(&s->gang);
	free(s->sums);
	free(s->first);
	free(s->now);
	jm_kernel_teardown(s);
}

/* A rank's part of --processors. */
static int threads_of(const struct burn *s, int rank)
{
	int world = jm_work_world(s->kernel.work);

	return s->processors * (rank + 1) / world - s->processors * rank / world;
}

/* Bytes of --host-memory that so many threads walk through. */
static double bytes_of(const struct burn *s, int threads)
{
	return 1e9 * s->host_gb * threads / fmax(1, s->processors);
}

/* What all ranks of this host take is compared with what is free. */
static int check_host_memory(const struct burn *s, struct jm_err *err)
{
	const struct jm_work *work = s->kernel.work;
	double free = (double)jm_memory_free(work->ctx), bytes;
	int threads = 0;

	for (int r = 0; r < jm_work_world(work); r++)
		if (!work->gang || !strcmp(work->gang[r].host, work->own.host))
			threads += threads_of(s, r);
	bytes = bytes_of(s, threads);
	if (!(free > 0) || bytes <= free)
		return 0;
	return jm_err_set(err, JM_ENOMEM,
		"--host-memory takes %g GB of this host, where %.4g GB are free; give less.",
		bytes / 1e9, free / 1e9);
}

/* Returns when all their memory is filled. */
static int start_threads(struct burn *s, int threads, struct jm_err *err)
{
	size_t bytes = (size_t)bytes_of(s, threads);
	struct jm_sleeper *sleeper = s->kernel.work->sleeper;
	int code = jm_host_load_new(threads, bytes, s->kernel.work->seed, &s->host, err);

	if (!code)
		code = jm_host_load_start(s->host, err);
	while (!code && !jm_host_load_is_filled(s->host)) {
		code = jm_work_interrupted(s->kernel.work, err);
		if (!code)
			jm_sleep_until(sleeper, jm_clock_now(sleeper->clock) + LOOK_NS);
	}
	return code;
}

/* This rank's part of the threads and of the memory. */
static int load_processors(struct burn *s, struct jm_err *err)
{
	int threads = threads_of(s, s->kernel.work->rank);
	int code = jm_gang_meet(&s->gang, &s->kernel.device, err); /* all have their operands */

	if (!code)
		code = check_host_memory(s, err);
	if (!code)
		code = jm_gang_meet(&s->gang, &s->kernel.device, err); /* all have looked */
	if (!code && threads)
		code = start_threads(s, threads, err);
	return code ? code : jm_gang_meet(&s->gang, &s->kernel.device, err); /* all have filled */
}

static void describe(const struct burn *s, struct jm_work *work)
{
	char host[160] = "", ranks[32] = "";

	if (s->processors)
		snprintf(host, sizeof host, "; %d thread%s of the host multiply%s beside it",
			s->processors, s->processors == 1 ? "" : "s",
			s->host_gb > 0 ? " and walk through its memory" : "");
	if (work->world > 1)
		snprintf(ranks, sizeof ranks, " on each of %d ranks", work->world);
	snprintf(work->detail, sizeof work->detail,
		"%lld x %lld x %lld, %d set%s of operands, %d products per step%s, each checked%s",
		(long long)s->side, (long long)s->side, (long long)s->side, s->sets,
		s->sets == 1 ? "" : "s", s->products, ranks, host);
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct burn *s = state;
	size_t bytes;
	int code = jm_kernel_open(&s->kernel, work, err);

	if (!code)
		code = jm_gang_open(&s->gang, work, &s->kernel.device, NULL, err);
	if (code)
		return code;
	choose(s);
	describe(s, work);
	code = jm_gang_meet(&s->gang, &s->kernel.device, err); /* all know what is free */
	if (!code)
		code = declare(s, err);
	if (!code)
		code = jm_kernel_ready(&s->kernel, err);
	if (code)
		return code;
	work->n_devices = jm_gang_devices(work);
	bytes = s->sums[0]->bytes;
	s->first = malloc(bytes);
	s->now = malloc(bytes);
	if (!s->first || !s->now)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the burn workload.");
	code = write_operands(s, err);
	return code ? code : load_processors(s, err);
}

static int burn_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(work, sizeof(struct burn), prepare, burn_teardown, ret_state, err);
}

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* ---- steps: all sums of a step are compared with the first product's ------------------------- */

static int compare_product(struct burn *s, int i, struct jm_err *err)
{
	int64_t n = jm_tensor_count(s->sums[i]), bad = 0;
	int code = jm_program_read(s->kernel.program, s->sums[i], s->now, err);

	if (code)
		return code;
	if (!s->known) {
		memcpy(s->first, s->now, s->sums[i]->bytes);
		s->known = true;
	}
	if (memcmp(s->now, s->first, s->sums[i]->bytes) == 0)
		return 0;
	for (int64_t k = 0; k < n; k++)
		bad += bits_of(s->now[k]) != bits_of(s->first[k]);
	return jm_err_set(err, JM_ERANGE,
		"Product %d of step %ld differs from the first one, in columns that %lld of %lld "
		"sums "
		"are made of, though its operands are the same: the device or its memory computes "
		"wrongly; do not trust its results.",
		i + 1, s->kernel.steps, (long long)bad, (long long)n);
}

/* A step is that of all ranks, which therefore do as many. */
static int add_ranks(struct burn *s, struct jm_step *ret, struct jm_err *err)
{
	double sum[] = {ret->items, ret->flops_model, ret->flops_executed, ret->bytes};
	int code = jm_comm_sum(&s->gang.control, sum, sizeof sum / sizeof *sum, err);

	ret->items = sum[0];
	ret->flops_model = sum[1];
	ret->flops_executed = sum[2];
	ret->bytes = sum[3];
	return code;
}

static int burn_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct burn *s = state;
	int code = jm_kernel_step(&s->kernel, ret, err);

	if (code > 0) /* none may be under way when its sums are read */
		code = jm_kernel_finish(&s->kernel, ret, err);
	for (int i = 0; i < s->products && !code; i++)
		code = compare_product(s, i, err);
	if (!code)
		code = jm_host_load_check(s->host, err);
	return code ? code : add_ranks(s, ret, err);
}

static int burn_agree(void *state, void *value, size_t bytes, struct jm_err *err)
{
	struct burn *s = state;

	return jm_comm_from_first(&s->gang.control, value, bytes, err);
}

/* ---- verification of the first product by f64 ------------------------------------------------ */

/* ret[k,COLUMNS] = sum over m of a[m,k] b[m,.] */
static void project(const struct burn *s, const struct jm_operand *a, bool by_rows, const double *b,
	double *ret)
{
	enum jm_dtype type = s->kernel.graph->compute;

	for (int64_t m = 0; m < s->side; m++)
		for (int64_t k = 0; k < s->side; k++) {
			double v = jm_operand_value(a, type, m * s->side + k);
			double *to = ret + (by_rows ? m : k) * COLUMNS;
			const double *from = b + (by_rows ? k : m) * COLUMNS;

			for (int c = 0; c < COLUMNS; c++)
				to[c] += v * from[c];
		}
}

/* A sum's rounding by y's type, six deviations of it, and that of sums in f32. */
static double tolerance(const struct burn *s)
{
	enum jm_dtype type = s->kernel.graph->compute;
	double n = (double)s->side;

	return 6 * jm_product_tolerance(&s->kernel, n, 0) +
	       jm_product_tolerance(&s->kernel, 0, n * sqrt(n)) +
	       (type == JM_F64 ? 0 : 0x1p-18 * n * sqrt(n));
}

static int compare_first(const struct burn *s, const double *want, struct jm_err *err)
{
	const struct jm_tensor *t = s->sums[0];

	for (int64_t i = 0; i < jm_tensor_count(t); i++) {
		double got = jm_element_get(t->type, s->first, i);

		if (!(fabs(got - want[i]) <= tolerance(s)))
			return jm_err_set(err, JM_ERANGE,
				"The first product is wrong: a sum over its column %lld is %.9g, "
				"and by f64 it is %.9g; do not trust this device's results.",
				(long long)(i / COLUMNS), got, want[i]);
	}
	return 0;
}

static int burn_verify(void *state, struct jm_err *err)
{
	struct burn *s = state;
	size_t n = (size_t)s->side * COLUMNS;
	double *p = calloc(3 * n, sizeof *p);
	int code;

	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory to verify.");
	if (!s->known) {
		free(p);
		return jm_err_set(err, JM_EUSAGE, "No step was run.");
	}
	for (size_t i = 0; i < n; i++)
		p[i] = jm_operand_value(&s->values[2], s->kernel.graph->compute, (int64_t)i);
	project(s, &s->values[0], false, p, p + n);
	project(s, &s->values[1], true, p + n, p + 2 * n);
	code = compare_first(s, p + 2 * n, err);
	free(p);
	return code;
}

const struct jm_workload jm_workload_burn = {
	.name = "burn",
	.summary = "matrix products without pauses, each checked: heats a device and finds faults",
	.unit = "product",
	.options = options,
	.check = jm_kernel_check,
	.setup = burn_setup,
	.step = burn_step,
	.agree = burn_agree,
	.verify = burn_verify,
	.teardown = burn_teardown,
};
