/* SPDX-License-Identifier: Apache-2.0 */
/* A few nodes, run again and again. */
#include "kernel_run.h"
#include "base/text/number.h"
#include "gang.h"
#include "memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/model.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "work_device.h"

#define MOST_REPEATS 256
#define SLOW_MEMORY  1e10     /* bytes/s, of a device that does not say how fast its memory is */
#define PERIOD	     16777259 /* the first prime above 2^24 */

const char *const jm_values_kinds[] = {"random", "zeros", "ones", "sparse", NULL};

/* ---- device, graph, program ------------------------------------------------------------------ */

int jm_kernel_check_products(const char *device, const char *precision, struct jm_err *err)
{
	struct jm_training t;
	int code = jm_precision_set(&t, precision, err);

	if (!code && t.pure)
		code = jm_err_set(err, JM_EUSAGE,
			"Precision %s defines how parameters are trained, and this workload has "
			"none; use bf16.",
			precision);
	return code ? code : jm_work_device_check(device, precision, err);
}

int jm_kernel_check(const char *device, const char *precision, struct jm_err *err)
{
	struct jm_training t;

	if (!jm_precision_set(&t, precision, NULL) && t.fp8)
		return jm_err_set(err, JM_EUSAGE,
			"Precision %s is a precision of matrix products, which this workload does "
			"not have; use bf16, or the workload gemm.",
			precision);
	return jm_kernel_check_products(device, precision, err);
}

int jm_kernel_setup(struct jm_work *work, size_t size,
	int (*prepare)(void *state, struct jm_work *work, struct jm_err *err),
	void (*teardown)(void *state), void **ret_state, struct jm_err *err)
{
	void *state = calloc(1, size);
	int code;

	if (!state)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a workload.");
	jm_values_fill(work->options, state, size);
	code = prepare(state, work, err);
	if (code)
		teardown(state);
	else
		*ret_state = state;
	return code;
}

int jm_kernel_open(struct jm_kernel *k, struct jm_work *work, struct jm_err *err)
{
	struct jm_training t;
	int code = jm_precision_set(&t, work->precision, err);

	k->work = work;
	if (!code)
		code = jm_work_device_open(
			work, jm_gang_threads(work, k->threads), &k->device, err);
	if (code)
		return code;
	k->graph = jm_graph_new(t.precision);
	if (!k->graph)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a graph.");
	k->graph->math = t.math;
	k->factor = t.fp8 ? JM_F8E4M3 : t.precision;
	return 0;
}

static int check_memory(const struct jm_kernel *k, struct jm_err *err)
{
	size_t has = jm_fit_memory(k->work->ctx, &k->device), needs = k->program->peak_bytes;

	if (!has || needs <= has)
		return 0;
	return jm_room_refuse(jm_device_room(&k->device), (double)needs, err,
		"Out of memory before the first step: %.*f GB are needed, and %.*f GB may be taken "
		"on %.70s; take smaller dimensions.",
		JM_GB(needs), JM_GB(has), k->device.props.name);
}

static void describe(struct jm_kernel *k)
{
	struct jm_work *work = k->work;
	size_t n = strlen(work->detail);

	work->n_devices = 1;
	snprintf(work->detail + n, sizeof work->detail - n, "; peak %.3g GB, on %.70s",
		(double)k->program->peak_bytes / 1e9, k->device.props.name);
	jm_work_device_note(work, &k->device, k->factor);
}

int jm_kernel_ready(struct jm_kernel *k, struct jm_err *err)
{
	int code = k->graph->err.code;

	if (code)
		return jm_err_set(err, code, "%s", k->graph->err.text);
	code = jm_work_device_planned(
		k->work, jm_program_plan(k->graph, &k->device, &k->program, err));
	if (!code)
		code = jm_work_device_planned(k->work, check_memory(k, err));
	if (!code)
		code = jm_work_device_test(k->work, &k->device, k->graph, err);
	if (!code)
		code = jm_work_device_planned(k->work, jm_program_build(k->program, err));
	for (int i = 0; i < JM_KERNEL_UNDER_WAY && !code; i++)
		code = jm_event_new(&k->device, &k->done[i], err);
	if (!code && jm_device_has_clock(&k->device))
		k->stamp =
			jm_device_pinned_alloc(&k->device, JM_KERNEL_UNDER_WAY * sizeof(*k->stamp));
	if (code)
		return code;
	k->each.flops_model = k->program->flops_model;
	k->each.flops_executed = k->program->flops_executed;
	k->each.bytes = k->program->bytes;
	k->each.loss = NAN;
	describe(k);
	return 0;
}

/* One that is zeroed, too. */
static void close_kernel(struct jm_kernel *k)
{
	if (k->program)
		jm_device_sync(&k->device, NULL); /* steps may be under way */
	for (int i = 0; i < JM_KERNEL_UNDER_WAY; i++)
		jm_event_drop(&k->done[i]);
	jm_device_pinned_release(&k->device, k->stamp);
	jm_program_free(k->program);
	jm_graph_free(k->graph);
	jm_device_close(&k->device);
}

void jm_kernel_teardown(void *state)
{
	if (state)
		close_kernel(state);
	free(state);
}

/* ---- steps ----------------------------------------------------------------------------------- */

int jm_kernel_finish(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct jm_kernel *k = state;
	int code;

	if (!k->under_way)
		return 1;
	code = jm_event_wait(&k->done[k->first], err);
	if (code)
		return code;
	*ret = k->each;
	ret->host_ns = jm_event_host_ns(&k->done[k->first]);
	ret->device_ns = k->stamp ? (int64_t)k->stamp[k->first] : 0;
	k->first = (k->first + 1) % JM_KERNEL_UNDER_WAY;
	k->under_way--;
	k->steps++;
	return 0;
}

int jm_kernel_queue(struct jm_kernel *k, struct jm_err *err)
{
	int code = jm_program_begin(k->program, err);

	if (!code)
		code = jm_program_micro(k->program, err);
	return code ? code : jm_program_update(k->program, err);
}

int jm_kernel_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct jm_kernel *k = state;
	int slot = (k->first + k->under_way) % JM_KERNEL_UNDER_WAY;
	int code = jm_kernel_queue(k, err);

	if (!code && k->stamp)
		code = jm_device_stamp(&k->device, &k->stamp[slot], err);
	if (!code)
		code = jm_event_record(&k->done[slot], JM_QUEUE_COMPUTE, err);
	if (code)
		return code;
	k->under_way++;
	return k->under_way == JM_KERNEL_UNDER_WAY ? jm_kernel_finish(k, ret, err) : 1;
}

static double peak_flops(const struct jm_kernel *k)
{
	const struct jm_device_props *p = &k->device.props;

	return k->graph->math == JM_MATH_TF32 ? p->peak_tf32 : p->peak_flops[k->factor];
}

int jm_kernel_repeat(const struct jm_kernel *k, double flops, double bytes)
{
	double rate = peak_flops(k), memory = k->device.props.peak_bytes;
	double seconds =
		fmax(rate > 0 ? flops / rate : 0, bytes / (memory > 0 ? memory : SLOW_MEMORY));

	if (!(seconds > 0) || seconds >= JM_KERNEL_SECONDS)
		return 1;
	return (int)fmin(MOST_REPEATS, ceil(JM_KERNEL_SECONDS / seconds));
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Four uniform values of 16 bits added up: normal enough, and cheap. */
static double random_value(uint64_t bits)
{
	double sum = -2;

	for (int j = 0; j < 4; j++, bits >>= 16)
		sum += ((double)(bits & 0xffff) + 0.5) * 0x1p-16;
	return sum * 1.7320508075688772;
}

static double raw_value(const struct jm_operand *o, int64_t i)
{
	uint64_t bits = jm_rng(o->seed, (uint64_t)(i % PERIOD));

	if (o->kind == JM_VALUES_ZEROS)
		return 0;
	if (o->kind == JM_VALUES_ONES)
		return 1;
	if (o->kind == JM_VALUES_SPARSE && (double)(jm_rng_mix(bits) >> 11) * 0x1p-53 < o->share)
		return 0;
	return random_value(bits);
}

double jm_operand_value(const struct jm_operand *o, enum jm_dtype type, int64_t i)
{
	uint64_t room = 0;

	jm_element_set(type, &room, 0, raw_value(o, i));
	return jm_element_get(type, &room, 0);
}

int jm_operand_write(
	struct jm_kernel *k, const struct jm_operand *o, struct jm_tensor *t, struct jm_err *err)
{
	int64_t n = jm_tensor_count(t), made = n < PERIOD ? n : PERIOD;
	size_t size = jm_dtype_bytes(t->type);
	char *data = malloc((size_t)n * size);
	int code;

	if (!data)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", t->name);
	for (int64_t i = 0; i < made; i++)
		jm_element_set(t->type, data, i, raw_value(o, i));
	for (int64_t i = made; i < n; i += made)
		memcpy(data + (size_t)i * size, data, (size_t)(n - i < made ? n - i : made) * size);
	code = jm_program_write(k->program, t, data, err);
	free(data);
	return code;
}

void *jm_kernel_read(struct jm_kernel *k, const struct jm_tensor *t, struct jm_err *err)
{
	void *data;

	if (!k->steps) {
		jm_err_set(err, JM_EUSAGE, "No step was run.");
		return NULL;
	}
	data = malloc(t->bytes);
	if (!data)
		jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", t->name);
	else if (!jm_program_read(k->program, t, data, err))
		return data;
	free(data);
	return NULL;
}

/* ---- verification ---------------------------------------------------------------------------- */

/* Half a unit in the last place of 1. */
static double rounding_of(enum jm_dtype type)
{
	return type == JM_BF16	? 0x1p-8
	       : type == JM_F16 ? 0x1p-11
	       : type == JM_F64 ? 0x1p-50
				: 0x1p-23;
}

double jm_product_tolerance(const struct jm_kernel *k, double value, double size)
{
	enum jm_dtype type = k->graph->compute;
	/* tensor cores add products of 8 bits with about 14 bits, a chunk of 32 at a time */
	double inside = k->factor == JM_F8E4M3		 ? 0x1p-10
			: type == JM_F64		 ? 0x1p-45
			: k->graph->math == JM_MATH_TF32 ? 0x1p-10
							 : 0x1p-18;

	return 2 * rounding_of(type) * fabs(value) + inside * size;
}
