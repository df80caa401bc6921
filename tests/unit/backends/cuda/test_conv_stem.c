/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First layers in backend cuda, without a GPU: which convolutions their kernels compute, and that
 * their arguments describe the convolution and its filter's gradient. Those of a ResNet are
 * repeated here by what image_kernels.h says.
 */
#include "backends/cuda/ops/conv/conv_stem.h"
#include "kit/test.h"
#include "backends/cuda/device/layouts.h"

#define B    2
#define K    8
#define IN   9
#define OUT  5
#define SIZE (CUDA_STEM_SIZE * CUDA_STEM_SIZE)

const struct jm_layout cuda_layout_last = {.rank = 4, .order = {0, 2, 3, 1}};

static float x_data[B * 3 * IN * IN], w_data[K * 3 * SIZE], y_data[B * K * OUT * OUT];
static struct jm_tensor x, w, y;
static struct cuda_dev dev = {.prop.multiProcessorCount = 7};

/* ---- the kernels ----------------------------------------------------------------------------- */

/* Calls use(pixel of x, element of the filter, element of y) for all products; NULL pixels are
 * outside. */
static void products(const struct cuda_stem *p, void (*use)(float *, float *, float *))
{
	float *px = p->x.data, *pw = p->dw ? p->dw : p->w.data, *py = p->dy.data;

	for (int i = 0; i < p->batch * p->out[0] * p->out[1] * p->filters * 3 * SIZE; i++) {
		int column = i % 7, row = i / 7 % 7, c = i / SIZE % 3,
		    k = i / SIZE / 3 % p->filters;
		int pixel = i / SIZE / 3 / p->filters, b = pixel / p->out[1] / p->out[0];
		int at[2] = {2 * (pixel / p->out[1] % p->out[0]) + row - p->pad[0],
			2 * (pixel % p->out[1]) + column - p->pad[1]};

		if (at[0] < 0 || at[1] < 0 || at[0] >= p->in[0] || at[1] >= p->in[1])
			continue;
		use(px + b * p->stride[0] + c * p->stride[1] + at[0] * p->stride[2] +
				at[1] * p->stride[3],
			pw + k * p->w_stride[0] + c * p->w_stride[1] + row * p->w_stride[2] +
				column * p->w_stride[3],
			py + pixel * p->filters + k);
	}
}

static void to_y(float *px, float *pw, float *py)
{
	*py += *px * *pw;
}

static void to_w(float *px, float *pw, float *py)
{
	*pw += *px * *py;
}

cudaError_t cuda_stem(const struct cuda_stem *p, cudaStream_t stream)
{
	(void)stream;
	memset(p->dy.data, 0, sizeof y_data);
	products(p, to_y);
	return cudaSuccess;
}

cudaError_t cuda_stem_grad(const struct cuda_stem *p, cudaStream_t stream)
{
	(void)stream;
	if (!p->accumulate)
		memset(p->dw, 0, sizeof w_data);
	products(p, to_w);
	return cudaSuccess;
}

size_t cuda_stem_scratch(const struct cuda_stem *p)
{
	return 1000 * (size_t)p->processors + (size_t)p->filters;
}

static struct cuda_stem small; /* what the kernels of a small window got last */

size_t cuda_small_stem_scratch(const struct cuda_stem *p)
{
	return 100 * (size_t)p->processors + (size_t)p->filters;
}

void cuda_small_stem(const struct cuda_stem *p, cudaStream_t stream)
{
	(void)stream;
	small = *p;
}

void cuda_small_stem_grad(const struct cuda_stem *p, cudaStream_t stream)
{
	cuda_small_stem(p, stream);
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

/* ---- the definition -------------------------------------------------------------------------- */

/* Element (b, c, i, j) of a tensor, which is plain or has its channels last. */
static float *element(const struct jm_tensor *t, int b, int c, int i, int j)
{
	int64_t C = t->dim[1], Y = t->dim[2], X = t->dim[3];

	return (float *)t->data +
	       (t->layout.rank ? ((b * Y + i) * X + j) * C + c : ((b * C + c) * Y + i) * X + j);
}

/* What the operand that `result` names has to be, in its own order; old: before. */
static void define(const struct jm_tensor *result, bool add, const float *old, float *ret)
{
	struct jm_tensor to = *result;

	memcpy(ret, old, result == &w ? sizeof w_data : sizeof y_data);
	if (!add)
		memset(ret, 0, result == &w ? sizeof w_data : sizeof y_data);
	to.data = ret;
	for (int b = 0; b < B; b++)
		for (int k = 0; k < K; k++)
			for (int e = 0; e < OUT * OUT * 3 * SIZE; e++) {
				int c = e % 3, row = e / 3 % 7, column = e / 21 % 7,
				    q = e / 147 % OUT, p = e / 147 / OUT;
				int i = 2 * p + row - 3, j = 2 * q + column - 3;
				float from = i < 0 || j < 0 || i >= IN || j >= IN
						     ? 0
						     : *element(&x, b, c, i, j);

				if (result == &w)
					*element(&to, k, c, row, column) +=
						from * *element(&y, b, k, p, q);
				else
					*element(&to, b, k, p, q) +=
						from * *element(&w, k, c, row, column);
			}
}

static struct jm_tensor tensor(float *data, int n, const int64_t dim[4], bool last)
{
	struct jm_tensor t = {.data = data, .type = JM_F32, .rank = 4};

	memcpy(t.dim, dim, 4 * sizeof *dim);
	if (last)
		t.layout = cuda_layout_last;
	for (int i = 0; i < n; i++)
		data[i] = (float)(i * 37 % 19 - 9);
	return t;
}

static struct jm_node node_of(enum jm_op op, bool last)
{
	struct jm_node n = {.op = op, .n_in = 2, .n_out = 1, .math = JM_MATH_TF32};

	x = tensor(x_data, B * 3 * IN * IN, (int64_t[]){B, 3, IN, IN}, last);
	w = tensor(w_data, K * 3 * SIZE, (int64_t[]){K, 3, 7, 7}, last);
	y = tensor(y_data, B * K * OUT * OUT, (int64_t[]){B, K, OUT, OUT}, true);
	n.in[0] = op == JM_OP_CONV ? &x : &y;
	n.in[1] = op == JM_OP_CONV ? &w : &x;
	n.out[0] = op == JM_OP_CONV ? &y : &w;
	n.attr.conv.groups = 1;
	for (int i = 0; i < 2; i++) {
		n.attr.conv.stride[i] = 2;
		n.attr.conv.pad[i] = 3;
		n.attr.conv.dilation[i] = 1;
	}
	return n;
}

static void computes(enum jm_op op, bool last, bool add)
{
	struct jm_node n = node_of(op, last);
	struct cuda_exec exec = {.n_nodes = 1};
	size_t bytes = op == JM_OP_CONV ? sizeof y_data : sizeof w_data;
	static float old[sizeof w_data / sizeof(float)], expected[sizeof w_data / sizeof(float)];

	n.accumulate = add;
	memcpy(old, n.out[0]->data, bytes);
	define(n.out[0], add, old, expected);
	assert_true(cuda_conv_is_stem(&n));
	exec.node[0] = n;
	assert_int_equal(cuda_conv_stem_run(&dev, &exec), cudaSuccess);
	assert_memory_equal(n.out[0]->data, expected, bytes);
}

static void arguments_describe_the_convolution(void **unused)
{
	(void)unused;
	for (int last = 0; last < 2; last++) {
		computes(JM_OP_CONV, last, false);
		computes(JM_OP_CONV_WGRAD, last, false);
		computes(JM_OP_CONV_WGRAD, last, true);
	}
}

static void only_the_gradient_has_scratch(void **unused)
{
	struct jm_node forward = node_of(JM_OP_CONV, true), back = node_of(JM_OP_CONV_WGRAD, true);

	(void)unused;
	assert_int_equal(cuda_conv_stem_scratch(&dev, &forward), 0);
	assert_int_equal(cuda_conv_stem_scratch(&dev, &back), 7000 + K);
}

/* In 16 bits, with windows of 3 x 3. */
static struct jm_node small_node(enum jm_op op)
{
	struct jm_node n = node_of(op, true);

	w.dim[2] = w.dim[3] = 3;
	x.type = y.type = JM_BF16;
	w.type = op == JM_OP_CONV ? JM_BF16 : JM_F32;
	n.attr.conv.pad[0] = n.attr.conv.pad[1] = 1;
	return n;
}

static void a_small_window_takes_the_bias_and_the_relu(void **unused)
{
	float values[K] = {0}, above[1] = {0};
	struct jm_tensor bias = {.rank = 1, .dim = {K}, .data = values};
	struct jm_tensor result = y, open = {.data = above, .type = JM_BF16};
	struct cuda_exec exec = {.n_nodes = 2};
	struct jm_node n = small_node(JM_OP_CONV), relu = {.op = JM_OP_RELU, .n_in = 1};

	(void)unused;
	n.in[2] = &bias;
	assert_true(cuda_conv_is_stem(&n) && cuda_conv_stem_ends(&n));
	result.data = &result;
	relu.in[0] = n.out[0];
	relu.out[0] = &result;
	exec.node[0] = n;
	exec.node[1] = relu;
	assert_int_equal(cuda_conv_stem_run(&dev, &exec), cudaSuccess);
	assert_true(small.relu && small.bias == values && small.dy.data == &result && !small.dw);
	assert_int_equal(small.step, 2);
	n = small_node(JM_OP_CONV_WGRAD);
	n.out[1] = &bias;
	n.accumulate = JM_ADD_WGRAD_DBIAS;
	relu.in[0] = &result;
	relu.in[1] = &open;
	assert_int_equal(cuda_conv_stem_opened(&dev, &relu, &n, above), cudaSuccess);
	assert_true(small.dy.data == &result && small.open.data == above && small.dw == w.data);
	assert_true(small.dbias == values && small.accumulate_bias && !small.accumulate);
	assert_int_equal(cuda_conv_stem_scratch(&dev, &n), 700 + K);
	x.type = y.type = JM_F32;
	assert_false(cuda_conv_is_stem(&n));
}

static void other_convolutions_are_no_stem(void **unused)
{
	const struct jm_tensor bias = {.rank = 1, .dim = {K}};
	struct jm_tensor other = bias;
	struct jm_node n = node_of(JM_OP_CONV, true);

	(void)unused;
	n.accumulate = 1;
	assert_false(cuda_conv_is_stem(&n));
	n = node_of(JM_OP_CONV_WGRAD, true);
	n.math = JM_MATH_F32;
	assert_false(cuda_conv_is_stem(&n));
	n = node_of(JM_OP_CONV_WGRAD, true);
	n.out[1] = &other;
	assert_false(cuda_conv_is_stem(&n));
	n = node_of(JM_OP_CONV_WGRAD, true);
	n.attr.conv.stride[1] = 1;
	assert_false(cuda_conv_is_stem(&n));
	n = node_of(JM_OP_CONV_WGRAD, true);
	w.dim[3] = 5;
	assert_false(cuda_conv_is_stem(&n));
	n = node_of(JM_OP_CONV_WGRAD, true);
	w.dim[0] = y.dim[1] = 12; /* no whole packs of channels */
	assert_false(cuda_conv_is_stem(&n));
	n = node_of(JM_OP_CONV_WGRAD, true);
	x.type = y.type = JM_BF16;
	n.math = JM_MATH_F32;
	assert_true(cuda_conv_is_stem(&n));
	n.op = JM_OP_CONV_DGRAD;
	assert_false(cuda_conv_is_stem(&n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_describe_the_convolution),
		cmocka_unit_test(only_the_gradient_has_scratch),
		cmocka_unit_test(a_small_window_takes_the_bias_and_the_relu),
		cmocka_unit_test(other_convolutions_are_no_stem),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
