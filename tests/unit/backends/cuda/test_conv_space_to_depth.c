/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first layer of backend cuda: the filter's gradient of a folded image is that of the image.
 * The rearrangement is repeated here by its definition (image_kernels.h).
 */
#include "backends/cuda/ops/conv/conv_space_to_depth.h"
#include "kit/test.h"
#include "backends/cuda/device/layouts.h"

#define B    2
#define C    3
#define K    4
#define SIZE 4096

const struct jm_layout cuda_layout_last = {.rank = 4, .order = {0, 2, 3, 1}};

static double x_data[SIZE], y_data[SIZE], w_data[SIZE]; /* plain */
static struct jm_tensor x = {.type = JM_F32, .rank = 4}, y = {.type = JM_F32, .rank = 4},
			w = {.type = JM_F32, .rank = 4};
static struct jm_node node;

static int out_of(int in, int size, int stride, int pad)
{
	return (in + 2 * pad - size) / stride + 1;
}

static void make(const int in[2], const int size[2], const int stride[2], const int pad[2])
{
	int64_t *const dim[] = {x.dim, y.dim, w.dim};
	const int64_t batch[] = {B, B, K}, channels[] = {C, K, C};

	node = (struct jm_node){
		.op = JM_OP_CONV_WGRAD, .n_in = 2, .n_out = 1, .math = JM_MATH_TF32};
	node.in[0] = &y;
	node.in[1] = &x;
	node.out[0] = &w;
	node.attr.conv.groups = 1;
	for (int t = 0; t < 3; t++) {
		dim[t][0] = batch[t];
		dim[t][1] = channels[t];
	}
	for (int i = 0; i < 2; i++) {
		x.dim[2 + i] = in[i];
		w.dim[2 + i] = size[i];
		y.dim[2 + i] = out_of(in[i], size[i], stride[i], pad[i]);
		node.attr.conv.stride[i] = stride[i];
		node.attr.conv.pad[i] = pad[i];
		node.attr.conv.dilation[i] = 1;
	}
	for (int i = 0; i < SIZE; i++) {
		x_data[i] = i * 37 % 19 - 9;
		y_data[i] = i * 53 % 17 - 8;
	}
}

/* Element (b, c, i, j) of an image with channels last; 0 outside it. */
static double at(
	const double *data, const int64_t dim[4], int64_t b, int64_t c, int64_t i, int64_t j)
{
	bool inside = i >= 0 && i < dim[2] && j >= 0 && j < dim[3];

	return inside ? data[((b * dim[2] + i) * dim[3] + j) * dim[1] + c] : 0;
}

/* dw of a convolution, all with channels last. */
static void filter_gradient(
	const struct dnn_conv_shape *s, const double *px, const double *py, double *pw)
{
	const struct dnn_window *v = &s->window;

	memset(pw, 0, sizeof w_data);
	for (int64_t k = 0; k < s->w[0]; k++)
		for (int64_t rs = 0; rs < s->w[2] * s->w[3]; rs++)
			for (int64_t c = 0; c < s->w[1]; c++)
				for (int64_t i = 0; i < s->y[0] * s->y[2] * s->y[3]; i++) {
					int64_t column = i % s->y[3], row = i / s->y[3] % s->y[2];
					int64_t b = i / s->y[3] / s->y[2];

					pw[(k * s->w[2] * s->w[3] + rs) * s->w[1] + c] +=
						py[i * s->w[0] + k] *
						at(px, s->x, b, c,
							row * v->stride[0] - v->pad[0] +
								rs / s->w[3],
							column * v->stride[1] - v->pad[1] +
								rs % s->w[3]);
				}
}

/* The element of the image or filter that element `e` of the rearranged one stands for; -1 =
 * none. */
static int64_t source(const struct cuda_fold *p, int64_t e)
{
	int64_t channel = e % p->wide, j = e / p->wide % p->out[1],
		i = e / p->wide / p->out[1] % p->out[0];
	int64_t b = e / p->wide / p->out[1] / p->out[0], square = channel / p->c;
	int64_t row = p->step[0] * i + square / p->step[1] + p->shift[0];
	int64_t column = p->step[1] * j + square % p->step[1] + p->shift[1];
	bool inside = square < p->step[0] * p->step[1] && row >= 0 && row < p->in[0] &&
		      column >= 0 && column < p->in[1];

	return inside ? b * p->stride[0] + channel % p->c * p->stride[1] + row * p->stride[2] +
				column * p->stride[3]
		      : -1;
}

static int64_t count(const struct cuda_fold *p)
{
	return (int64_t)p->batch * p->out[0] * p->out[1] * p->wide;
}

static struct dnn_conv_shape shape_of_node(void)
{
	struct dnn_conv_shape s;

	memset(&s, 0, sizeof s);
	memcpy(s.x, x.dim, sizeof s.x);
	memcpy(s.w, w.dim, sizeof s.w);
	memcpy(s.y, y.dim, sizeof s.y);
	for (int i = 0; i < 2; i++) {
		s.window.stride[i] = node.attr.conv.stride[i];
		s.window.pad[i] = node.attr.conv.pad[i];
	}
	return s;
}

static void gradient_agrees(void)
{
	static double wide[8 * SIZE], found[SIZE], straight[SIZE], last[SIZE];
	struct dnn_conv_shape s = shape_of_node(), whole = s;
	struct cuda_fold px = cuda_conv_fold(&node, &x), pw = cuda_conv_fold(&node, &w);

	cuda_conv_fold_shape(&node, &s);
	assert_int_equal(count(&px), s.x[0] * s.x[1] * s.x[2] * s.x[3]);
	assert_int_equal(count(&pw), s.w[0] * s.w[1] * s.w[2] * s.w[3]);
	assert_true(count(&px) <= 8 * SIZE && count(&pw) <= SIZE);
	for (int64_t e = 0; e < count(&px); e++)
		wide[e] = source(&px, e) < 0 ? 0 : x_data[source(&px, e)];
	filter_gradient(&s, wide, y_data, found);
	for (int64_t i = 0; i < B * C * x.dim[2] * x.dim[3]; i++) { /* x_data with channels last */
		int64_t c = i % C, pixel = i / C % (x.dim[2] * x.dim[3]),
			b = i / C / (x.dim[2] * x.dim[3]);

		last[i] = x_data[(b * C + c) * x.dim[2] * x.dim[3] + pixel];
	}
	filter_gradient(&whole, last, y_data, straight);
	for (int64_t e = 0; e < count(&pw); e++) { /* straight: channels last; source: plain */
		int64_t from = source(&pw, e), pixels = w.dim[2] * w.dim[3];

		if (from >= 0)
			assert_near(found[e],
				straight[(from / pixels / C * pixels + from % pixels) * C +
					 from / pixels % C],
				0);
	}
}

static void gradients_are_those_of_the_image(void **unused)
{
	(void)unused;
	make((int[]){13, 10}, (int[]){7, 7}, (int[]){2, 2}, (int[]){3, 3});
	gradient_agrees();
	make((int[]){9, 12}, (int[]){3, 5}, (int[]){1, 2}, (int[]){1, 0});
	gradient_agrees();
	make((int[]){11, 11}, (int[]){4, 4}, (int[]){3, 3}, (int[]){0, 2});
	gradient_agrees();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_are_those_of_the_image),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
