/* SPDX-License-Identifier: Apache-2.0 */
#include "signature.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stat/known_mean.h"
#include "base/text/json.h"
#include "report/format/text.h"

#define TOTAL	JM_SIGNATURE_PARTS_N
#define FIGURES (JM_SIGNATURE_PARTS_N + 1) /* parts, total */
#define LEAST	3			   /* kernels of a correlation */

enum { SM, TENSOR, DRAM, NVLINK, ACTIVITIES };
enum { THEORETICAL, MEASURED, INTENSITIES };

static const char *const activity_names[] = {"sm", "tensor", "dram", "nvlink"};
static const char *const quantities[] = {
	"sm-activity", "tensor-activity", "dram-activity", "nvlink-received"};
static const char *const intensity_names[] = {"theoretical", "measured"};
static const char *const part_names[] = {
#define X(name, text) [JM_SIGNATURE_##name] = text,
	JM_SIGNATURE_PARTS(X)
#undef X
		[TOTAL] = "total"};
static const char *const part_scopes[] = {[JM_SIGNATURE_CORE] = "gpu-core",
	[JM_SIGNATURE_IO] = "gpu-io",
	[JM_SIGNATURE_MEMORY] = "gpu-memory"};

struct row {
	const struct jm_group_point *point;
	const json_t *record; /* of its first run */
	const char *turn;     /* of overlap; NULL = all of the steady phase */
	const char *origin;
	int runs;
	struct jm_known_mean watts[FIGURES], activity[ACTIVITIES], intensity[INTENSITIES];
};

const char *jm_signature_part_name(enum jm_signature_part part)
{
	return part_names[part];
}

static bool is(const json_t *object, const char *key, const char *text)
{
	return !strcmp(jm_json_text(object, key), text);
}

/* Kernels and transfers, and what is simulated of them. */
static bool is_kernel(const json_t *record)
{
	static const char *const names[] = {"gemm", "attention", "copy", "stream", "allgather",
		"allreduce", "alltoall", "reducescatter", "broadcast", "p2p", "overlap"};
	static const char *const responses[] = {"product", "stream", "all-gather"};
	const json_t *options = json_object_get(record, "options");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is(record, "workload", names[i]))
			return true;
	for (size_t i = 0; i < sizeof(responses) / sizeof(responses[0]); i++)
		if (is(record, "workload", "sim") && is(options, "response", responses[i]))
			return true;
	return false;
}

/* ---- power ----------------------------------------------------------------------------------- */

/* Watts of a meter in the phases of this name, of which overlap has many. `key`: joules of it, or
 * rest_joules. */
static double watts_in_phases(
	const json_t *record, const char *turn, const char *meter, const char *key)
{
	double joules = 0, seconds = 0;
	const json_t *phase;
	size_t i;

	json_array_foreach(json_object_get(record, "phases"), i, phase)
	{
		if (!is(phase, "name", turn))
			continue;
		joules += jm_json_real_of(
			jm_json_find(json_object_get(phase, "meters"), "id", meter), key);
		seconds += jm_json_real_of(phase, "end_s") - jm_json_real_of(phase, "start_s");
	}
	return seconds > 0 ? joules / seconds : NAN;
}

static double watts_of(const json_t *record, const char *turn, const json_t *meter, const char *key)
{
	const char *id = jm_json_text(meter, "id");

	if (turn)
		return watts_in_phases(record, turn, id, key);
	return jm_json_real_of(meter, key) / jm_json_real_of(meter, "covered_s");
}

/* A meter of a GPU of this work as a whole: of the GPU, or of what its parts are in. */
static bool is_whole(const json_t *meters, const json_t *meter)
{
	const char *id = jm_json_text(meter, "id");
	const json_t *other;
	size_t i;

	if (json_is_true(json_object_get(meter, "elsewhere")))
		return false;
	if (is(meter, "scope", "gpu"))
		return true;
	json_array_foreach(meters, i, other)
	{
		if (is(other, "covered_by", id) && is(other, "scope", "gpu-core"))
			return true;
	}
	return false;
}

/* Rest: what record and phase have, where some part is known. */
static void add_whole(struct row *row, const json_t *record, const json_t *meter)
{
	const json_t *meters = json_object_get(record, "meters"), *part;
	const char *origin;
	size_t i;

	jm_known_mean_add(&row->watts[TOTAL], watts_of(record, row->turn, meter, "joules"));
	jm_known_mean_add(
		&row->watts[JM_SIGNATURE_REST], watts_of(record, row->turn, meter, "rest_joules"));
	json_array_foreach(meters, i, part)
	{
		for (int k = 0; k < JM_SIGNATURE_REST; k++)
			if (is(part, "covered_by", jm_json_text(meter, "id")) &&
				is(part, "scope", part_scopes[k]))
				jm_known_mean_add(&row->watts[k],
					watts_of(record, row->turn, part, "joules"));
	}
	origin = jm_json_text(meter, "origin");
	row->origin = !row->origin || !strcmp(row->origin, origin) ? origin : "mixed";
}

/* ---- activity and intensity ------------------------------------------------------------------ */

static double signal_mean(const json_t *meter, const char *quantity)
{
	return jm_json_real_of(
		jm_json_find(json_object_get(meter, "signals"), "quantity", quantity), "mean");
}

/* Bytes per second that the memory of this GPU moved, by the share of the time in which it did. */
static double memory_rate(const json_t *record, const json_t *meter)
{
	const json_t *devices = json_object_get(json_object_get(record, "provenance"), "devices");
	const json_t *device = jm_json_find(devices, "id", jm_json_text(meter, "device"));

	return signal_mean(meter, "dram-activity") *
	       jm_json_real_of(json_object_get(device, "hardware"), "memory_bytes_per_s");
}

static void add_record(struct row *row, const json_t *record)
{
	const json_t *meters = json_object_get(record, "meters"), *meter;
	double flops = jm_json_real_of(record, "flops_executed_per_item"), bytes;
	struct jm_known_mean moved = {0};
	bool products = !row->turn || !strcmp(row->turn, "product");
	size_t i;

	row->runs++;
	json_array_foreach(meters, i, meter)
	{
		if (!is_whole(meters, meter))
			continue;
		add_whole(row, record, meter);
		for (int k = 0; k < ACTIVITIES && !row->turn; k++)
			jm_known_mean_add(&row->activity[k], signal_mean(meter, quantities[k]));
		jm_known_mean_add(&moved, memory_rate(record, meter));
	}
	bytes = jm_json_real_of(record, "bytes_per_item");
	if (!(flops > 0) || !products)
		return;
	jm_known_mean_add(&row->intensity[THEORETICAL], bytes > 0 ? flops / bytes : NAN);
	if (!row->turn && jm_known_mean(&moved) > 0)
		jm_known_mean_add(&row->intensity[MEASURED],
			flops * jm_json_real_of(record, "throughput_per_device") /
				jm_known_mean(&moved));
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool has_figures(const struct row *row)
{
	int known = 0;

	for (int k = 0; k < JM_SIGNATURE_PARTS_N; k++)
		known += row->watts[k].n;
	for (int k = 0; k < ACTIVITIES; k++)
		known += row->activity[k].n;
	return known > 0 && row->watts[TOTAL].n;
}

static bool make_row(const struct jm_grouping *g, int point, const char *turn, struct row *ret)
{
	struct row row = {.point = &g->point[point], .turn = turn};

	for (int i = 0; i < g->n_cases; i++) {
		const struct jm_group_case *c = &g->c[i];

		if (!c->ok || c->point != point || !is_kernel(c->record))
			continue;
		row.record = row.record ? row.record : c->record;
		add_record(&row, c->record);
	}
	if (!has_figures(&row))
		return false;
	*ret = row;
	return true;
}

/* The knobs of a point, "gpu.power 300 W"; "" = none was set. */
static void knobs_of(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size)
{
	*out = '\0';
	for (int d = 0; d < g->n_dims; d++) {
		if (!g->dim[d].knob || !*p->value[d].text)
			continue;
		jm_text_append(out, size, ", ", g->dim[d].name);
		jm_text_append(out, size, " ", p->value[d].text);
	}
}

/* The options that tell the kernels of a series apart; "-" = this one has no such option. */
static void kernel_of(const struct jm_grouping *g, const struct row *row, char *out, size_t size)
{
	const struct jm_group_series *s = &g->series[row->point->series];

	*out = '\0';
	jm_text_append(out, size, "", s->title);
	for (int d = 0; d < g->n_dims; d++) {
		const char *text = row->point->value[d].text;

		if (g->dim[d].knob || !*text || !strcmp(text, "-") || s->n_points < 2)
			continue;
		jm_text_append(out, size, ", ", g->dim[d].name);
		jm_text_append(out, size, "=", text);
	}
	if (row->turn)
		jm_text_append(out, size, ": ", row->turn);
}

/* Host, GPU and precision: powers of unlike ones say nothing about each other. */
static void system_of(const json_t *record, char *out, size_t size)
{
	const json_t *provenance = json_object_get(record, "provenance");
	const json_t *gpu = json_array_get(json_object_get(provenance, "devices"), 0);
	const char *words[] = {jm_json_text(provenance, "host"), jm_json_text(gpu, "name"),
		jm_json_text(record, "precision")};

	*out = '\0';
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		jm_text_append(out, size, ", ", words[i]);
}

static bool same_system(const struct row *a, const struct row *b)
{
	char one[400], two[400];

	system_of(a->record, one, sizeof(one));
	system_of(b->record, two, sizeof(two));
	return !strcmp(one, two);
}

static bool is_one_system(const struct row *rows, int n)
{
	for (int i = 1; i < n; i++)
		if (!same_system(&rows[0], &rows[i]))
			return false;
	return true;
}

static json_t *numbers(const char *const *names, const struct jm_known_mean *m, int n, double by)
{
	json_t *object = json_object();

	for (int i = 0; i < n; i++)
		jm_json_set_number(&object, names[i], jm_known_mean(&m[i]) / by);
	return object;
}

/* What both work on: the workload, or what the simulated one stands for. */
static bool same_work(const struct row *a, const struct row *b)
{
	const char *work = jm_json_text(a->record, "workload");
	const char *response = jm_json_text(json_object_get(a->record, "options"), "response");

	return is(b->record, "workload", work) && a->turn == b->turn && same_system(a, b) &&
	       is(json_object_get(b->record, "options"), "response", response);
}

/* Of the first row of the same work the cores, or else what is not its memory, or else all. */
static double reference_of(const struct row *rows, const struct row *row)
{
	static const int order[] = {JM_SIGNATURE_CORE, JM_SIGNATURE_REST, TOTAL};
	size_t k = 0;

	while (!same_work(row, rows))
		rows++;
	while (order[k] != TOTAL && !rows->watts[order[k]].n)
		k++;
	return jm_known_mean(&rows->watts[order[k]]);
}

static json_t *row_json(const struct jm_grouping *g, const struct row *rows, const struct row *row,
	bool names_system)
{
	json_t *json = json_object();
	char kernel[400], setting[600], system[400];

	kernel_of(g, row, kernel, sizeof(kernel));
	knobs_of(g, row->point, setting, sizeof(setting));
	system_of(row->record, system, sizeof(system));
	if (names_system)
		jm_text_append(setting, sizeof(setting), ", ", system);
	jm_json_set_text(&json, "kernel", kernel);
	jm_json_set_text(&json, "setting", setting);
	jm_json_set_text(&json, "state", jm_group_state_name(row->point->state));
	jm_json_set_text(&json, "origin", row->origin);
	jm_json_set_int(&json, "runs", row->runs);
	jm_json_set(&json, "watts", numbers(part_names, row->watts, FIGURES, 1));
	jm_json_set(&json, "normalised",
		numbers(part_names, row->watts, FIGURES, reference_of(rows, row)));
	jm_json_set(&json, "activity", numbers(activity_names, row->activity, ACTIVITIES, 1));
	jm_json_set(&json, "intensity", numbers(intensity_names, row->intensity, INTENSITIES, 1));
	return json;
}

/* ---- correlation ----------------------------------------------------------------------------- */

/* Pearson's; NAN where one of them does not vary. */
static double pearson(const double *x, const double *y, int n)
{
	double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;

	for (int i = 0; i < n; i++) {
		mx += x[i] / n;
		my += y[i] / n;
	}
	for (int i = 0; i < n; i++) {
		xx += (x[i] - mx) * (x[i] - mx);
		yy += (y[i] - my) * (y[i] - my);
		xy += (x[i] - mx) * (y[i] - my);
	}
	return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

/* Of all rows with the setting, of which it is the first, but those above their cap. x, y: room for
 * n. */
static void correlate(const json_t *rows, const json_t *first, int intensity, int part, double *x,
	double *y, json_t *out)
{
	const char *setting = jm_json_text(first, "setting");
	const json_t *row;
	json_t *json;
	int n = 0;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		x[n] = jm_json_real_of(
			json_object_get(row, "intensity"), intensity_names[intensity]);
		y[n] = jm_json_real_of(json_object_get(row, "watts"), part_names[part]);
		if (is(row, "setting", setting) &&
			!is(row, "state", jm_group_state_name(JM_STATE_VIOLATED)) && !isnan(x[n]) &&
			!isnan(y[n]))
			n++;
	}
	if (n < LEAST || isnan(pearson(x, y, n)))
		return;
	json = json_object();
	jm_json_set_text(&json, "setting", setting);
	jm_json_set_text(&json, "intensity", intensity_names[intensity]);
	jm_json_set_text(&json, "part", part_names[part]);
	jm_json_set_number(&json, "r", pearson(x, y, n));
	jm_json_set_int(&json, "kernels", n);
	json_array_append_new(out, json);
}

static json_t *correlations(const json_t *rows)
{
	size_t n = json_array_size(rows), i;
	double *x = calloc(2 * n + 2, sizeof(*x));
	json_t *out = json_array();
	const json_t *row;

	json_array_foreach(rows, i, row)
	{
		const char *setting = jm_json_text(row, "setting");

		if (!x || jm_json_find(rows, "setting", setting) != row)
			continue;
		for (int k = 0; k < INTENSITIES; k++)
			for (int p = 0; p < FIGURES; p++)
				correlate(rows, row, k, p, x, x + n + 1, out);
	}
	free(x);
	return out;
}

json_t *jm_signatures(const struct jm_grouping *g)
{
	static const char *const turns[] = {"product", "collective", "both"};
	struct row *rows = calloc(3 * (size_t)g->n_points + 1, sizeof(*rows));
	json_t *list = json_array();
	int n = 0;

	for (int p = 0; p < g->n_points && rows; p++) {
		bool beside = is(g->series[g->point[p].series].record, "workload", "overlap");

		for (int t = 0; t < (beside ? 3 : 1); t++)
			n += make_row(g, p, beside ? turns[t] : NULL, &rows[n]);
	}
	for (int i = 0; i < n; i++)
		json_array_append_new(list, row_json(g, rows, &rows[i], !is_one_system(rows, n)));
	free(rows);
	if (!n) {
		json_decref(list);
		return NULL;
	}
	return json_pack("{s:o, s:o}", "rows", list, "correlations", correlations(list));
}
