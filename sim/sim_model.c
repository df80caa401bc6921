/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the simulated GPU, without state. */
#include "sim_model.h"
#include "base/option.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKING_SHIFT 16 /* of the number of working GPUs in the word of a load */

static const struct jm_sim_gpu *find_gpu(const char *name, size_t length)
{
	for (const struct jm_sim_gpu *gpu = jm_sim_gpus; gpu->name; gpu++)
		if (strlen(gpu->name) == length && !memcmp(gpu->name, name, length))
			return gpu;
	return NULL;
}

void jm_sim_names_text(char *out, size_t size)
{
	int used = snprintf(out, size, "1 to %d of", JM_SIM_GPUS_MAX);

	for (const struct jm_sim_gpu *gpu = jm_sim_gpus; gpu->name && (size_t)used < size; gpu++)
		used += snprintf(out + used, size - (size_t)used, "%s %s",
			gpu == jm_sim_gpus ? "" : ",", gpu->name);
	if ((size_t)used < size)
		snprintf(out + used, size - (size_t)used, ", as in sim:%s", JM_SIM_DEFAULT);
}

static int unknown_node(const char *text, struct jm_err *err)
{
	char all[128];

	jm_sim_names_text(all, sizeof(all));
	return jm_err_set(err, JM_EUSAGE,
		find_gpu(text, strlen(text))
			? "The simulated node '%s' lacks its number of GPUs; there are nodes of %s."
			: "There is no simulated node '%s'; there are nodes of %s.",
		text, all);
}

int jm_sim_name_parse(const char *text, struct jm_sim_name *ret, struct jm_err *err)
{
	struct jm_sim_name name = {0};
	const char *x;

	if (!*text)
		text = JM_SIM_DEFAULT;
	x = strrchr(text, 'x');
	if (!x || x[1] < '1' || x[1] > '0' + JM_SIM_GPUS_MAX || x[2])
		return unknown_node(text, err);
	name.gpu = find_gpu(text, (size_t)(x - text));
	if (!name.gpu)
		return unknown_node(text, err);
	name.n = x[1] - '0';
	snprintf(name.text, sizeof(name.text), "%s", text);
	*ret = name;
	return 0;
}

int jm_sim_response_find(const struct jm_sim_gpu *gpu, const char *name, struct jm_err *err)
{
	const char *names[16], *near;
	int n = 0;

	for (; n < gpu->n_responses && n < 16; n++) {
		if (!strcmp(gpu->response[n].name, name))
			return n;
		names[n] = gpu->response[n].name;
	}
	near = jm_did_you_mean(name, names, (size_t)n);
	return jm_err_set(err, JM_EUSAGE,
		"The simulated %s has no response '%s'; did you mean '%s'?", gpu->name, name,
		near ? near : names[0]);
}

uint64_t jm_sim_load_word(const struct jm_sim_load *load)
{
	return (uint64_t)load->response | (uint64_t)load->working << WORKING_SHIFT;
}

struct jm_sim_load jm_sim_load_of(const struct jm_sim_name *node, uint64_t word, uint64_t seed)
{
	uint64_t working = word >> WORKING_SHIFT, response = word & ((1 << WORKING_SHIFT) - 1);

	if (response >= (uint64_t)node->gpu->n_responses || working > (uint64_t)node->n)
		return (struct jm_sim_load){.response = JM_SIM_IDLE};
	return (struct jm_sim_load){
		.response = (int)response, .working = (int)working, .seed = seed};
}

double jm_sim_held_watts(const struct jm_sim_gpu *gpu, double cap)
{
	if (cap >= gpu->honoured_from_watts)
		return cap;
	return cap + gpu->violated_share * (gpu->honoured_from_watts - cap);
}

double jm_sim_busy_watts(
	const struct jm_sim_gpu *gpu, const struct jm_sim_response *response, double cap)
{
	return fmin(jm_sim_held_watts(gpu, cap), response->demand_watts);
}

double jm_sim_limited_watts(const struct jm_sim_gpu *gpu, const struct jm_sim_response *response,
	const struct jm_sim_limits *limits)
{
	double share = fmin(limits->clock_hz / gpu->clock_max_hz, 1);
	double above = response->demand_watts - gpu->idle_watts;

	return fmin(jm_sim_busy_watts(gpu, response, limits->cap_watts),
		gpu->idle_watts + above * pow(share, 1 / gpu->clock_exponent));
}

void jm_sim_rate_curve(const struct jm_sim_gpu *gpu, const struct jm_sim_response *response,
	struct jm_sim_curve *ret)
{
	double watts[JM_SIM_POINTS_MAX];

	for (int i = 0; i < response->n; i++)
		watts[i] = jm_sim_busy_watts(gpu, response, response->cap[i]);
	jm_sim_curve_init(ret, response->n, watts, response->rate);
}

double jm_sim_rate_at(
	const struct jm_sim_gpu *gpu, const struct jm_sim_curve *rate, double busy_watts)
{
	double least = rate->x[0];
	double share = (busy_watts - gpu->idle_watts) / (least - gpu->idle_watts);

	return jm_sim_curve_at(rate, busy_watts) *
	       (busy_watts < least ? pow(fmax(share, 0), gpu->clock_exponent) : 1);
}

double jm_sim_joint_rate(const struct jm_sim_response *response, double slowest, int n)
{
	return 1 / (1 / slowest + response->exchange_s[n]);
}

double jm_sim_common_rate(const struct jm_sim_gpu *gpu, const struct jm_sim_response *response,
	const struct jm_sim_curve *rate, const struct jm_sim_limits *limits, int n)
{
	double slowest = INFINITY;

	for (int i = 0; i < n; i++)
		slowest = fmin(slowest,
			jm_sim_rate_at(gpu, rate, jm_sim_limited_watts(gpu, response, &limits[i])));
	return jm_sim_joint_rate(response, slowest, n);
}

/* The finaliser of SplitMix64 (Steele, Lea, Flood: OOPSLA 2014). */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint64_t jm_sim_hash(uint64_t seed, uint64_t stream, uint64_t index)
{
	const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);

	return mix(mix(mix(seed + golden) + stream * golden) + index * golden);
}

double jm_sim_noise(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint64_t bits = jm_sim_hash(seed, stream, index);
	double sum = 0;

	for (int i = 0; i < 4; i++, bits >>= 16)
		sum += (double)(bits & 0xffff) + 0.5;
	return (sum / 65536 - 2) * sqrt(3);
}
