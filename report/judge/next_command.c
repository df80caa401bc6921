/* SPDX-License-Identifier: Apache-2.0 */
#include "next_command.h"

#include "base/text/json.h"
#include "report/format/text.h"
#include "report/model/dimension.h"
#include "result/case_id.h"
#include "report_objective.h"
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* " gpu.power=600W" of each knob; false: one of them is set in a phase only, or to several
 * values. */
static bool list_settings(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size)
{
	*out = '\0';
	for (int i = 0; i < g->n_dims; i++) {
		char value[40], word[120];

		if (!g->dim[i].knob || isnan(p->value[i].requested))
			continue;
		if (strchr(g->dim[i].name, '/') || g->dim[i].soft)
			return false;
		jm_dim_quantity(p->value[i].requested, g->dim[i].unit, value, sizeof(value));
		for (char *space; (space = strchr(value, ' '));)
			memmove(space, space + 1, strlen(space));
		snprintf(word, sizeof(word), "%s=%s", g->dim[i].name, value);
		jm_text_append(out, size, " ", word);
	}
	return *out;
}

/* The options of the work that the setting also needs: ", with --batch 256". */
static void list_options(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size)
{
	*out = '\0';
	for (int i = 0; i < g->n_dims; i++) {
		char word[160];

		if (g->dim[i].knob || g->dim[i].soft)
			continue;
		snprintf(word, sizeof(word), "--%s %s", g->dim[i].name, p->value[i].text);
		jm_text_append(out, size, " ", word);
	}
}

/* The simulated node that was set, "sim:h100x4"; empty: the devices of a machine. A command names
 * no device of its own, its settings do. */
static void simulated_device(const json_t *record, char *out, size_t size)
{
	const json_t *set = json_array_get(json_object_get(record, "settings"), 0);
	const char *device = jm_json_text(record, "device");

	if (!*device)
		device = jm_json_text(set, "device");
	snprintf(out, size, "%.*s", (int)strcspn(device, "/"), device);
	if (!jm_case_simulated(out))
		*out = '\0';
}

/* Nothing is gained where the reference cannot be distinguished from the best. */
static bool is_reference_as_good(
	const struct jm_grouping *g, const struct jm_group_series *s, const struct jm_verdict *v)
{
	for (int i = s->first_point; i < s->first_point + s->n_points; i++)
		if (g->point[i].reference && jm_verdict_within_tied(g, v, i))
			return true;
	return false;
}

bool jm_next_command(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	char settings[300], options[200], device[64];
	struct jm_verdict v;

	jm_verdict_within(g, s, &v);
	if (v.kind == JM_VERDICT_NONE || is_reference_as_good(g, s, &v) ||
		!list_settings(g, &g->point[v.leading], settings, sizeof(settings)))
		return false;
	list_options(g, &g->point[v.leading], options, sizeof(options));
	simulated_device(s->record, device, sizeof(device));
	jm_text_format(out, size, "%sjoulemark set %s%s%s%s%s%s", *device ? "" : "sudo ",
		*device ? "--device " : "", device, *device ? " " : "", settings,
		*options ? "   # with " : "", options);
	return true;
}

bool jm_next_limit(
	const struct jm_grouping *g, const struct jm_group_series *s, char *out, size_t size)
{
	const struct jm_group_point *nearest = NULL;
	double least = INFINITY;

	for (int i = s->first_point; i < s->first_point + s->n_points; i++) {
		const struct jm_group_point *p = &g->point[i];
		const struct jm_stat *gain = &p->stat[JM_M_GAIN], *loss = &p->stat[JM_M_LOSS];
		double limit = loss->mean + loss->half_width; /* NAN loses */

		if (p->reference || !p->eligible || !gain->n || !loss->n ||
			!(gain->mean - gain->half_width > 0) || !(limit < least))
			continue;
		least = limit;
		nearest = p;
	}
	if (g->options.objective != JM_OBJECTIVE_SLOWDOWN || !nearest ||
		least <= jm_report_objective_slowdown(g))
		return false;
	jm_text_format(out, size, "With --max-slowdown %.0f%%, %s is within the limit.",
		ceil(least), nearest->label);
	return true;
}
