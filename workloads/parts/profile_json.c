/* SPDX-License-Identifier: Apache-2.0 */
/* A program's profile as JSON, for the record. */
#include "workloads/parts/profile_json.h"
#include "base/text/json.h"

#include <math.h>
#include <stdlib.h>

#include "engine/run/profile.h"

#define MOST_KINDS 128

static json_t *line_json(const struct jm_profile_line *line, double step_s)
{
	bool timed = line->seconds > 0;
	json_t *o = json_pack("{s:s, s:o, s:o, s:o}", "name", line->name, "calls",
		jm_json_number(line->calls), "seconds", jm_json_number(line->seconds), "share",
		jm_json_number(line->seconds / step_s));

	if (*line->what)
		json_object_set_new(o, "result", json_string(line->what));
	json_object_set_new(o, "flops_per_s",
		timed && line->flops > 0 ? jm_json_number(line->flops / line->seconds)
					 : json_null());
	json_object_set_new(o, "bytes_per_s",
		timed ? jm_json_number(line->bytes / line->seconds) : json_null());
	json_object_set_new(o, "roofline",
		timed ? jm_json_number(line->roofline_s / line->seconds) : json_null());
	return o;
}

json_t *jm_profile_json(const struct jm_program *p)
{
	struct jm_profile_line *kind = calloc(MOST_KINDS, sizeof(*kind)), one;
	json_t *kinds = json_array(), *nodes = json_array();
	int n = kind ? jm_profile_kinds(p, kind, MOST_KINDS) : 0;
	double step_s = 0;

	for (int i = 0; i < n; i++)
		step_s += kind[i].seconds;
	for (int i = 0; i < n; i++)
		json_array_append_new(kinds, line_json(&kind[i], step_s));
	for (int i = p->n_kept; i < p->n_units; i++) {
		jm_profile_unit(p, i, &one);
		json_array_append_new(nodes, line_json(&one, step_s));
	}
	free(kind);
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "step_s", jm_json_number(step_s),
		"whole_step_s", jm_json_number(jm_profile_whole(p)), "peak_flops_per_s",
		jm_json_number(jm_device_peak(p->device, p->graph->compute, p->graph->math)),
		"peak_bytes_per_s",
		jm_json_number(p->profile ? p->profile->peak_bytes : p->device->props.peak_bytes),
		"kinds", kinds, "nodes", nodes);
}
