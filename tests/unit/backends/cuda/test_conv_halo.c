/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of 3 x 3 by an own kernel in backend cuda, without a GPU: which ones it computes,
 * and that the arguments describe them. The kernel is repeated here by what halo_conv.h says, on
 * whole numbers, and its results are compared with those of the definition.
 */
#include "backends/cuda/ops/conv/conv_halo.h"
#include "kit/test.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/kernels/halo/halo_conv.h"

#define B 2
#define Y 3
#define X 4
#define C 64
#define K 72

const struct jm_layout cuda_layout_last = {.rank = 4, .order = {0, 2, 3, 1}};

static float x_data[B * Y * X * C], y_data[B * Y * X * K], w_data[K * 9 * C], bias_data[K],
	image_data[B * Y * X * K];
static struct jm_tensor x, y, w, bias, image, sum;
static struct cuda_dev dev = {.prop = {.multiProcessorCount = 7, .major = 9}};
static bool known;

/* ---- the kernel ------------------------------------------------------------------------------ */

bool cuda_halo_knows(const struct cuda_halo_conv *p)
{
	return known && p->processors == 7;
}

/* w of output k, input c, tap */
static float weight(const struct cuda_halo_conv *p, int k, int c, int tap)
{
	const float *from = p->w.data;

	return p->turned ? from[(c * 9 + 8 - tap) * p->filters + k]
			 : from[(k * 9 + tap) * p->channels + c];
}

static float pixel_sum(const struct cuda_halo_conv *p, int b, int row, int column, int k)
{
	const float *from = p->x.data;
	float total = 0;

	for (int tap = 0; tap < 9; tap++) {
		const int i = row + tap / 3 - 1, j = column + tap % 3 - 1;

		if (i < 0 || j < 0 || i >= p->in[0] || j >= p->in[1])
			continue;
		for (int c = 0; c < p->channels; c++)
			total += weight(p, k, c, tap) *
				 from[((b * p->in[0] + i) * p->in[1] + j) * p->channels + c];
	}
	return total;
}

cudaError_t cuda_halo_conv(const struct cuda_halo_conv *p, cudaStream_t stream)
{
	const int n = p->batch * p->in[0] * p->in[1] * p->filters;
	float *to = p->y.data;
	const float *add = p->add.data;

	assert_ptr_equal(stream, dev.stream);
	for (int i = 0; i < n; i++) {
		const int k = i % p->filters, pixel = i / p->filters;

		to[i] = pixel_sum(p, pixel / p->in[1] / p->in[0], pixel / p->in[1] % p->in[0],
				pixel % p->in[1], k) +
			(add ? add[i] : 0) + (p->bias ? p->bias[k] : 0);
		if (p->relu && to[i] < 0)
			to[i] = 0;
	}
	return cudaSuccess;
}

/* ---- the definition -------------------------------------------------------------------------- */

static void fill(float *to, int n, int seed)
{
	for (int i = 0; i < n; i++)
		to[i] = (float)((i * 7 + seed * 3 + i / 5) % 5 - 2);
}

static void tensor(struct jm_tensor *t, float *data, int a, int b, int c, int d)
{
	*t = (struct jm_tensor){.rank = 4,
		.dim = {a, b, c, d},
		.type = JM_BF16,
		.layout = cuda_layout_last,
		.data = data};
}

static int setup(void **state)
{
	(void)state;
	tensor(&x, x_data, B, C, Y, X);
	tensor(&y, y_data, B, K, Y, X);
	tensor(&w, w_data, K, C, 3, 3);
	tensor(&image, image_data, B, K, Y, X);
	tensor(&sum, y_data, B, K, Y, X);
	bias = (struct jm_tensor){.rank = 1, .dim = {K}, .data = bias_data};
	fill(x_data, B * Y * X * C, 1);
	fill(y_data, B * Y * X * K, 2);
	fill(w_data, K * 9 * C, 3);
	fill(bias_data, K, 4);
	fill(image_data, B * Y * X * K, 5);
	known = true;
	dev.prop.major = 9;
	return 0;
}

static struct jm_node node_of(enum jm_op op)
{
	struct jm_node n = {.op = op};

	n.in[0] = op == JM_OP_CONV ? &x : &y;
	n.in[1] = &w;
	n.out[0] = op == JM_OP_CONV ? &y : &x;
	n.attr.conv.groups = 1;
	for (int i = 0; i < 2; i++)
		n.attr.conv.stride[i] = n.attr.conv.dilation[i] = n.attr.conv.pad[i] = 1;
	return n;
}

/* Adds each product of the convolution to y (from x) or to x (from y). */
static void define(const float *from, float *to, bool forward)
{
	for (int i = 0; i < B * Y * X * 9; i++) {
		const int tap = i % 9, column = i / 9 % X, row = i / 9 / X % Y, b = i / 9 / X / Y;
		const int r = row + tap / 3 - 1, q = column + tap % 3 - 1;
		const int in = ((b * Y + r) * X + q) * C, out = ((b * Y + row) * X + column) * K;

		if (r < 0 || q < 0 || r >= Y || q >= X)
			continue;
		for (int j = 0; j < K * C; j++) {
			const float v = w_data[(j / C * 9 + tap) * C + j % C];

			if (forward)
				to[out + j / C] += v * from[in + j % C];
			else
				to[in + j % C] += v * from[out + j / C];
		}
	}
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_conv(void **state)
{
	static float expected[B * Y * X * K];
	struct cuda_exec exec = {.n_nodes = 1, .node = {node_of(JM_OP_CONV)}};

	(void)state;
	for (int i = 0; i < B * Y * X * K; i++)
		expected[i] = bias_data[i % K];
	define(x_data, expected, true);
	exec.node[0].in[2] = &bias;
	assert_true(cuda_conv_is_halo(&dev, &exec.node[0]));
	assert_int_equal(cuda_conv_halo_run(&dev, &exec), cudaSuccess);
	assert_memory_equal(y_data, expected, sizeof expected);
}

/* The image is the first or the second operand of the add. */
static void test_conv_add(void **state)
{
	static float expected[B * Y * X * K];

	(void)state;
	for (int first = 0; first < 2; first++) {
		struct cuda_exec exec = {.n_nodes = 2, .node = {node_of(JM_OP_CONV)}};

		exec.node[0].in[2] = &bias;
		exec.node[1] = (struct jm_node){.op = JM_OP_ADD};
		exec.node[1].in[first] = &y;
		exec.node[1].in[!first] = &image;
		exec.node[1].out[0] = &sum;
		for (int i = 0; i < B * Y * X * K; i++)
			expected[i] = bias_data[i % K] + image_data[i];
		define(x_data, expected, true);
		fill(y_data, B * Y * X * K, 9);
		assert_int_equal(cuda_conv_halo_run(&dev, &exec), cudaSuccess);
		assert_memory_equal(y_data, expected, sizeof expected);
	}
}

static void test_conv_relu(void **state)
{
	static float expected[B * Y * X * K];
	struct cuda_exec exec = {.n_nodes = 2, .node = {node_of(JM_OP_CONV), {.op = JM_OP_RELU}}};

	(void)state;
	exec.node[0].in[2] = &bias;
	exec.node[1].in[0] = &y;
	exec.node[1].out[0] = &sum;
	for (int i = 0; i < B * Y * X * K; i++)
		expected[i] = bias_data[i % K];
	define(x_data, expected, true);
	for (int i = 0; i < B * Y * X * K; i++)
		expected[i] = expected[i] > 0 ? expected[i] : 0;
	assert_int_equal(cuda_conv_halo_run(&dev, &exec), cudaSuccess);
	assert_memory_equal(y_data, expected, sizeof expected);
}

static void test_dgrad(void **state)
{
	static float expected[B * Y * X * C];

	(void)state;
	for (unsigned adds = 0; adds < 2; adds++) {
		struct cuda_exec exec = {.n_nodes = 1, .node = {node_of(JM_OP_CONV_DGRAD)}};

		exec.node[0].accumulate = adds;
		fill(x_data, B * Y * X * C, 6);
		memset(expected, 0, sizeof expected);
		if (adds)
			memcpy(expected, x_data, sizeof expected);
		define(y_data, expected, false);
		assert_true(cuda_conv_is_halo(&dev, &exec.node[0]));
		assert_int_equal(cuda_conv_halo_run(&dev, &exec), cudaSuccess);
		assert_memory_equal(x_data, expected, sizeof expected);
	}
}

static void test_others(void **state)
{
	struct jm_node n = node_of(JM_OP_CONV);

	(void)state;
	assert_true(cuda_conv_is_halo(&dev, &n));
	n.attr.conv.stride[1] = 2;
	assert_false(cuda_conv_is_halo(&dev, &n));
	n = node_of(JM_OP_CONV);
	n.attr.conv.pad[0] = 0;
	assert_false(cuda_conv_is_halo(&dev, &n));
	n = node_of(JM_OP_CONV);
	n.attr.conv.more[1] = 1;
	assert_false(cuda_conv_is_halo(&dev, &n));
	n = node_of(JM_OP_CONV);
	n.attr.conv.dilation[0] = 2;
	assert_false(cuda_conv_is_halo(&dev, &n));
	n = node_of(JM_OP_CONV);
	n.attr.conv.groups = 2;
	assert_false(cuda_conv_is_halo(&dev, &n));
	n = node_of(JM_OP_CONV_WGRAD);
	assert_false(cuda_conv_is_halo(&dev, &n));
	n = node_of(JM_OP_CONV);
	w.dim[3] = 1;
	assert_false(cuda_conv_is_halo(&dev, &n));
	w.dim[3] = 3;
	w.type = JM_F16;
	assert_false(cuda_conv_is_halo(&dev, &n));
	w.type = JM_BF16;
	x.dim[1] = 56;
	assert_false(cuda_conv_is_halo(&dev, &n));
	x.dim[1] = C;
	y.dim[1] = 4;
	assert_false(cuda_conv_is_halo(&dev, &n));
	y.dim[1] = K;
	known = false;
	assert_false(cuda_conv_is_halo(&dev, &n));
	known = true;
	dev.prop.major = 8;
	assert_false(cuda_conv_is_halo(&dev, &n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_conv, setup),
		cmocka_unit_test_setup(test_conv_add, setup),
		cmocka_unit_test_setup(test_conv_relu, setup),
		cmocka_unit_test_setup(test_dgrad, setup),
		cmocka_unit_test_setup(test_others, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
