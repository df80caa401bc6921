/* SPDX-License-Identifier: Apache-2.0 */
/* What the sensors of an NVIDIA GPU report, by which calls of the library, and what is known of
 * their timing. */
#ifndef JM_NVML_PROBE_H
#define JM_NVML_PROBE_H

#include "meter/meter.h"
#include "vendor/nvml.h"

/* What is known of a GPU's power sensor. */
struct jm_nvml_sensor {
	unsigned int architecture;
	int capability;		   /* 0 = any */
	const char *name;	   /* part of the GPU's name; "" = any */
	int refresh_ms, window_ms; /* instant power; 0 and -1 = unknown */
	int average_ms;		   /* window of the average; -1 = unknown */
	int counter_ms;		   /* the counter's step in time; 0 = unknown */
	double accuracy;	   /* relative; NAN = unknown */
};

/* Where a signal of a GPU comes from: a field, or a call of its own. */
struct jm_nvml_probe {
	enum jm_quantity quantity;
	unsigned int field, scope; /* field 0 = a call */
	bool slow;		   /* changes slowly */
	double scale;		   /* of a field: to SI */
	double (*call)(const struct jm_nvml *nvml, jm_nvml_device device);
	int from_driver, before_driver; /* major versions in which the field has that id; 0 = all */
};
/* In order of preference: the first row of a quantity that answers is taken. */
#define JM_NVML_GPU_PROBES    17
#define JM_NVML_MEMORY_PROBES 2
#define JM_NVML_MODULE_PROBES 2
#define JM_NVML_TIME_PROBES   9
extern const struct jm_nvml_probe jm_nvml_gpu_probes[JM_NVML_GPU_PROBES];
extern const struct jm_nvml_probe jm_nvml_memory_probes[JM_NVML_MEMORY_PROBES];
extern const struct jm_nvml_probe jm_nvml_module_probes[JM_NVML_MODULE_PROBES];
/* How long clocks were held back. */
extern const struct jm_nvml_probe jm_nvml_time_probes[JM_NVML_TIME_PROBES];

bool jm_nvml_answers(const struct jm_nvml *nvml, const struct jm_nvml_gpu *gpu,
	const struct jm_nvml_probe *probe);
/* No GPU draws 0 W: a zero means that the sensor has no value, and becomes NAN. */
double jm_nvml_plausible(enum jm_quantity quantity, double value);
/* A signal with what is known of its timing. */
struct jm_signal jm_nvml_signal(const struct jm_nvml_sensor *sensor, enum jm_quantity quantity);

/* ---- activity: shares of the time between two samples ---- */

#define JM_NVML_ACTIVITIES 5
/* Between two samples; the library asks for more than 100 ms. */
#define JM_NVML_ACTIVITY_NS 200000000LL

struct jm_nvml_sampler {
	jm_nvml_sample sample[2]; /* NULL = it has none */
	int newest;
	int64_t at; /* when the newest was taken; 0 = not yet */
};

#endif
