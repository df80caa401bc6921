/* SPDX-License-Identifier: Apache-2.0 */
/* Global norm, AdamW (Loshchilov and Hutter, arXiv 1711.05101), Adam and SGD over flat slabs. */
#include "ref_kernels.h"

#include <math.h>
#include <string.h>

#include "engine/graph/rng.h"

static double get(const struct jm_tensor *t, int64_t i)
{
	return jm_element_get(t->type, t->data, i);
}

static void set(const struct jm_tensor *t, int64_t i, double value)
{
	jm_element_set(t->type, t->data, i, value);
}

void jm_ref_norm(const struct jm_node *n, double *const *in, double *const *out)
{
	double sum = 0;

	(void)in;
	(void)out;
	for (int k = 0; k < n->n_in; k++)
		for (int64_t i = 0; n->in[k] && i < jm_tensor_count(n->in[k]); i++)
			sum += get(n->in[k], i) * get(n->in[k], i);
	set(n->out[0], 0, sqrt(sum) + (jm_node_adds(n, 0) ? get(n->out[0], 0) : 0));
}

/* Stores a result of an update; bf16 is rounded stochastically. */
static void set_result(const struct jm_node *n, int which, int64_t i, double value)
{
	int64_t k = i + (n->op == JM_OP_SGD ? n->attr.sgd.first : n->attr.adamw.first);
	const struct jm_tensor *t = n->out[which], *now = n->in[2];
	float x = (float)value;
	uint64_t random;
	uint32_t bits;

	if (t->type != JM_BF16 || !isfinite(x)) {
		set(t, i, value);
		return;
	}
	random = jm_rng(jm_rng(0, (uint64_t)get(now, jm_tensor_count(now) - 1)), (uint64_t)k / 2);
	memcpy(&bits, &x, sizeof(bits));
	bits += jm_rng_rounding(random, (uint64_t)k, which);
	((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
}

/* The factor of the gradient; NaN: the norm is not finite, and the update is skipped. */
static double clip_factor(const struct jm_node *n, double clip)
{
	double norm = n->in[1] ? get(n->in[1], 0) : 0;
	double unscale = n->in[3] ? get(n->in[3], 1) : 1;

	if (!isfinite(norm))
		return NAN;
	return unscale * (n->in[1] && clip > 0 ? fmin(1, clip / (norm * unscale + 1e-6)) : 1);
}

static void copy(const struct jm_tensor *p, int64_t first, const struct jm_tensor *to)
{
	for (int64_t i = 0; i < jm_tensor_count(to); i++)
		set(to, i, get(p, first + i));
}

/* coupled: weight decay is added to the gradient (Adam); else it scales the parameter directly
 * (AdamW). */
static void adam(const struct jm_node *n, bool coupled)
{
	double beta1 = n->attr.adamw.beta1, beta2 = n->attr.adamw.beta2;
	double factor = clip_factor(n, n->attr.adamw.clip);
	double lr = get(n->in[2], 0), bias1 = get(n->in[2], 1), bias2 = get(n->in[2], 2);

	for (int64_t i = 0; !isnan(factor) && i < jm_tensor_count(n->in[0]); i++) {
		double g = get(n->in[0], i) * factor, p = get(n->out[0], i), m, v;
		double decay = i < n->attr.adamw.n_decay ? n->attr.adamw.weight_decay : 0;

		if (coupled)
			g += decay * p;
		else
			p -= lr * decay * p;
		m = beta1 * get(n->out[1], i) + (1 - beta1) * g;
		v = beta2 * get(n->out[2], i) + (1 - beta2) * g * g;
		set_result(n, 0, i, p - lr / bias1 * m / (sqrt(v / bias2) + n->attr.adamw.eps));
		set_result(n, 1, i, m);
		set_result(n, 2, i, v);
	}
	if (n->out[3] && !isnan(factor))
		copy(n->out[0], n->attr.adamw.copy_first, n->out[3]);
}

void jm_ref_adamw(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	adam(n, false);
}

void jm_ref_adam(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	adam(n, true);
}

void jm_ref_sgd(const struct jm_node *n, double *const *in, double *const *out)
{
	double momentum = n->attr.sgd.momentum, lr = get(n->in[2], 0);
	double factor = clip_factor(n, n->attr.sgd.clip);

	(void)in;
	(void)out;
	for (int64_t i = 0; !isnan(factor) && i < jm_tensor_count(n->in[0]); i++) {
		double g = get(n->in[0], i) * factor, p = get(n->out[0], i), m;

		if (i < n->attr.sgd.n_decay)
			g += n->attr.sgd.weight_decay * p;
		m = momentum * get(n->out[1], i) + g;
		set_result(n, 0, i, p - lr * (n->attr.sgd.nesterov ? g + momentum * m : m));
		set_result(n, 1, i, m);
	}
}

void jm_ref_average(const struct jm_node *n, double *const *in, double *const *out)
{
	double weight = get(n->in[1], n->attr.average.at);

	(void)in;
	(void)out;
	if (weight != 1 && n->in[2] && !isfinite(get(n->in[2], 0)))
		return;
	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		double p = get(n->in[0], i), e = get(n->out[0], i);

		set(n->out[0], i, weight == 1 ? p : e + weight * (p - e));
	}
}
