/* SPDX-License-Identifier: Apache-2.0 */
/* Activity samples (GPM) of the fake NVML: a sample is a point in time, a metric the mean between
 * two samples. */
#include "nvml_fake.h"

#include <math.h>
#include <stdlib.h>

API int nvmlGpmQueryDeviceSupport(jm_nvml_device d, struct jm_nvml_gpm_support *support)
{
	ENTER(d);
	if (support->version != JM_NVML_GPM_VERSION)
		return JM_NVML_INVALID_ARGUMENT;
	support->supported = fake.activity;
	return 0;
}

API int nvmlGpmSampleAlloc(jm_nvml_sample *sample)
{
	*sample = calloc(1, sizeof(**sample));
	return *sample ? 0 : JM_NVML_UNKNOWN;
}

API int nvmlGpmSampleFree(jm_nvml_sample sample)
{
	free(sample);
	return 0;
}

API int nvmlGpmSampleGet(jm_nvml_device d, jm_nvml_sample sample)
{
	ENTER(d);
	sample->gpu = d->index;
	sample->t = fake_now();
	return 0;
}

static double metric_of(unsigned int id, double share)
{
	switch (id) {
	case JM_NVML_GPM_SM:
		return 100 * share;
	case JM_NVML_GPM_TENSOR:
		return 50 * share;
	case JM_NVML_GPM_DRAM:
		return 100 * share / 3;
	case JM_NVML_GPM_NVLINK_RECEIVED:
		return fake.nvlink_mib > 0 ? fake.nvlink_mib : NAN;
	case JM_NVML_GPM_NVLINK_SENT:
		return fake.nvlink_mib > 0 ? fake.nvlink_mib / 2 : NAN;
	default:
		return NAN;
	}
}

API int nvmlGpmMetricsGet(struct jm_nvml_gpm_get *get)
{
	const struct nvml_gpm_sample *a = get->from, *b = get->to;
	double share;

	if (get->version != JM_NVML_GPM_VERSION || a->gpu != b->gpu || b->t < a->t + 0.1)
		return JM_NVML_INVALID_ARGUMENT;
	share = fake_mean_watts(a->gpu, b->t, b->t - a->t) / fake.max_w;
	for (unsigned int i = 0; i < get->n; i++) {
		get->metric[i].value = b->instance && get->metric[i].id == JM_NVML_GPM_SM
					       ? b->sm
					       : metric_of(get->metric[i].id, share);
		get->metric[i].rc = isnan(get->metric[i].value) ? JM_NVML_NOT_SUPPORTED : 0;
	}
	return 0;
}
