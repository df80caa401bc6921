/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of a filter of 3 x 3 in backend cuda, without a GPU: which gradients its three
 * kernels compute, and that the arguments describe them. The gradients are repeated here by what
 * image_kernels.h says. How the third divides its work among blocks is tested on all of a division.
 */
#include "backends/cuda/ops/conv/conv_filter.h"
#include "kit/test.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/kernels/wide_grad.h"
#include "backends/cuda/kernels/wide_shares.h"

#define B  2
#define C  3
#define K  2
#define IN 5

const struct jm_layout cuda_layout_last = {.rank = 4, .order = {0, 2, 3, 1}};

static float x_data[B * IN * (IN + 1) * C], y_data[B * IN * (IN + 1) * K], w_data[K * C * 9];
static struct jm_tensor x, y, w;
static struct cuda_dev dev = {.prop = {.multiProcessorCount = 7, .major = 9}};
static bool known, known_slim, known_wide;

/* ---- the kernels ----------------------------------------------------------------------------- */

static void add_product(const struct cuda_filter_grad *p, int pixel, int k, int c, int tap)
{
	int column = pixel % p->out[1], row = pixel / p->out[1] % p->out[0],
	    b = pixel / p->out[1] / p->out[0];
	int i = p->stride * row + tap / 3 - p->pad[0], j = p->stride * column + tap % 3 - p->pad[1];
	const float *in = p->x.data, *dy = p->dy.data;

	if (i < 0 || j < 0 || i >= p->in[0] || j >= p->in[1])
		return;
	p->dw[k * p->w_stride[0] + c * p->w_stride[1] + tap / 3 * p->w_stride[2] +
		tap % 3 * p->w_stride[3]] +=
		in[((b * p->in[0] + i) * p->in[1] + j) * p->channels + c] *
		dy[pixel * p->filters + k];
}

static void compute(const struct cuda_filter_grad *p)
{
	int n = p->batch * p->out[0] * p->out[1] * p->filters * p->channels * 9;

	assert_ptr_equal(p->partial, &dev);
	if (!p->accumulate)
		memset(p->dw, 0, sizeof w_data);
	for (int i = 0; i < n; i++)
		add_product(p, i / 9 / p->channels / p->filters, i / 9 / p->channels % p->filters,
			i / 9 % p->channels, i % 9);
}

bool cuda_filter_knows(const struct cuda_filter_grad *p)
{
	(void)p;
	return known;
}

size_t cuda_filter_scratch(const struct cuda_filter_grad *p)
{
	return 1000 * (size_t)p->processors + (size_t)p->filters;
}

/* It knows no other pad. */
cudaError_t cuda_filter_grad(const struct cuda_filter_grad *p, cudaStream_t stream)
{
	(void)stream;
	assert_true(p->pad[0] == 1 && p->pad[1] == 1);
	compute(p);
	return cudaSuccess;
}

bool cuda_slim_knows(const struct cuda_filter_grad *p)
{
	(void)p;
	return known_slim;
}

size_t cuda_slim_scratch(const struct cuda_filter_grad *p)
{
	return 2000 * (size_t)p->processors + (size_t)p->channels;
}

/* It knows no other stride. */
void cuda_slim_grad(const struct cuda_filter_grad *p, cudaStream_t stream)
{
	(void)stream;
	assert_int_equal(p->stride, 1);
	compute(p);
}

bool cuda_wide_knows(const struct cuda_filter_grad *p)
{
	(void)p;
	return known_wide;
}

size_t cuda_wide_scratch(const struct cuda_filter_grad *p)
{
	return 3000 * (size_t)p->processors + (size_t)p->filters;
}

/* It knows no other stride or pad. */
cudaError_t cuda_wide_grad(
	const struct cuda_filter_grad *p, const struct cuda_wide_bias *bias, cudaStream_t stream)
{
	const float *dy = p->dy.data;

	(void)stream;
	assert_true(p->stride == 1 && p->pad[0] == 1 && p->pad[1] == 1);
	compute(p);
	for (int k = 0; k < p->filters && bias->grad; k++)
		bias->grad[k] = bias->accumulate ? bias->grad[k] : 0;
	for (int i = 0; i < p->batch * p->out[0] * p->out[1] * p->filters && bias->grad; i++)
		bias->grad[i % p->filters] += dy[i];
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

/* ---- the definition -------------------------------------------------------------------------- */

static float *element(const struct jm_tensor *t, int64_t b, int64_t c, int64_t i, int64_t j)
{
	const int64_t *d = t->dim;

	return (float *)t->data + (t->layout.rank ? ((b * d[2] + i) * d[3] + j) * d[1] + c
						  : ((b * d[1] + c) * d[2] + i) * d[3] + j);
}

static void define(const struct jm_node *n, float *ret)
{
	struct jm_tensor to = w;
	int stride = n->attr.conv.stride[0];

	to.data = ret;
	for (int64_t e = 0; e < B * K * C * 9 * y.dim[2] * y.dim[3]; e++) {
		int64_t r = e % 3, s = e / 3 % 3, c = e / 9 % C, k = e / 9 / C % K,
			q = e / 9 / C / K % y.dim[3], p = e / 9 / C / K / y.dim[3] % y.dim[2];
		int64_t b = e / 9 / C / K / y.dim[3] / y.dim[2],
			i = stride * p + r - n->attr.conv.pad[0],
			j = stride * q + s - n->attr.conv.pad[1];

		if (i >= 0 && j >= 0 && i < x.dim[2] && j < x.dim[3])
			*element(&to, k, c, r, s) +=
				*element(&x, b, c, i, j) * *element(&y, b, k, p, q);
	}
}

/* ---- cases ----------------------------------------------------------------------------------- */

static struct jm_tensor tensor(float *data, const int64_t dim[4], bool last)
{
	struct jm_tensor t = {.data = data, .type = JM_F32, .rank = 4};

	memcpy(t.dim, dim, 4 * sizeof *dim);
	if (last)
		t.layout = cuda_layout_last;
	for (int i = 0; i < dim[0] * dim[1] * dim[2] * dim[3]; i++)
		data[i] = (float)(i * 37 % 19 - 9);
	return t;
}

static struct jm_node node_of(int stride, bool last)
{
	struct jm_node n = {.op = JM_OP_CONV_WGRAD, .n_in = 2, .n_out = 1, .math = JM_MATH_TF32};

	x = tensor(x_data, (int64_t[]){B, C, IN, IN + 1}, true);
	y = tensor(y_data, (int64_t[]){B, K, (IN - 1) / stride + 1, IN / stride + 1}, true);
	w = tensor(w_data, (int64_t[]){K, C, 3, 3}, last);
	n.in[0] = &y;
	n.in[1] = &x;
	n.out[0] = &w;
	n.attr.conv.groups = 1;
	for (int i = 0; i < 2; i++) {
		n.attr.conv.stride[i] = stride;
		n.attr.conv.pad[i] = n.attr.conv.dilation[i] = 1;
	}
	known = true;
	dev.prop.minor = 0;
	return n;
}

static void arguments_describe_the_gradient(void **unused)
{
	(void)unused;
	for (int i = 0; i < 8; i++) {
		struct jm_node n = node_of(1 + i % 2, i / 2 % 2);
		struct cuda_exec exec = {.n_nodes = 1, .scratch = &dev};
		float expected[K * C * 9] = {0};

		n.accumulate = i / 4;
		if (n.accumulate)
			memcpy(expected, w_data, sizeof expected);
		define(&n, expected);
		assert_true(cuda_conv_is_filter(&dev, &n));
		exec.node[0] = n;
		assert_int_equal(cuda_conv_filter_run(&dev, &exec), cudaSuccess);
		assert_memory_equal(w_data, expected, sizeof expected);
	}
}

static struct jm_node slim_of(int row_pad, int column_pad, bool last)
{
	struct jm_node n = node_of(1, last);

	y = tensor(y_data, (int64_t[]){B, K, IN + 2 * row_pad - 2, IN + 2 * column_pad - 1}, true);
	n.attr.conv.pad[0] = row_pad;
	n.attr.conv.pad[1] = column_pad;
	known_slim = true;
	return n;
}

static void slim_arguments_describe_the_gradient(void **unused)
{
	(void)unused;
	for (int i = 0; i < 16; i++) {
		struct jm_node n = slim_of(i % 2, i / 2 % 2, i / 4 % 2);
		struct cuda_exec exec = {.n_nodes = 1, .scratch = &dev};
		float expected[K * C * 9] = {0};

		n.accumulate = i / 8;
		if (n.accumulate)
			memcpy(expected, w_data, sizeof expected);
		define(&n, expected);
		assert_true(cuda_conv_is_slim(&dev, &n));
		exec.node[0] = n;
		assert_int_equal(cuda_conv_slim_run(&dev, &exec), cudaSuccess);
		assert_memory_equal(w_data, expected, sizeof expected);
	}
}

/* What the gradient of the bias should be, which is `old` before. */
static void define_bias(const struct jm_node *n, bool adds, const float *old, float *ret)
{
	for (int k = 0; k < K; k++) {
		ret[k] = adds || !n->out[1] ? old[k] : 0;
		for (int64_t i = 0; i < B * y.dim[2] * y.dim[3] && n->out[1]; i++)
			ret[k] += *element(&y, i / y.dim[2] / y.dim[3], k, i / y.dim[3] % y.dim[2],
				i % y.dim[3]);
	}
}

static struct jm_node wide_of(bool last)
{
	struct jm_node n = node_of(1, last);

	known_wide = true;
	return n;
}

static void wide_arguments_describe_the_gradient(void **unused)
{
	(void)unused;
	for (int i = 0; i < 16; i++) {
		float db[K] = {1, 2}, sums[K] = {0};
		struct jm_tensor bias = {.data = db, .type = JM_F32, .rank = 1, .dim = {K}};
		struct jm_node n = wide_of(i % 2);
		struct cuda_exec exec = {.n_nodes = 1, .scratch = &dev};
		float expected[K * C * 9] = {0};

		n.out[1] = i / 8 ? &bias : NULL;
		n.accumulate = (i / 2 % 2 ? JM_ADD_OUT : 0) | (i / 4 % 2 ? JM_ADD_WGRAD_DBIAS : 0);
		if (i / 2 % 2)
			memcpy(expected, w_data, sizeof expected);
		define(&n, expected);
		define_bias(&n, i / 4 % 2, db, sums);
		assert_true(cuda_conv_is_wide(&dev, &n));
		exec.node[0] = n;
		assert_int_equal(cuda_conv_wide_run(&dev, &exec), cudaSuccess);
		assert_memory_equal(w_data, expected, sizeof expected);
		assert_memory_equal(db, sums, sizeof sums);
	}
}

static void other_gradients_are_not_wide(void **unused)
{
	struct jm_node n = wide_of(true);

	(void)unused;
	n.out[1] = &y; /* it adds up the gradient of a bias, too */
	assert_true(cuda_conv_is_wide(&dev, &n));
	known_wide = false;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	n.attr.conv.stride[0] = 2;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	n.attr.conv.pad[1] = 0;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	n.attr.conv.more[0] = 1;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	n.attr.conv.dilation[1] = 2;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	n.attr.conv.groups = 3;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	w.dim[3] = 1;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	w.type = JM_BF16;
	assert_false(cuda_conv_is_wide(&dev, &n));
	n = wide_of(true);
	dev.prop.minor = 1; /* the kernel is compiled for 9.0 alone */
	assert_false(cuda_conv_is_wide(&dev, &n));
}

/* ---- how the work is divided ----------------------------------------------------------------- */

#define TILES  45
#define CHUNKS 40
#define BLOCKS 17

struct counts {
	int chunk[TILES][CHUNKS];	  /* how often it is added */
	int slot[2 * TILES + 2 * BLOCKS]; /* how often it is written, and read */
};

static void count_piece(struct counts *c, const struct cuda_wide_shares *s, int block, int *work)
{
	struct cuda_wide_piece piece;

	for (int k = 0; cuda_wide_piece(s, block, k, &piece); k++) {
		assert_true(piece.tile < s->tiles && piece.begin < piece.end);
		*work += piece.end - piece.begin;
		for (int i = piece.begin; i < piece.end; i++)
			c->chunk[piece.tile][i]++;
		assert_true(piece.slot < s->slots || piece.slot < 0);
		if (piece.slot >= 0)
			c->slot[piece.slot]++;
		else
			assert_int_equal(piece.end - piece.begin, s->chunks);
	}
}

static void count_part(struct counts *c, const struct cuda_wide_piece *piece, int *at)
{
	assert_int_equal(piece->begin, *at);
	*at = piece->end;
	c->slot[piece->slot]--;
}

/* The parts of a tile as the kernel reads them: in the order of their chunks. */
static void count_parts(struct counts *c, const struct cuda_wide_shares *s, int tile)
{
	struct cuda_wide_piece piece;
	int at = 0;

	for (int i = 0; i < s->runs; i++)
		if (cuda_wide_run(s, tile, i, &piece))
			count_part(c, &piece, &at);
	for (int i = cuda_wide_helper(s, tile); i < cuda_wide_helper(s, tile + 1) + 2; i++)
		if (cuda_wide_help(s, tile, i, &piece))
			count_part(c, &piece, &at);
	assert_int_equal(at, s->chunks);
}

static void check_division(int tiles, int chunks, int blocks)
{
	const struct cuda_wide_shares s = cuda_wide_divide(tiles, chunks, blocks);
	int64_t all = (int64_t)tiles * chunks;
	struct counts c = {0};

	for (int block = 0; block < blocks; block++) {
		int work = 0;

		count_piece(&c, &s, block, &work);
		/* no block has more than its share, but for rests too small for their own part */
		assert_true(work <= all / blocks + CUDA_WIDE_LEAST + CHUNKS / 8 ||
			    chunks < 2 * CUDA_WIDE_LEAST);
	}
	for (int tile = 0; tile < tiles; tile++)
		for (int i = 0; i < chunks; i++)
			assert_int_equal(c.chunk[tile][i], 1);
	for (int tile = 0; tile < s.left && s.slots; tile++)
		count_parts(&c, &s, tile);
	for (size_t i = 0; i < sizeof c.slot / sizeof *c.slot; i++)
		assert_int_equal(c.slot[i], 0);
}

static void each_chunk_is_added_once(void **unused)
{
	(void)unused;
	for (int tiles = 1; tiles <= TILES; tiles++)
		for (int chunks = 1; chunks <= CHUNKS; chunks++)
			for (int blocks = 1; blocks <= BLOCKS; blocks++)
				check_division(tiles, chunks, blocks);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void scratch_is_that_of_the_kernel(void **unused)
{
	struct jm_node n = node_of(1, true);

	(void)unused;
	assert_int_equal(cuda_conv_filter_scratch(&dev, &n), 7000 + K);
	assert_int_equal(cuda_conv_slim_scratch(&dev, &n), 14000 + C);
	assert_int_equal(cuda_conv_wide_scratch(&dev, &n), 21000 + K);
}

static void other_gradients_are_not_slim(void **unused)
{
	struct jm_node n = slim_of(1, 1, true);

	(void)unused;
	known_slim = false;
	assert_false(cuda_conv_is_slim(&dev, &n));
	n = slim_of(1, 1, true);
	n.attr.conv.stride[0] = 2;
	assert_false(cuda_conv_is_slim(&dev, &n));
	n = slim_of(1, 1, true);
	n.attr.conv.dilation[1] = 2;
	assert_false(cuda_conv_is_slim(&dev, &n));
	n = slim_of(1, 1, true);
	n.attr.conv.groups = 3;
	assert_false(cuda_conv_is_slim(&dev, &n));
	n = slim_of(1, 1, true);
	w.dim[3] = 1;
	assert_false(cuda_conv_is_slim(&dev, &n));
	n = slim_of(1, 1, true);
	w.type = JM_BF16;
	assert_false(cuda_conv_is_slim(&dev, &n));
	n = slim_of(1, 1, true);
	n.out[1] = &y;
	assert_false(cuda_conv_is_slim(&dev, &n));
}

static void other_gradients_are_left_to_cudnn(void **unused)
{
	struct jm_node n = node_of(1, true);

	(void)unused;
	known = false;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	n.math = JM_MATH_F32;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	n.attr.conv.stride[1] = 2;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	n.attr.conv.pad[0] = 0;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	n.attr.conv.dilation[1] = 2;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	n.out[1] = &y;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	w.dim[2] = 1;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	x.type = y.type = JM_BF16;
	assert_false(cuda_conv_is_filter(&dev, &n));
	n = node_of(1, true);
	dev.prop.minor = 1; /* the kernel is compiled for 9.0 alone */
	assert_false(cuda_conv_is_filter(&dev, &n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_describe_the_gradient),
		cmocka_unit_test(slim_arguments_describe_the_gradient),
		cmocka_unit_test(wide_arguments_describe_the_gradient),
		cmocka_unit_test(each_chunk_is_added_once),
		cmocka_unit_test(scratch_is_that_of_the_kernel),
		cmocka_unit_test(other_gradients_are_left_to_cudnn),
		cmocka_unit_test(other_gradients_are_not_slim),
		cmocka_unit_test(other_gradients_are_not_wide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
