/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences and figures on a series, its energy, its quality and its best settings. */
#ifndef JM_REPORT_SENTENCE_H
#define JM_REPORT_SENTENCE_H

#include "verdict.h"

/* "simulated", "estimated, simulated"... of all series: what a table must be marked with; "" =
 * measured. */
void jm_text_origins(const struct jm_grouping *g, char *out, size_t size);
/* "measured"...; "" = no run has a known power. */
const char *jm_text_energy_origin(const struct jm_grouping *g, const struct jm_group_series *s);
/* "energy: sum over 4 GPUs, each counted once, simulated; 100 W assumed for the rest of the
 * node". */
void jm_text_energy(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "node1, 2 x NVIDIA H100 (GPU-8f000000, GPU-9a000000), nvidia 550.54", or which were pooled and
 * how; "" of a simulated run. */
void jm_text_machine(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* "0.25 EUR per kWh, 380 gCO2e per kWh, PUE 1.2; source: ..."; "" = the user gave no figures. */
void jm_text_figures(const struct jm_grouping *g, char *out, size_t size);
/* Percentage points: finer differences of a saving or a slowdown do not matter. */
#define JM_PERCENT_LEAST  0.01
#define JM_PERCENT_PLACES 2
/* The half width of a saving or a slowdown as it is shown: JM_PERCENT_LEAST at least. */
double jm_text_percent_half(const struct jm_stat *stat);
/* "11.29 ± 0.01": a saving or a slowdown in percent, with this half width. */
void jm_text_percent(const struct jm_stat *stat, char *out, size_t size);
/* "600 W per GPU (11.29 ± 0.01 % less energy, 3.50 ± 0.01 % more time; simulated)" by
 * jm_verdict_within, with the origin unless it is measured; false: no such setting. */
bool jm_text_within(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
/* The same as an answer: "No best setting: ..." where there is none; and the title above it, which
 * is returned. */
void jm_text_within_answer(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);
const char *jm_text_within_title(const struct jm_grouping *g, char *out, size_t size);
/* "energy per token" with its mean in a fitting unit: "16.1 mJ/token". */
void jm_text_metric_value(const struct jm_group_series *s, int metric, const struct jm_stat *stat,
	char *out, size_t size);
/* "best 300 W", the gain, or the reason why there is none: the sentence after the metric's name. */
void jm_text_verdict(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, char *out, size_t size);
/* "300 W, repeat 2 (a3f2c1d0): the worker died": a failed case. */
void jm_text_failure(
	const struct jm_grouping *g, const struct jm_group_case *c, char *out, size_t size);
/* Why the grade of the runs is not better; of reasons that differ only in numbers, those of the
 * first run. */
json_t *jm_text_reasons(const struct jm_grouping *g, const struct jm_group_series *s);
/* The same as one text. */
void jm_text_quality(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size);

#endif
