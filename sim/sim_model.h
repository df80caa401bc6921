/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a simulated GPU is: the figures of its data file (data/GPU.json, compiled in) and the few
 * rules that turn a cap and a response into power and throughput. No state; docs/simulation.md
 * explains it.
 */
#ifndef JM_SIM_MODEL_H
#define JM_SIM_MODEL_H

#include "joulemark.h"
#include "curve.h"

#define JM_SIM_GPUS_MAX 8
#define JM_SIM_DEFAULT	"h100x4"

/* Parts of a GPU that may have a power sensor of their own. */
enum jm_sim_part { JM_SIM_CORE, JM_SIM_IO, JM_SIM_MEMORY, JM_SIM_PARTS };

/* How one kind of work answers to a power cap on one kind of GPU. */
struct jm_sim_response {
	const char *name, *label, *unit, *source;
	const char *note;    /* an objection to the published figures; "" = none */
	double step_items;   /* of one step, per GPU */
	double demand_watts; /* what it draws when no cap binds */
	/* of the power above idle that goes to each part */
	double part_share[JM_SIM_PARTS];
	/* of one item on each of so many GPUs: what exchanging data adds, whatever the cap */
	double exchange_s[JM_SIM_GPUS_MAX + 1];
	int n;
	double cap[JM_SIM_POINTS_MAX];	/* W, as set in the paper */
	double rate[JM_SIM_POINTS_MAX]; /* items/s of one GPU, as published */
};

struct jm_sim_gpu {
	const char *name, *label, *source;
	double cap_min_watts, cap_max_watts, cap_step_watts;
	double honoured_from_watts; /* lower caps are accepted and violated; 0 = all are honoured */
	double violated_share;	    /* of the way from such a cap up to honoured_from_watts */
	double cap_default_watts;
	double memory_bytes;
	double idle_watts;
	double power_lag_s;
	double ambient_celsius;
	double thermal_resistance; /* K/W */
	double thermal_lag_s;
	double leakage_watts_per_kelvin;
	double clock_max_hz, clock_idle_hz, clock_exponent;
	double memory_clock_hz;
	const char *part_label[JM_SIM_PARTS]; /* NULL = this GPU has no sensor of it */
	double part_idle_watts[JM_SIM_PARTS];
	double part_share[JM_SIM_PARTS]; /* of responses without shares of their own */
	double sensor_refresh_s, sensor_window_s, sensor_average_s;
	double sensor_energy_step_joules, sensor_accuracy, sensor_noise;
	const struct jm_sim_response *response;
	int n_responses;
};

extern const struct jm_sim_gpu jm_sim_gpus[]; /* terminated by name NULL; generated */

/* A node's name, "h100x4": n GPUs of one kind. */
struct jm_sim_name {
	const struct jm_sim_gpu *gpu;
	int n;
	char text[24];
};

#define JM_SIM_IDLE (-1)

struct jm_sim_load {
	int response; /* index among the GPU's; JM_SIM_IDLE */
	int working;  /* GPUs, from the first one on; 0 = all. The others are idle */
	uint64_t seed;
};

/* As one word for the registers, and back: a word of another process is never an index out of
 * bounds. */
uint64_t jm_sim_load_word(const struct jm_sim_load *load);
struct jm_sim_load jm_sim_load_of(const struct jm_sim_name *node, uint64_t word, uint64_t seed);

/* "" = JM_SIM_DEFAULT. */
int jm_sim_name_parse(const char *text, struct jm_sim_name *ret, struct jm_err *err);
/* All names at once, for people: "1 to 8 of h100, h200, mi300x, as in sim:h100x4". */
void jm_sim_names_text(char *out, size_t size);
/* Index of the response among the GPU's, or an error with a 'did you mean'. */
int jm_sim_response_find(const struct jm_sim_gpu *gpu, const char *name, struct jm_err *err);

/* What a cap is in truth: the power that the GPU will not exceed. */
double jm_sim_held_watts(const struct jm_sim_gpu *gpu, double cap);
/* Power of a GPU that works as fast as its cap lets it. */
double jm_sim_busy_watts(
	const struct jm_sim_gpu *gpu, const struct jm_sim_response *response, double cap);
/* What holds a GPU back. */
struct jm_sim_limits {
	double cap_watts; /* as requested */
	double clock_hz;  /* the upper end of the range that is locked; the highest = none */
};
/* The same under a locked clock, too, which lowers the power of whatever runs: by the rule that
 * tells the clock under a cap. */
double jm_sim_limited_watts(const struct jm_sim_gpu *gpu, const struct jm_sim_response *response,
	const struct jm_sim_limits *limits);
/* Throughput of one GPU (items/s) over its busy watts. */
void jm_sim_rate_curve(const struct jm_sim_gpu *gpu, const struct jm_sim_response *response,
	struct jm_sim_curve *ret);
/* The same where a low clock takes less than the least of these watts, too: in proportion to the
 * clock. */
double jm_sim_rate_at(
	const struct jm_sim_gpu *gpu, const struct jm_sim_curve *rate, double busy_watts);
/* Items/s of each GPU of n that work together, as fast as the slowest alone would be: all wait for
 * it, and for their exchange. */
double jm_sim_joint_rate(const struct jm_sim_response *response, double slowest, int n);
/* The same under limits. */
double jm_sim_common_rate(const struct jm_sim_gpu *gpu, const struct jm_sim_response *response,
	const struct jm_sim_curve *rate, const struct jm_sim_limits *limits, int n);

/* A random number that depends on its arguments only. */
uint64_t jm_sim_hash(uint64_t seed, uint64_t stream, uint64_t index);
/* The same as a number of mean 0 and standard deviation 1 (sum of four uniforms: never beyond
 * 3.5). */
double jm_sim_noise(uint64_t seed, uint64_t stream, uint64_t index);

#endif
