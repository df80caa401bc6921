/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the parts of a GPU were between two samples of its counters (GPM: Hopper and newer). */
#include "nvml_activity.h"

#include <math.h>

#define MIB 1048576.0

const struct jm_nvml_probe jm_nvml_activities[JM_NVML_ACTIVITIES] = {
	{JM_Q_SM_ACTIVITY, JM_NVML_GPM_SM, 0, true, 0.01, NULL, 0, 0},
	{JM_Q_TENSOR_ACTIVITY, JM_NVML_GPM_TENSOR, 0, true, 0.01, NULL, 0, 0},
	{JM_Q_DRAM_ACTIVITY, JM_NVML_GPM_DRAM, 0, true, 0.01, NULL, 0, 0},
	{JM_Q_NVLINK_RECEIVED, JM_NVML_GPM_NVLINK_RECEIVED, 0, true, MIB, NULL, 0, 0},
	{JM_Q_NVLINK_SENT, JM_NVML_GPM_NVLINK_SENT, 0, true, MIB, NULL, 0, 0},
};

static bool has_calls(const struct jm_nvml *nvml)
{
	return nvml->gpm_support && nvml->gpm_alloc && nvml->gpm_free && nvml->gpm_sample &&
	       nvml->gpm_metrics;
}

bool jm_nvml_sampler_open(
	const struct jm_nvml *nvml, jm_nvml_device device, struct jm_nvml_sampler *ret)
{
	struct jm_nvml_gpm_support support = {.version = JM_NVML_GPM_VERSION};
	struct jm_nvml_sampler s = {.newest = 0};

	if (!has_calls(nvml) || nvml->gpm_support(device, &support) || !support.supported)
		return false;
	for (int i = 0; i < 2; i++) {
		if (nvml->gpm_alloc(&s.sample[i])) {
			s.sample[i] = NULL;
			jm_nvml_sampler_close(nvml, &s);
			return false;
		}
	}
	*ret = s;
	return true;
}

void jm_nvml_sampler_close(const struct jm_nvml *nvml, struct jm_nvml_sampler *s)
{
	for (int i = 0; i < 2; i++)
		if (s->sample[i])
			nvml->gpm_free(s->sample[i]);
	*s = (struct jm_nvml_sampler){0};
}

static int compare(const struct jm_nvml *nvml, const struct jm_nvml_sampler *s, double *ret)
{
	struct jm_nvml_gpm_get get = {
		.version = JM_NVML_GPM_VERSION,
		.n = JM_NVML_ACTIVITIES,
		.from = s->sample[!s->newest],
		.to = s->sample[s->newest],
	};
	int rc;

	for (int i = 0; i < JM_NVML_ACTIVITIES; i++)
		get.metric[i].id = jm_nvml_activities[i].field;
	rc = nvml->gpm_metrics(&get);
	for (int i = 0; i < JM_NVML_ACTIVITIES && !rc; i++)
		if (!get.metric[i].rc && get.metric[i].value >= 0)
			ret[i] = get.metric[i].value * jm_nvml_activities[i].scale;
	return rc;
}

int jm_nvml_sampler_read(const struct jm_nvml *nvml, jm_nvml_device device,
	struct jm_nvml_sampler *s, int64_t now, double *ret)
{
	bool first = !s->at;
	int rc;

	for (int i = 0; i < JM_NVML_ACTIVITIES; i++)
		ret[i] = NAN;
	s->newest = !s->newest;
	rc = nvml->gpm_sample(device, s->sample[s->newest]);
	s->at = rc ? 0 : now; /* after a failure there is nothing to compare with */
	return rc || first ? rc : compare(nvml, s, ret);
}
