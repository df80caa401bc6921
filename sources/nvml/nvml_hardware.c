/* SPDX-License-Identifier: Apache-2.0 */
/* What is fixed of an NVIDIA GPU: what its driver tells, and the peaks that follow from its compute
 * capability. */
#include "nvml_hardware.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/*
 * Per clock and multiprocessor: cores in f32, and dense operations by type (a multiply-add is two);
 * 0 = it has none. Cores, f64 and f32: CUDA C++ Programming Guide, "Arithmetic Instructions".
 * Tensor cores, with sums in f32: NVIDIA's architecture papers Volta GV100 (2017), Turing TU102/104
 * (2018), A100 (2020), GA102 (2020), Ada (2022), H100 (2022), RTX Blackwell (2025), and for 10.0
 * the data sheet of HGX B200 (2025). On boards named GeForce, sums in f32 run at half the rate (the
 * same papers).
 */
static const struct chip {
	int capability;
	int cores, f64, f32, tf32, f16, bf16, f8, i8;
} chips[] = {
	{70, 64, 64, 128, 0, 1024, 0, 0, 0},
	{75, 64, 4, 128, 0, 1024, 0, 0, 2048},
	{80, 64, 128, 128, 1024, 2048, 2048, 0, 4096},
	{86, 128, 4, 256, 512, 1024, 1024, 0, 2048},
	{89, 128, 4, 256, 512, 1024, 1024, 2048, 2048},
	{90, 128, 256, 256, 2048, 4096, 4096, 8192, 8192},
	{100, 128, 128, 256, 4096, 8192, 8192, 16384, 16384},
	{120, 128, 4, 256, 512, 1024, 1024, 2048, 2048},
};

static void set_peaks(const struct jm_nvml_gpu *gpu, double cores, struct jm_hardware *h)
{
	double per_second, floats = strstr(gpu->name, "GeForce") ? 0.5 : 1;
	const struct chip *c = NULL;

	for (size_t i = 0; i < sizeof(chips) / sizeof(chips[0]); i++)
		if (chips[i].capability == gpu->capability)
			c = &chips[i];
	if (!c || !(cores > 0))
		return;
	h->value[JM_HW_SMS] = cores / c->cores;
	per_second = h->value[JM_HW_SMS] * h->value[JM_HW_SM_CLOCK_MAX];
	h->value[JM_HW_PEAK_F64] = per_second * c->f64;
	h->value[JM_HW_PEAK_F32] = per_second * c->f32;
	h->value[JM_HW_PEAK_TF32] = per_second * c->tf32 * floats;
	h->value[JM_HW_PEAK_F16] = per_second * c->f16 * floats;
	h->value[JM_HW_PEAK_BF16] = per_second * c->bf16 * floats;
	h->value[JM_HW_PEAK_F8] = per_second * c->f8 * floats;
	h->value[JM_HW_PEAK_I8] = per_second * c->i8;
}

/* A number of a call whose result is an unsigned int; 0 = unknown. */
static double number_of(
	int (*call)(jm_nvml_device, unsigned int *), jm_nvml_device device, double scale)
{
	unsigned int value = 0;

	return !call || call(device, &value) || value == UINT32_MAX ? 0 : value * scale;
}

static double clock_of(const struct jm_nvml *nvml, jm_nvml_device device, enum jm_nvml_clock type)
{
	unsigned int mhz = 0;

	return !nvml->clock_max || nvml->clock_max(device, (int)type, &mhz) || mhz == UINT32_MAX
		       ? 0
		       : mhz * 1e6;
}

void jm_nvml_hardware(
	const struct jm_nvml *nvml, const struct jm_nvml_gpu *gpu, struct jm_hardware *ret)
{
	double bus_bytes = number_of(nvml->bus_width, gpu->handle, 1 / 8.0);
	struct jm_nvml_memory memory = {0, 0, 0};
	unsigned int min_mw = 0, max_mw = 0;

	*ret = (struct jm_hardware){{0}};
	ret->value[JM_HW_CAPABILITY] = gpu->capability / 10.0;
	if (nvml->memory && !nvml->memory(gpu->handle, &memory))
		ret->value[JM_HW_MEMORY] = (double)memory.total;
	if (nvml->limit_range && !nvml->limit_range(gpu->handle, &min_mw, &max_mw)) {
		ret->value[JM_HW_POWER_MIN] = min_mw * 1e-3;
		ret->value[JM_HW_POWER_MAX] = max_mw * 1e-3;
	}
	ret->value[JM_HW_POWER_DEFAULT] = number_of(nvml->limit_default, gpu->handle, 1e-3);
	ret->value[JM_HW_SM_CLOCK_MAX] = clock_of(nvml, gpu->handle, JM_NVML_CLOCK_SM);
	ret->value[JM_HW_MEMORY_CLOCK_MAX] = clock_of(nvml, gpu->handle, JM_NVML_CLOCK_MEMORY);
	ret->value[JM_HW_MEMORY_RATE] = 2 * bus_bytes * ret->value[JM_HW_MEMORY_CLOCK_MAX];
	set_peaks(gpu, number_of(nvml->cores, gpu->handle, 1), ret);
}
