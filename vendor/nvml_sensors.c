/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing of NVIDIA's power sensors, by chip. Refresh, window and the 5 % between boards: Yang et al.,
 * SC'24, arXiv 2312.02741, and its table of results; the counter's 100 ms: the ml.energy blog.
 */
#include "nvml.h"

#include <math.h>
#include <string.h>

static const struct jm_nvml_sensor sensors[] = {
	{JM_NVML_HOPPER, 0, "GH200", 100, 20, 1000, 100, 0.05},
	{JM_NVML_HOPPER, 0, "H100", 100, 25, 1000, 100, 0.05},
	{JM_NVML_ADA, 0, "", 100, 100, 1000, 100, 0.05},
	{JM_NVML_AMPERE, 80, "", 100, 25, -1, 100, 0.05},
	{JM_NVML_AMPERE, 0, "", 100, 100, 1000, 100, 0.05},
	{JM_NVML_TURING, 0, "", 100, 100, -1, 0, 0.05}, {JM_NVML_VOLTA, 0, "", 20, 10, -1, 0, 0.05},
	{JM_NVML_PASCAL, 0, "", 20, 10, -1, 0, 0.05},
	{0, 0, "", 0, -1, -1, 0, NAN}, /* not characterised: H200, Blackwell, older than Pascal */
};

const struct jm_nvml_sensor *jm_nvml_sensor_of(const struct jm_nvml_gpu *gpu)
{
	const struct jm_nvml_sensor *s = sensors;

	while (s->architecture &&
		(s->architecture != gpu->architecture || !strstr(gpu->name, s->name) ||
			(s->capability && s->capability != gpu->capability)))
		s++;
	return s;
}
