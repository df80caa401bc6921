/* SPDX-License-Identifier: Apache-2.0 */
/* Rough time of a node, to compare choices with each other. */
#include <math.h>

#include "layout.h"
#include "backends/cpu/device/peak.h"
#include "seconds.h"

/* Bytes per second and thread that batch norm reached on two cores of a Sapphire Rapids. */
#define MEMORY_RATE 1.2e10
#define FLOP_SHARE  0.85 /* share of the peak that products reach */

/* FLOP/s of f32 multiply-adds on a core: Sapphire Rapids, which has tiles, Zen 4, and a guess for
 * kernels without AVX. Not measured when the device is opened: see measure of backend.c. */
#define RATE_TILES 1.77e11
#define RATE_WIDE  1.18e11
#define RATE_BASE  2e10

/*
 * The FLOP/s of matrix tiles divided by those of f32 multiply-adds that products, convolutions and
 * their gradients of weights reached on two cores of a Sapphire Rapids with oneDNN 2.6, against 354
 * GFLOP/s.
 */
static const double tiles[] = {[CPU_PRODUCT] = 3.3, [CPU_CONV] = 2.2, [CPU_CONV_WGRAD] = 1.1};

static double core_rate(const struct cpu_dev *dev)
{
	if (!dev->kernels->wide)
		return RATE_BASE;
	return cpu_has_tiles() ? RATE_TILES : RATE_WIDE;
}

double cpu_seconds(const struct cpu_dev *dev, const struct jm_node *node, enum cpu_how how)
{
	double peak = dev->threads * core_rate(dev);
	double compute = FLOP_SHARE * peak, memory = node->bytes / (MEMORY_RATE * dev->threads);
	bool bf16 = node->in[0] && node->in[0]->type == JM_BF16 && dev->fast_bf16;

	if (bf16 && cpu_has_tiles())
		compute = tiles[how] * peak;
	else if (bf16)
		compute *= 2; /* as on Zen 4, see cpu_bf16_is_fast */
	return fmax(node->flops_executed / compute, memory);
}

double cpu_copy_seconds(const struct cpu_dev *dev, const struct jm_tensor *t)
{
	return 2 * (double)t->bytes / (MEMORY_RATE * dev->threads);
}
