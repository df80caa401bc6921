/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of batch norm for one channel that follow the sums, for every layout. */
#ifndef JM_CPU_BATCHNORM_H
#define JM_CPU_BATCHNORM_H

#include <math.h>

#include "image.h"

static inline void jm_bn_update(float *running, int64_t c, double value, double momentum)
{
	if (running)
		running[c] += (float)(momentum * (value - (double)running[c]));
}

/* Computes rstd and the running statistics from mean and var of channel c. */
static inline void jm_bn_finalize(const struct cpu_bn *p, int64_t c)
{
	double var = (double)p->var[c], n = (double)p->count;

	p->rstd[c] = (float)(1 / sqrt(var + p->eps));
	jm_bn_update(p->running_mean, c, (double)p->mean[c], p->momentum);
	jm_bn_update(p->running_var, c, n > 1 ? var * n / (n - 1) : var, p->momentum);
}

/* sum, square: the sums of x - shift and of its square over the n elements of channel c. */
static inline void jm_bn_finish(
	const struct cpu_bn *p, int64_t c, double n, double shift, double sum, double square)
{
	double off = sum / n, var = square / n - off * off;

	p->mean[c] = (float)(off + shift);
	p->var[c] = (float)(var < 0 ? 0 : var); /* fmax would lose a NaN */
	if (p->rstd)
		jm_bn_finalize(p, c);
}

/* sum, product: the sums of e and of e (x - mean) over channel c. */
static inline void jm_bn_grad_finish(
	const struct cpu_bn_grad *p, int64_t c, double sum, double product)
{
	float dgamma = (float)(product * (double)p->rstd[c]), dbeta = (float)sum;

	p->dgamma[c] = dgamma + (p->accumulate & JM_ADD_NORM_DGAMMA ? p->dgamma[c] : 0);
	p->dbeta[c] = dbeta + (p->accumulate & JM_ADD_NORM_DBETA ? p->dbeta[c] : 0);
}

#endif
