/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a record means: speed, power, energy per item, and how that compares with a reference.
 *
 * e = joules per item and d = seconds per item, both over the same phase, so that runs of different
 * length compare. An outside command without items counts as one item, a "run".
 *
 *	EDP	e d
 *	EDS_k	(k-1)/k e/e_ref + 1/k d/d_ref	the reference has 1, lower is better, k is how many
 *						times slower a run may be that needs no energy at
 *						all
 *	gain	100 (e_ref - e) / e_ref		loss	100 (d - d_ref) / d_ref
 *
 *	ED2P	e d^2		energy with twice the weight on time: Martin, Nystrom, Penzes, "ET2:
 *				a metric for time and energy efficiency of computation" (Power Aware
 *				Computing, 2002)
 *	ZeusCost	eta e + (1 - eta) P_max d	P_max is the power limit of the reference:
 *			You, Chung,
 *				Chowdhury, "Zeus" (NSDI 2023), eq. 2
 *	MFU, HFU	FLOPs that the mathematics needs, or that were executed, per second and
 *			device, by the peak:
 *				Chowdhery et al., "PaLM" (arXiv 2204.02311), appendix B; Korthikanti
 *				et al. (arXiv 2205.05198) for HFU
 *	GPU and hour	the mean power of the GPUs on which the work ran, for one hour
 *	TTFT, TPOT	of requests that were answered, as the record's object "serving" has them
 *			(docs/serving.md)
 *	GPU load	mean of their utilisation: the share of the time in which a kernel ran on a
 *			GPU
 *	cost, carbon	e / 3.6e6 J/kWh, times PUE (ISO/IEC 30134-2), times price or carbon
 *			intensity, of 10^6 items
 *
 * Median, 99th percentile and maximum power of several meters are the sums of the meters' own: the
 * maxima need not fall together, so that their sum bounds the total's maximum from above.
 *
 * Energy Delay Sum: Roberts, Wright, Fahmy, Jarvis, "Metrics for energy-aware software
 * optimisation" (ISC 2017); with this alpha, beta and k: Krzywaniak, Czarnul, Proficz, "DEPO",
 * Software: Practice and Experience 52(12), 2022, doi 10.1002/spe.3139, as used in doi
 * 10.1007/978-3-031-48803-0_1.
 */
#ifndef JM_METRIC_H
#define JM_METRIC_H

#include <jansson.h>

#include "meter/meter.h"

#define JM_METRIC_MAX_K 8

/* name, title, unit (@ = the item), better: +1 higher, -1 lower, 0 neither; needs energy */
#define JM_METRICS(X)                                                                              \
	X(THROUGHPUT, "throughput", "throughput", "@/s", 1, false)                                 \
	X(THROUGHPUT_DEVICE, "throughput_per_device", "throughput per device", "@/s", 1, false)    \
	X(WATTS, "watts_mean", "mean power", "W", 0, true)                                         \
	X(WATTS_MEDIAN, "watts_median", "median power", "W", 0, true)                              \
	X(WATTS_P99, "watts_p99", "99th percentile of power", "W", 0, true)                        \
	X(WATTS_MAX, "watts_max", "maximum power", "W", 0, true)                                   \
	X(HOURS, "hours", "time of a run", "h", 0, false)                                          \
	X(KWH, "kwh", "energy of a run", "kWh", 0, true)                                           \
	X(WH_GPU_HOUR, "wh_per_gpu_hour", "energy per GPU and hour", "Wh", 0, true)                \
	X(GPU_LOAD, "gpu_load_percent", "mean GPU load", "%", 0, false)                            \
	X(JOULES_ITEM, "joules_per_item", "energy per @", "J/@", -1, true)                         \
	X(WH_ITEM, "wh_per_item", "energy per @", "Wh/@", -1, true)                                \
	X(ITEMS_JOULE, "items_per_joule", "efficiency", "@/J", 1, true)                            \
	X(ITEMS_WH, "items_per_wh", "efficiency", "@/Wh", 1, true)                                 \
	X(EDP, "edp", "energy delay product", "J·s/@²", -1, true)                                  \
	X(ED2P, "ed2p", "energy delay² product", "J·s²/@³", -1, true)                              \
	X(ZEUS, "zeus_cost", "ZeusCost", "J/@", -1, true)                                          \
	X(COST, "cost_per_million", "energy cost", "per 10⁶ @", -1, true)                          \
	X(CARBON, "carbon_g_per_million", "carbon", "gCO2e/10⁶ @", -1, true)                       \
	X(MFU, "mfu_percent", "MFU", "%", 1, false)                                                \
	X(HFU, "hfu_percent", "HFU", "%", 1, false)                                                \
	X(MFU_MEASURED, "mfu_measured_percent", "MFU of the measured peak", "%", 1, false)         \
	X(HFU_MEASURED, "hfu_measured_percent", "HFU of the measured peak", "%", 1, false)         \
	X(TTFT_P50, "ttft_p50_s", "TTFT p50", "s", -1, false)                                      \
	X(TTFT_P99, "ttft_p99_s", "TTFT p99", "s", -1, false)                                      \
	X(TPOT_P50, "tpot_p50_s", "TPOT p50", "s", -1, false)                                      \
	X(TPOT_P99, "tpot_p99_s", "TPOT p99", "s", -1, false)                                      \
	X(LATENCY_P99, "latency_p99_s", "latency p99", "s", -1, false)                             \
	X(GOODPUT, "goodput_per_s", "goodput", "1/s", 1, false)                                    \
	X(GAIN, "energy_gain_percent", "energy saved", "%", 1, true)                               \
	X(LOSS, "time_loss_percent", "slowdown", "%", -1, false)                                   \
	X(GAIN_LOSS, "gain_minus_loss", "energy saved minus slowdown", "%", 1, true)
enum jm_metric {
#define X(name, text, title, unit, better, energy) JM_M_##name,
	JM_METRICS(X)
#undef X
		JM_M_EDS, /* the first of up to JM_METRIC_MAX_K */
	JM_M_ALL = JM_M_EDS + JM_METRIC_MAX_K,
};

/* Those of requests that were answered: other work has none of them. */
static inline bool jm_metric_of_requests(int metric)
{
	return metric >= JM_M_TTFT_P50 && metric <= JM_M_GOODPUT;
}

struct jm_metric_row {
	const char *name, *title, *unit;
	int better;
	bool energy; /* unknown without energy; an estimate decides nothing */
};
extern const struct jm_metric_row jm_metrics[]; /* [JM_M_EDS] */

/* All that one run of a case says; NAN = unknown. */
struct jm_measured {
	double value[JM_M_ALL];
	double seconds_item;	       /* d */
	double items, seconds, joules; /* of the phase */
	enum jm_origin origin;	       /* of the energy; meaningless without has_energy */
	bool has_energy;	       /* a meter of that origin is there, read or not */
	int n_meters;		       /* topmost, of that origin */
};

/* How many machines the work ran on: those of the list of hosts, else one. */
int jm_metric_nodes(const json_t *record);
/* Did it work in simulated time, or on a simulated device? */
bool jm_metric_simulated(const json_t *record);
/*
 * The origin whose meters give the energy of the run, never a mixture: simulated where the work ran
 * in simulated time or on a simulated device, else the first of jm_origin_order that a topmost
 * meter has; false: there is no meter.
 */
bool jm_metric_origin(const json_t *record, enum jm_origin *ret);
/* Joules of the phase by these meters; NAN = unknown. */
double jm_metric_joules(const json_t *record, enum jm_origin *ret_origin);
/* Does a meter that counts in the total have readings that cannot be trusted? */
bool jm_metric_faulty(const json_t *record);
/* By its status, or else by the exit status of its command. */
bool jm_metric_failed(const json_t *record);
/*
 * From a record; a failed one gives NAN throughout. Energy is the total over the topmost meters of
 * ONE origin (jm_metric_origin). add_watts is added over the
 * whole phase (the rest of the node, which no meter saw; arXiv 2603.16164 takes 100 W). idle_gpus:
 * power and energy of GPUs on which the work did not run count, too.
 */
void jm_metric_measure(
	const json_t *record, double add_watts, bool idle_gpus, struct jm_measured *ret);
/* Sets idle_gpus of the record: those that were read and on which the work did not run, where there
 * are such. */
void jm_record_idle_gpus(json_t *record);

/* The one formula: EDS_k from e/e_ref and d/d_ref. */
double jm_metric_eds(double k, double energy_ratio, double time_ratio);
/* In percent, by 200 (1 - EDS_2), which is the same thing. */
double jm_metric_gain_minus_loss(double energy_ratio, double time_ratio);
/* Fills gain, loss, their difference and EDS for each k, against a reference (NULL: leaves NAN). */
void jm_metric_relate(
	struct jm_measured *m, const struct jm_measured *ref, const double *k, int n_k);

#endif
