/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU's driver can be asked for as a signal, and whether it answers. */
#include "nvml_probe.h"
#include "base/clock.h"
#include "nvml_get.h"
#include "sources/parse_reading.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In order of preference: the first row of a quantity that answers is taken. */
const struct jm_nvml_probe jm_nvml_gpu_probes[JM_NVML_GPU_PROBES] = {
	{JM_Q_ENERGY, JM_NVML_ENERGY, JM_NVML_SCOPE_GPU, false, 1e-3, NULL, 0, 0},
	{JM_Q_POWER, JM_NVML_POWER_INSTANT, JM_NVML_SCOPE_GPU, false, 1e-3, NULL, 0, 0},
	{JM_Q_POWER_AVERAGE, JM_NVML_POWER_AVERAGE, JM_NVML_SCOPE_GPU, false, 1e-3, NULL, 0, 0},
	{JM_Q_LIMIT, JM_NVML_LIMIT_CURRENT, JM_NVML_SCOPE_GPU, true, 1e-3, NULL, 0, 0},
	{JM_Q_LIMIT_REQUESTED, JM_NVML_LIMIT_REQUESTED, JM_NVML_SCOPE_GPU, true, 1e-3, NULL, 0, 0},
	{JM_Q_ENERGY, 0, 0, false, 1, jm_nvml_get_energy, 0, 0},
	{JM_Q_POWER, 0, 0, false, 1, jm_nvml_get_power, 0, 0},
	{JM_Q_POWER_AVERAGE, 0, 0, false, 1, jm_nvml_get_power, 0, 0},
	{JM_Q_LIMIT, 0, 0, true, 1, jm_nvml_get_limit_enforced, 0, 0},
	{JM_Q_LIMIT_REQUESTED, 0, 0, true, 1, jm_nvml_get_limit, 0, 0},
	{JM_Q_CLOCK, 0, 0, true, 1, jm_nvml_get_clock, 0, 0},
	{JM_Q_MEMORY_CLOCK, 0, 0, true, 1, jm_nvml_get_memory_clock, 0, 0},
	{JM_Q_TEMPERATURE, 0, 0, true, 1, jm_nvml_get_temperature, 0, 0},
	{JM_Q_UTILISATION, 0, 0, true, 1, jm_nvml_get_utilisation, 0, 0},
	{JM_Q_POWER_STATE, 0, 0, true, 1, jm_nvml_get_power_state, 0, 0},
	{JM_Q_MEMORY_USED, 0, 0, true, 1, jm_nvml_get_memory_used, 0, 0},
	{JM_Q_THROTTLE, 0, 0, true, 1, jm_nvml_get_throttle, 0, 0},
};

const struct jm_nvml_probe jm_nvml_memory_probes[JM_NVML_MEMORY_PROBES] = {
	{JM_Q_POWER, JM_NVML_POWER_INSTANT, JM_NVML_SCOPE_MEMORY, false, 1e-3, NULL, 0, 0},
	{JM_Q_POWER_AVERAGE, JM_NVML_POWER_AVERAGE, JM_NVML_SCOPE_MEMORY, false, 1e-3, NULL, 0, 0},
};

const struct jm_nvml_probe jm_nvml_module_probes[JM_NVML_MODULE_PROBES] = {
	{JM_Q_POWER, JM_NVML_POWER_INSTANT, JM_NVML_SCOPE_MODULE, false, 1e-3, NULL, 0, 0},
	{JM_Q_POWER_AVERAGE, JM_NVML_POWER_AVERAGE, JM_NVML_SCOPE_MODULE, false, 1e-3, NULL, 0, 0},
};

#define TIME(quantity, field, from, before)                                                        \
	{                                                                                          \
		quantity, field, 0, true, 1e-9, NULL, from, before                                 \
	}
const struct jm_nvml_probe jm_nvml_time_probes[JM_NVML_TIME_PROBES] = {
	TIME(JM_Q_POWER_CAP_TIME, JM_NVML_TIME_POWER_CAP, 0, 0),
	TIME(JM_Q_THERMAL_TIME, JM_NVML_TIME_THERMAL, 0, 0),
	TIME(JM_Q_HW_THERMAL_TIME, JM_NVML_TIME_HW_THERMAL, 580, 0),
	TIME(JM_Q_HW_THERMAL_TIME, JM_NVML_TIME_HW_THERMAL_575, 575, 590),
	TIME(JM_Q_POWER_BRAKE_TIME, JM_NVML_TIME_POWER_BRAKE, 580, 0),
	TIME(JM_Q_POWER_BRAKE_TIME, JM_NVML_TIME_POWER_BRAKE_575, 575, 590),
	TIME(JM_Q_SYNC_BOOST_TIME, JM_NVML_TIME_SYNC_BOOST, 0, 0),
	TIME(JM_Q_BOARD_LIMIT_TIME, JM_NVML_TIME_BOARD_LIMIT, 0, 0),
	TIME(JM_Q_RELIABILITY_TIME, JM_NVML_TIME_RELIABILITY, 0, 0),
};

static bool is_time(const struct jm_nvml_probe *p)
{
	return p->quantity != JM_Q_ENERGY && jm_quantity_is_counter(p->quantity);
}

static bool has_that_id(const struct jm_nvml *nvml, const struct jm_nvml_probe *p)
{
	long driver = strtol(nvml->driver, NULL, 10);

	return (!p->from_driver || driver >= p->from_driver) &&
	       (!p->before_driver || driver < p->before_driver);
}

static bool is_power(enum jm_quantity quantity)
{
	return quantity == JM_Q_POWER || quantity == JM_Q_POWER_AVERAGE;
}

/* Is nvmlDeviceGetPowerUsage of a GPU the mean of the last second? (nvml.h: Ampere and newer,
 * not GA100) */
static bool usage_is_average(const struct jm_nvml_gpu *g)
{
	return g->architecture >= JM_NVML_AMPERE && g->capability != 80;
}

double jm_nvml_plausible(enum jm_quantity quantity, double value)
{
	bool possible = value > 0 && value <= JM_MAX_DEVICE_WATTS;

	return is_power(quantity) && !possible ? NAN : value;
}

bool jm_nvml_answers(
	const struct jm_nvml *nvml, const struct jm_nvml_gpu *g, const struct jm_nvml_probe *p)
{
	struct jm_nvml_value v = {.field = p->field, .scope = p->scope, .rc = JM_NVML_UNKNOWN};

	/* The counter of GH200 covers the whole module, not only the GPU (ml-energy/zeus issue
	 * 172) */
	if (p->quantity == JM_Q_ENERGY && strstr(g->name, "GH200"))
		return false;
	if (!p->field) {
		if (p->call == jm_nvml_get_power &&
			(p->quantity == JM_Q_POWER_AVERAGE) != usage_is_average(g))
			return false;
		return !isnan(p->call(nvml, g->handle));
	}
	if (!has_that_id(nvml, p) || !nvml->fields || nvml->fields(g->handle, 1, &v))
		return false;
	/* of another type it is another field, whatever the version says */
	if (is_time(p) && v.type != JM_NVML_U64)
		return false;
	/* boards without a sensor for it answer 0 for their memory; for the GPU it is a passing
	 * zero */
	if (p->scope == JM_NVML_SCOPE_MEMORY || p->scope == JM_NVML_SCOPE_MODULE)
		return jm_nvml_number(&v) > 0;
	return !isnan(jm_nvml_number(&v));
}

struct jm_signal jm_nvml_signal(const struct jm_nvml_sensor *sensor, enum jm_quantity quantity)
{
	struct jm_signal signal = {.quantity = quantity, .window_ns = -1, .accuracy = NAN};

	switch (quantity) {
	case JM_Q_ENERGY:
		signal.step = 1e-3;
		signal.refresh_ns = sensor->counter_ms * JM_MILLISECOND;
		signal.window_ns = 0;
		signal.accuracy = sensor->accuracy;
		break;
	case JM_Q_POWER:
	case JM_Q_POWER_AVERAGE:
		signal.step = 1e-3;
		signal.refresh_ns = sensor->refresh_ms * JM_MILLISECOND;
		signal.window_ns = quantity == JM_Q_POWER ? sensor->window_ms : sensor->average_ms;
		if (signal.window_ns > 0)
			signal.window_ns *= JM_MILLISECOND;
		signal.accuracy = sensor->accuracy;
		break;
	case JM_Q_CLOCK:
	case JM_Q_MEMORY_CLOCK:
		signal.step = 1e6;
		break;
	case JM_Q_TEMPERATURE:
	case JM_Q_POWER_STATE:
		signal.step = 1;
		break;
	case JM_Q_UTILISATION:
		signal.step = 0.01;
		break;
	case JM_Q_SM_ACTIVITY:
	case JM_Q_TENSOR_ACTIVITY:
	case JM_Q_DRAM_ACTIVITY:
	case JM_Q_NVLINK_RECEIVED:
	case JM_Q_NVLINK_SENT:
		signal.refresh_ns = signal.window_ns = JM_NVML_ACTIVITY_NS;
		break;
	default:
		break;
	}
	return signal;
}
