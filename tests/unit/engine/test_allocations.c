/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step allocates no memory, because a program allocates everything when it is built. Calls of
 * malloc are counted. Only oneDNN may allocate during a call (a list of its arguments, and packed
 * operands of kernels that use gemm), and clang's OpenMP (a list of running loops).
 */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kit/engine_kit.h"
#include "kit/test.h"
#include "engine/device/backend_find.h"
#include "engine/run/start_values.h"

#define LIST	1024	      /* bytes */
#define PACKS	(1024 * 1024) /* bytes */
#define SETTLED 8	      /* steps */

#ifdef __clang__
#define LOOPS 1024 /* bytes */
#else
#define LOOPS 0
#endif

/* ---- malloc, counted ------------------------------------------------------------------------- */

static struct {
	atomic_bool on;
	atomic_int calls;
	atomic_size_t largest;
} counted;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void count(size_t n)
{
	if (!counted.on)
		return;
	counted.calls++;
	if (n > counted.largest)
		counted.largest = n;
}

/* The C library's own declarations name what is theirs alone. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
JM_API void *malloc(size_t n)
{
	count(n);
	return __libc_malloc(n);
}

JM_API void *calloc(size_t n, size_t size)
{
	count(n * size);
	return __libc_calloc(n, size);
}

JM_API void *realloc(void *p, size_t n)
{
	count(n);
	return __libc_realloc(p, n);
}

JM_API void *aligned_alloc(size_t align, size_t n)
{
	count(n);
	return __libc_memalign(align, n);
}

JM_API int posix_memalign(void **ret, size_t align, size_t n)
{
	void *p = aligned_alloc(align, n);

	if (p)
		*ret = p;
	return p ? 0 : ENOMEM;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

static void start_counting(void)
{
	counted.calls = 0;
	counted.largest = 0;
	counted.on = true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool may_be_of_onednn(enum jm_op op)
{
	switch (op) {
	case JM_OP_CONV:
	case JM_OP_CONV_DGRAD:
	case JM_OP_CONV_WGRAD:
	case JM_OP_LINEAR:
	case JM_OP_LINEAR_DGRAD:
	case JM_OP_LINEAR_WGRAD:
	case JM_OP_CAST: /* a reorder */
		return true;
	default:
		return false;
	}
}

/* With AVX-512 gradients of convolution weights alone are by gemm, on older processors much is. */
static size_t most_by_onednn(enum jm_op op)
{
	bool wide = false;

#ifdef __x86_64__
	wide = __builtin_cpu_supports("avx512bw") && !getenv("ONEDNN_MAX_CPU_ISA");
#endif
	return wide && op != JM_OP_CONV_WGRAD ? LIST : PACKS;
}

static void check_unit(struct jm_program *p, int i)
{
	const struct jm_device *d = p->device;
	enum jm_op op = p->unit[i]->group.node[0]->op;
	bool ref = !strcmp(d->backend->name, "ref");
	size_t most = ref ? 0 : may_be_of_onednn(op) ? most_by_onednn(op) : LOOPS;
	struct jm_err err = JM_ERR_INIT;
	int code;

	start_counting();
	code = d->backend->run(d->dev, p->unit[i]->exec, &err);
	counted.on = false;
	assert_ok(code, err);
	if (counted.largest > most || (!most && counted.calls))
		fail_msg("%s on %s takes memory in %d calls, %zu bytes at most", jm_op_name(op),
			d->backend->name, counted.calls, counted.largest);
}

static size_t in_use(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* What a thread gave back may wait in its cache and counts as in use: that settles within a few
 * steps. */
static bool keeps_memory(struct jm_program *p)
{
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < SETTLED; i++) {
		size_t before = in_use();

		assert_ok(jm_program_run(p, &err), err);
		if (in_use() <= before)
			return false;
	}
	return true;
}

/* All that surrounds the units takes nothing, and no unit keeps what it takes. */
static void check_step(struct jm_program *p)
{
	struct jm_err err = JM_ERR_INIT;
	int by_units = 0, code;

	for (int i = 0; i < p->n_units; i++) {
		check_unit(p, i);
		by_units += counted.calls;
	}
	start_counting();
	code = jm_program_run(p, &err);
	counted.on = false;
	assert_ok(code, err);
	if (!LOOPS) /* which of clang's threads runs how many is chance */
		assert_int_equal(counted.calls, by_units);
	assert_false(keeps_memory(p));
}

static void check_model(const char *const *model, const char *device, enum jm_dtype precision)
{
	struct jm_training t = {.batch = 2,
		.precision = precision,
		.micro_steps = 2,
		.adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}};
	struct jm_err err = JM_ERR_INIT;
	struct jm_device d;
	struct jm_program *p;

	assert_ok(jm_device_open(device, 2, &d, &err), err);
	p = kit_plan(model, &t, &d);
	assert_ok(jm_program_build(p, &err), err);
	assert_ok(jm_program_init(p, 1, &err), err);
	assert_ok(jm_program_run(p, &err), err); /* threads are started once */
	check_step(p);
	kit_plan_free(p);
	jm_device_close(&d);
}

static void steps_take_no_memory(void **unused)
{
	static const char *const gpt[] = {"gpt", "layers=2", "hidden=32", "heads=2", "ffn=64",
		"vocab=64", "context=8", "positions=learned", NULL};
	static const char *const llama[] = {"llama", "layers=2", "hidden=32", "heads=4",
		"kv-heads=2", "ffn=64", "vocab=64", "context=8", "theta=10000", NULL};
	static const char *const vit[] = {"vit", "layers=2", "hidden=32", "heads=2", "ffn=64",
		"image=16", "patch=8", "classes=10", NULL};
	static const char *const resnet[] = {
		"resnet18", "hidden=8", "image=32", "classes=10", NULL};
	static const char *const *const models[] = {gpt, llama, vit, resnet};

	(void)unused;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		for (enum jm_dtype precision = JM_F32; precision <= JM_BF16; precision++) {
			check_model(models[i], "ref", precision);
			if (!jm_backend_check("cpu", NULL))
				check_model(models[i], "cpu", precision);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(steps_take_no_memory)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
