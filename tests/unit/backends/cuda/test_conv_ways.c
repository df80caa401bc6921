/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of single pixels as products in backend cuda, and the faster of two ways to run a
 * group, without a GPU. The functions of CUDA and cuBLASLt that these parts call are below: memory
 * is that of the host, a product is three loops, and a way takes the time that the test gives.
 */
#include "backends/cuda/ops/conv/ops_conv_product.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/choose/timed_choice.h"
#include "kit/test.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/layouts.h"

/* ---- fakes ----------------------------------------------------------------------------------- */

static struct fake {
	int allocated, fails_at; /* fails_at: the number of the allocation that fails; 0 = none */
	double seconds;		 /* of what ran last */
	bool lost;		 /* what ran last did not start */
	const char *faults;	 /* the way that ends the context */
	char key[CUDA_PLAN_KEY], value[CUDA_PLAN_VALUE]; /* of the plan cache */
} fake;

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	if (++fake.allocated == fake.fails_at)
		return cudaErrorMemoryAllocation;
	*memory = malloc(bytes);
	return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
	fake.allocated -= memory != NULL;
	free(memory);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	(void)memory, (void)value, (void)bytes, (void)stream;
	return cudaSuccess;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

int cuda_started(const struct cuda_dev *dev, enum jm_op op, struct jm_err *err)
{
	(void)dev, (void)op;
	return fake.lost ? jm_err_set(err, JM_EIO, "The kernel did not start.") : 0;
}

bool cuda_stopwatch_open(struct cuda_stopwatch *w)
{
	*w = (struct cuda_stopwatch){0};
	return true;
}

void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
}

double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
	return fake.seconds;
}

void cuda_stopwatch_close(const struct cuda_stopwatch *w)
{
	(void)w;
}

void cuda_timed(struct cuda_dev *dev, const char *op, const char *way, const char *key)
{
	(void)op;
	if (fake.faults && !strcmp(way, fake.faults))
		jm_err_set(&dev->lost, JM_EGONE, "The fault of '%s' (%s).", way, key);
}

const char *cuda_plan_find(struct cuda_dev *dev, const char *key)
{
	(void)dev;
	return strcmp(key, fake.key) ? NULL : fake.value;
}

void cuda_plan_keep(struct cuda_dev *dev, const char *key, const char *value)
{
	(void)dev;
	snprintf(fake.key, sizeof fake.key, "%s", key);
	snprintf(fake.value, sizeof fake.value, "%s", value);
}

void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	(void)stream;
	for (int64_t i = 0; i < n && x.type == CUDA_F32; i++)
		((float *)x.data)[i] = (float)((seed * 31 + (uint64_t)i * 17) % 23) - 11;
}

const struct jm_layout cuda_layout_last = {.rank = 4, .order = {0, 2, 3, 1}};

struct cuda_product {
	struct cuda_gemm gemm;
};

int cuda_product_new(struct cuda_dev *dev, const struct cuda_gemm *gemm, struct cuda_product **ret,
	struct jm_err *err)
{
	(void)dev, (void)err;
	*ret = malloc(sizeof **ret);
	assert_non_null(*ret);
	(*ret)->gemm = *gemm;
	return 0;
}

static float *element(const struct cuda_matrix *m, int64_t row, int64_t column)
{
	int64_t i = m->transposed ? column : row, j = m->transposed ? row : column;

	assert_true(i < m->rows && j < m->columns && m->rows <= m->stride);
	return (float *)m->data + j * m->stride + i;
}

int cuda_product_run(struct cuda_dev *dev, const struct cuda_product *p, struct jm_err *err)
{
	const struct cuda_gemm *g = &p->gemm;

	(void)dev, (void)err;
	for (int64_t i = 0; i < g->d.rows; i++)
		for (int64_t j = 0; j < g->d.columns; j++) {
			float sum = g->accumulate ? *element(&g->d, i, j) : 0;

			for (int64_t k = 0; k < g->k; k++)
				sum += *element(&g->a, i, k) * *element(&g->b, k, j);
			*element(&g->d, i, j) = sum;
		}
	return 0;
}

void cuda_product_free(struct cuda_dev *dev, struct cuda_product *p)
{
	(void)dev;
	free(p);
}

/* ---- products -------------------------------------------------------------------------------- */

#define BATCH 2
#define C     8
#define K     5
#define Y     3
#define X     4
#define IMAGE (Y * X)

static float x_data[BATCH * IMAGE * C], y_data[BATCH * IMAGE * K], w_data[K * C];
static struct jm_tensor x = {.data = x_data, .type = JM_F32, .rank = 4, .dim = {BATCH, C, Y, X}},
			y = {.data = y_data, .type = JM_F32, .rank = 4, .dim = {BATCH, K, Y, X}},
			w = {.data = w_data, .type = JM_F32, .rank = 4, .dim = {K, C, 1, 1}};

static struct jm_node conv_of(enum jm_op op)
{
	struct jm_node n = {.op = op, .n_in = 2, .n_out = 1};

	n.in[0] = op == JM_OP_CONV ? &x : &y;
	n.in[1] = op == JM_OP_CONV_WGRAD ? &x : &w;
	n.out[0] = op == JM_OP_CONV ? &y : op == JM_OP_CONV_DGRAD ? &x : &w;
	n.attr.conv.groups = 1;
	for (int i = 0; i < 2; i++)
		n.attr.conv.stride[i] = n.attr.conv.dilation[i] = 1;
	return n;
}

/* The definition: sums over channels, over filters, or over batch and pixels; to is zero or the old
 * result. */
static void by_definition(
	enum jm_op op, const float *px, const float *pw, const float *py, float *to)
{
	for (int b = 0; b < BATCH * IMAGE; b++)
		for (int k = 0; k < K; k++)
			for (int c = 0; c < C; c++)
				if (op == JM_OP_CONV)
					to[b * K + k] += px[b * C + c] * pw[k * C + c];
				else if (op == JM_OP_CONV_DGRAD)
					to[b * C + c] += py[b * K + k] * pw[k * C + c];
				else
					to[k * C + c] += py[b * K + k] * px[b * C + c];
}

static void fill(struct jm_tensor *t, uint64_t seed)
{
	struct cuda_vec v = {t->data, CUDA_F32};

	cuda_random(v, t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3], seed, NULL);
}

static void computes(enum jm_op op, bool add)
{
	struct jm_node n = conv_of(op);
	int64_t count = n.out[0]->dim[0] * n.out[0]->dim[1] * n.out[0]->dim[2] * n.out[0]->dim[3];
	float expected[BATCH * IMAGE * C] = {0}, old[3][BATCH * IMAGE * C];
	struct jm_err err = JM_ERR_INIT;
	struct cuda_product *p;
	struct cuda_gemm g;

	n.accumulate = add;
	fill(&x, 1);
	fill(&w, 2);
	fill(&y, 3);
	memcpy(old[0], x_data, sizeof x_data);
	memcpy(old[1], w_data, sizeof w_data);
	memcpy(old[2], y_data, sizeof y_data);
	if (add)
		memcpy(expected, n.out[0]->data, (size_t)count * sizeof(float));
	by_definition(op, old[0], old[1], old[2], expected);
	assert_true(cuda_conv_is_product(&n));
	g = cuda_conv_product_of(&n, NULL);
	assert_int_equal(cuda_product_new(NULL, &g, &p, &err), 0);
	cuda_product_run(NULL, p, &err);
	cuda_product_free(NULL, p);
	assert_memory_equal(n.out[0]->data, expected, (size_t)count * sizeof(float));
}

static void single_pixels_are_products(void **unused)
{
	(void)unused;
	for (int add = 0; add < 2; add++) {
		computes(JM_OP_CONV, add);
		computes(JM_OP_CONV_DGRAD, add);
		computes(JM_OP_CONV_WGRAD, add);
	}
}

/* y[b,k] sums x[b,i] w[k,i] over pixels and channels. */
static void whole_images_are_products(void **unused)
{
	static float weights[K * IMAGE * C], sums[BATCH * K], expected[BATCH * K];
	struct jm_tensor all = {.data = weights,
		.type = JM_F32,
		.rank = 4,
		.dim = {K, C, Y, X},
		.layout = cuda_layout_last};
	struct jm_tensor one = {.data = sums, .type = JM_F32, .rank = 4, .dim = {BATCH, K, 1, 1}};
	struct jm_node n = conv_of(JM_OP_CONV);
	struct jm_err err = JM_ERR_INIT;
	struct cuda_product *p;
	struct cuda_gemm g;

	(void)unused;
	n.in[1] = &all;
	n.out[0] = &one;
	fill(&x, 1);
	fill(&all, 2);
	for (int i = 0; i < BATCH * K; i++)
		for (int j = 0; j < IMAGE * C; j++)
			expected[i] +=
				x_data[i / K * IMAGE * C + j] * weights[i % K * IMAGE * C + j];
	assert_true(cuda_conv_is_product(&n));
	g = cuda_conv_product_of(&n, NULL);
	assert_int_equal(cuda_product_new(NULL, &g, &p, &err), 0);
	cuda_product_run(NULL, p, &err);
	cuda_product_free(NULL, p);
	assert_memory_equal(sums, expected, sizeof(expected));
	all.layout = (struct jm_layout){0}; /* channels do not stand together */
	assert_false(cuda_conv_is_product(&n));
}

static void others_are_none(void **unused)
{
	struct jm_node n = conv_of(JM_OP_CONV);
	struct jm_tensor wide = w;

	(void)unused;
	n.attr.conv.stride[1] = 2;
	assert_false(cuda_conv_is_product(&n));
	n = conv_of(JM_OP_CONV);
	n.attr.conv.pad[0] = 1;
	assert_false(cuda_conv_is_product(&n));
	n = conv_of(JM_OP_CONV);
	n.attr.conv.groups = 2;
	assert_false(cuda_conv_is_product(&n));
	n = conv_of(JM_OP_CONV);
	n.attr.conv.more[1] = 1;
	assert_false(cuda_conv_is_product(&n));
	n = conv_of(JM_OP_CONV);
	wide.dim[2] = 3;
	n.in[1] = &wide;
	assert_false(cuda_conv_is_product(&n));
}

/* With stride 2 the result has the pixels of y, and is added to x later. */
static void strided_gradients_go_to_compact_memory(void **unused)
{
	struct jm_node n = conv_of(JM_OP_CONV_DGRAD);
	float compact[BATCH * IMAGE * C], expected[BATCH * IMAGE * C] = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor dx = x;
	struct cuda_product *p;
	struct cuda_gemm g;

	(void)unused;
	dx.dim[2] = 2 * Y - 1;
	dx.dim[3] = 2 * X;
	dx.data = NULL; /* the product does not touch it */
	n.out[0] = &dx;
	n.attr.conv.stride[0] = n.attr.conv.stride[1] = 2;
	assert_false(cuda_conv_scatters(&n)); /* it would leave the other pixels undefined */
	n.accumulate = 1;
	assert_true(cuda_conv_scatters(&n) && !cuda_conv_is_product(&n));
	assert_int_equal(cuda_conv_compact(&n), sizeof compact);
	fill(&w, 2);
	fill(&y, 3);
	by_definition(JM_OP_CONV_DGRAD, x_data, w_data, y_data, expected);
	g = cuda_conv_product_of(&n, compact);
	assert_int_equal(cuda_product_new(NULL, &g, &p, &err), 0);
	cuda_product_run(NULL, p, &err);
	cuda_product_free(NULL, p);
	assert_memory_equal(compact, expected, sizeof compact);
	dx.dim[1] = 12; /* no whole packs of channels */
	assert_false(cuda_conv_scatters(&n));
}

static void tf32_is_asked_for(void **unused)
{
	struct jm_node n = conv_of(JM_OP_CONV_WGRAD);

	(void)unused;
	assert_false(cuda_conv_product_of(&n, NULL).tf32);
	n.math = JM_MATH_TF32;
	assert_true(cuda_conv_product_of(&n, NULL).tf32);
}

/* ---- ways ------------------------------------------------------------------------------------ */

static struct {
	double seconds[2];
	bool broken[2]; /* cannot be built */
	bool lost[2];	/* the kernel does not start */
	int built[2], dropped;
	const void *seen; /* the memory of the operand that ran last */
} ways_state;

static int build_way(struct cuda_exec *exec, int i, struct jm_err *err)
{
	ways_state.built[i]++;
	exec->own = &ways_state.seconds[i];
	return ways_state.broken[i] ? jm_err_set(err, JM_ENOSUP, "The way is broken.") : 0;
}

static int build_first(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_way(exec, 0, err);
}

static int build_second(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_way(exec, 1, err);
}

static int run_way(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev, (void)err;
	fake.seconds = *(const double *)exec->own;
	fake.lost = ways_state.lost[(const double *)exec->own - ways_state.seconds];
	ways_state.seen = exec->node[0].out[0]->data;
	assert_ptr_equal(exec->node[0].in[0], exec->node[1].out[0]); /* one tensor stays one */
	((float *)exec->node[0].out[0]->data)[0] = 7;
	return 0;
}

static void drop_way(struct cuda_dev *dev, struct cuda_exec *exec)
{
	(void)dev, (void)exec;
	ways_state.dropped++;
}

/* The choice for a group of two nodes, of which one writes what the other reads. */
static int choose(double first, double second)
{
	static const struct cuda_way ways[] = {{"first", build_first}, {"second", build_second}};
	static const struct cuda_op op = {.run = run_way, .drop = drop_way};
	struct cuda_exec exec = {.op = &op, .n_nodes = 2, .scratch_bytes = 64};
	struct cuda_dev dev = {0};

	memset(&ways_state.built, 0, sizeof ways_state.built);
	ways_state.dropped = 0;
	ways_state.seconds[0] = first;
	ways_state.seconds[1] = second;
	exec.node[0] = conv_of(JM_OP_CONV);
	exec.node[1] = conv_of(JM_OP_CONV_DGRAD);
	exec.node[1].out[0] = exec.node[0].in[0];
	fake.allocated = 0;
	return cuda_way_choose(&dev, &exec, "way/1", ways, 2);
}

static int fresh(void **unused)
{
	(void)unused;
	memset(&fake, 0, sizeof fake);
	memset(&ways_state, 0, sizeof ways_state);
	return 0;
}

static void the_faster_way_is_taken_and_remembered(void **unused)
{
	(void)unused;
	fill(&y, 9);
	float before = y_data[0];

	assert_int_equal(choose(2e-3, 1e-3), 1);
	assert_string_equal(fake.value, "second,0.002,0.001");
	assert_int_equal(ways_state.dropped, 2);
	assert_ptr_not_equal(ways_state.seen, y_data); /* it ran on memory of its own */
	assert_true(y_data[0] == before);
	assert_int_equal(fake.allocated, 0);	 /* all of it was freed */
	assert_int_equal(choose(1e-3, 2e-3), 1); /* from the plan cache: nothing is timed */
	assert_int_equal(ways_state.built[0] + ways_state.built[1], 0);
	fake.key[0] = '\0';
	assert_int_equal(choose(1e-3, 2e-3), 0);
	assert_string_equal(fake.value, "first,0.001,0.002");
}

static void a_broken_way_is_not_taken(void **unused)
{
	(void)unused;
	ways_state.broken[0] = true;
	assert_int_equal(choose(1e-3, 2e-3), 1);
	fake.key[0] = '\0';
	ways_state.broken[1] = true;
	assert_int_equal(choose(1e-3, 2e-3), 0);
	assert_string_equal(fake.key, ""); /* nothing was measured, so nothing is remembered */
	ways_state.broken[0] = ways_state.broken[1] = false;
	assert_int_equal(choose(NAN, 2e-3), 1);
}

/* A kernel that does not start takes no time. */
static void a_way_that_does_not_start_is_not_taken(void **unused)
{
	(void)unused;
	ways_state.lost[1] = true;
	assert_int_equal(choose(2e-3, 1e-3), 0);
	assert_string_equal(fake.value, "first,0.002,nan");
	fake.key[0] = '\0';
	ways_state.lost[0] = true;
	assert_int_equal(choose(2e-3, 1e-3), 0);
	assert_string_equal(fake.key, "");
}

/* What is measured after it says nothing. */
static void nothing_is_kept_after_a_way_that_ends_the_context(void **unused)
{
	(void)unused;
	fake.faults = "second";
	assert_int_equal(choose(2e-3, NAN), 0);
	assert_string_equal(fake.key, "");
	assert_int_equal(fake.allocated, 0);
}

/* As a plan file that an older build wrote: the way is chosen anew, and kept. */
static void a_way_that_no_longer_exists_is_ignored(void **unused)
{
	static const char *const old[] = {"removed,0.002,0.0001", "removed", "", ",", "secon,1,1"};

	(void)unused;
	for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
		snprintf(fake.key, sizeof fake.key, "way/1");
		snprintf(fake.value, sizeof fake.value, "%s", old[i]);
		assert_int_equal(choose(2e-3, 1e-3), 1);
		assert_string_equal(fake.value, "second,0.002,0.001");
	}
}

static void without_memory_the_first_way_is_taken(void **unused)
{
	(void)unused;
	for (fake.fails_at = 1; fake.fails_at <= 5; fake.fails_at++) {
		assert_int_equal(choose(2e-3, 1e-3), 0);
		assert_string_equal(fake.key, "");
	}
	fake.fails_at = 6; /* three tensors, the memory between runs and the scratch */
	assert_int_equal(choose(2e-3, 1e-3), 1);
}

static void an_unknown_line_is_measured_again(void **unused)
{
	(void)unused;
	snprintf(fake.key, sizeof fake.key, "way/1");
	snprintf(fake.value, sizeof fake.value, "secondhand,1,2");
	assert_int_equal(choose(2e-3, 1e-3), 1);
	assert_string_equal(fake.value, "second,0.002,0.001");
}

/* The stored line is of a version that knew fewer ways. */
static void a_choice_among_other_ways_is_made_again(void **unused)
{
	static const char *const others[] = {"first", "first,1", "first,1,2,3"};

	(void)unused;
	for (int i = 0; i < 3; i++) {
		snprintf(fake.key, sizeof fake.key, "way/1");
		snprintf(fake.value, sizeof fake.value, "%s", others[i]);
		assert_int_equal(choose(2e-3, 1e-3), 1);
		assert_string_equal(fake.value, "second,0.002,0.001");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(single_pixels_are_products),
		cmocka_unit_test(whole_images_are_products),
		cmocka_unit_test(others_are_none),
		cmocka_unit_test(strided_gradients_go_to_compact_memory),
		cmocka_unit_test(tf32_is_asked_for),
		cmocka_unit_test_setup(the_faster_way_is_taken_and_remembered, fresh),
		cmocka_unit_test_setup(a_broken_way_is_not_taken, fresh),
		cmocka_unit_test_setup(a_way_that_does_not_start_is_not_taken, fresh),
		cmocka_unit_test_setup(nothing_is_kept_after_a_way_that_ends_the_context, fresh),
		cmocka_unit_test_setup(a_way_that_no_longer_exists_is_ignored, fresh),
		cmocka_unit_test_setup(without_memory_the_first_way_is_taken, fresh),
		cmocka_unit_test_setup(an_unknown_line_is_measured_again, fresh),
		cmocka_unit_test_setup(a_choice_among_other_ways_is_made_again, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
