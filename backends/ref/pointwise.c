/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise ops; they work directly on tensors of any type. */
#include "ref_kernels.h"

#include <math.h>

#include "engine/graph/rng.h"

#define SQRT_2_PI 0.79788456080286535588 /* sqrt(2/pi) */
#define CUBIC	  0.044715		 /* Hendrycks and Gimpel, arXiv 1606.08415 */
#define QUICK	  1.702

static double get(const struct jm_tensor *t, int64_t i)
{
	return jm_element_get(t->type, t->data, i);
}

static void put(const struct jm_node *n, int64_t i, double value)
{
	const struct jm_tensor *t = n->out[0];

	jm_element_set(t->type, t->data, i, value + (jm_node_adds(n, 0) ? get(t, i) : 0));
}

static double inner(double x)
{
	return tanh(SQRT_2_PI * (x + CUBIC * x * x * x));
}

void jm_ref_gelu(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		double x = get(n->in[0], i);

		put(n, i, 0.5 * x * (1 + inner(x)));
	}
}

void jm_ref_gelu_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		double x = get(n->in[1], i), t = inner(x);
		double slope = SQRT_2_PI * (1 + 3 * CUBIC * x * x);

		put(n, i, get(n->in[0], i) * 0.5 * (1 + t + x * (1 - t * t) * slope));
	}
}

static double normal_below(double x) /* the normal distribution function */
{
	return 0.5 * erfc(-x * M_SQRT1_2);
}

static double gelu_erf(double x)
{
	return x * normal_below(x);
}

void jm_ref_gelu_erf(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, gelu_erf(get(n->in[0], i)));
}

static double gelu_erf_slope(double x)
{
	return normal_below(x) + x * exp(-0.5 * x * x) * M_SQRT1_2 * M_2_SQRTPI / 2;
}

void jm_ref_gelu_erf_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, get(n->in[0], i) * gelu_erf_slope(get(n->in[1], i)));
}

void jm_ref_relu(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		double x = get(n->in[0], i);

		put(n, i, x < 0 ? 0 : x);
	}
}

void jm_ref_relu_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, get(n->in[1], i) > 0 ? get(n->in[0], i) : 0);
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double silu(double x)
{
	return x * sigmoid(x);
}

static double silu_slope(double x)
{
	return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

/* x sigmoid(1.702 x), of Hendrycks and Gimpel, arXiv 1606.08415 */
void jm_ref_gelu_quick(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		double x = get(n->in[0], i);

		put(n, i, x * sigmoid(QUICK * x));
	}
}

void jm_ref_gelu_quick_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, get(n->in[0], i) * silu_slope(QUICK * get(n->in[1], i)));
}

void jm_ref_silu(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, silu(get(n->in[0], i)));
}

void jm_ref_silu_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, get(n->in[0], i) * silu_slope(get(n->in[1], i)));
}

/* ---- gated units (Shazeer, arXiv 2002.05202), not direct ------------------------------------- */

/* Where element i of a result of `width` columns has its gate and its value in the operand. */
struct gate_at {
	int64_t gate, value;
};

static struct gate_at gate_of(const struct jm_node *n, int64_t i, int64_t width)
{
	bool last = n->op == JM_OP_GEGLU || n->op == JM_OP_GEGLU_GRAD;
	int64_t at = i / width * 2 * width + i % width;

	return (struct gate_at){at + (last ? width : 0), at + (last ? 0 : width)};
}

static void gated(
	const struct jm_node *n, double *const *in, double *const *out, double (*act)(double gate))
{
	int64_t width = jm_tensor_width(n->out[0]);

	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		struct gate_at at = gate_of(n, i, width);

		out[0][i] = act(in[0][at.gate]) * in[0][at.value];
	}
}

static void gated_grad(const struct jm_node *n, double *const *in, double *const *out,
	double (*act)(double gate), double (*slope)(double gate))
{
	int64_t width = jm_tensor_width(n->in[0]);

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		struct gate_at at = gate_of(n, i, width);
		double gate = in[1][at.gate], dy = in[0][i];

		out[0][at.gate] = dy * in[1][at.value] * slope(gate);
		out[0][at.value] = dy * act(gate);
	}
}

void jm_ref_swiglu(const struct jm_node *n, double *const *in, double *const *out)
{
	gated(n, in, out, silu);
}

void jm_ref_swiglu_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	gated_grad(n, in, out, silu, silu_slope);
}

void jm_ref_geglu(const struct jm_node *n, double *const *in, double *const *out)
{
	gated(n, in, out, gelu_erf);
}

void jm_ref_geglu_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	gated_grad(n, in, out, gelu_erf, gelu_erf_slope);
}

void jm_ref_dropout(const struct jm_node *n, double *const *in, double *const *out)
{
	double p = n->attr.dropout.p;
	uint64_t seed = jm_rng(n->attr.dropout.seed, (uint64_t)get(n->in[1], 0));

	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		uint64_t bits = jm_rng(seed, (uint64_t)i / 2) >> (i & 1 ? 32 : 0);
		bool kept = (double)(uint32_t)bits >= floor(p * 0x1p32);

		put(n, i, kept ? get(n->in[0], i) / (1 - p) : 0);
	}
}

void jm_ref_add(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, get(n->in[0], i) + get(n->in[1], i));
}

/* Element i of a plain tensor, in the layout of t. */
static int64_t place_of(const struct jm_tensor *t, int64_t i)
{
	int64_t index[JM_DIMS];

	if (!t->layout.rank)
		return i;
	for (int d = t->rank - 1; d >= 0; d--) {
		index[d] = i % t->dim[d];
		i /= t->dim[d];
	}
	return jm_layout_offset(t, &t->layout, index);
}

/* The only op that knows layouts: element by index. */
void jm_ref_cast(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0];
	int64_t count = jm_tensor_count(y);

	(void)in;
	(void)out;
	if (y->layout.rank && !jm_node_adds(n, 0))
		memset(y->data, 0, y->bytes);
	for (int64_t i = 0; i < count; i++)
		put(n, place_of(y, i), get(x, place_of(x, i)));
}
