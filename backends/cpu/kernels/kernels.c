/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled sets of kernels, and the choice of the set for this processor. */
#include "kernels.h"

#define DECLARE(target, wide)                                                                      \
	extern const struct cpu_gemms cpu_gemms_##target;                                          \
	extern const struct cpu_attentions cpu_attentions_##target;                                \
	extern const struct cpu_norms cpu_norms_##target;                                          \
	extern const struct cpu_pointwise cpu_pointwise_##target;                                  \
	extern const struct cpu_rows cpu_rows_##target;                                            \
	extern const struct cpu_losses cpu_losses_##target;                                        \
	extern const struct cpu_optims cpu_optims_##target;                                        \
	extern const struct cpu_acts cpu_acts_##target;                                            \
	extern const struct cpu_images cpu_images_##target, cpu_images_last_##target;              \
	extern const struct cpu_pools cpu_pools_##target;                                          \
	extern const struct cpu_groupnorms cpu_groupnorms_##target;                                \
	extern const struct cpu_sequences cpu_sequences_##target;                                  \
	extern const struct cpu_pages cpu_pages_##target;                                          \
	extern const struct cpu_spectrals cpu_spectrals_##target;                                  \
	extern const struct cpu_few_rows cpu_few_rows_##target;                                    \
	extern const struct cpu_thin cpu_thin_##target;                                            \
	static const struct cpu_kernels kernels_##target = {#target, wide, &cpu_gemms_##target,    \
		&cpu_attentions_##target, &cpu_norms_##target, &cpu_pointwise_##target,            \
		&cpu_rows_##target, &cpu_losses_##target, &cpu_optims_##target,                    \
		&cpu_acts_##target, &cpu_images_##target, &cpu_images_last_##target,               \
		&cpu_pools_##target, &cpu_groupnorms_##target, &cpu_sequences_##target,            \
		&cpu_pages_##target, &cpu_spectrals_##target, &cpu_few_rows_##target,              \
		&cpu_thin_##target}

DECLARE(base, false);
#ifdef __x86_64__
DECLARE(avx2, true);
DECLARE(avx512, true);

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

const struct cpu_kernels *cpu_kernels_get(int n)
{
	const struct cpu_kernels *set[4] = {0};
	int count = 0;

#ifdef __x86_64__
	if (has_avx512())
		set[count++] = &kernels_avx512;
	if (has_avx2())
		set[count++] = &kernels_avx2;
#endif
	set[count++] = &kernels_base;
	return n < count ? set[n] : NULL;
}
