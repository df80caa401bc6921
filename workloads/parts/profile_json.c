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
	double seconds = line->seconds > 0 ? line->seconds : NAN;
	json_t *o = json_object();

	jm_json_set_text(&o, "name", line->name);
	jm_json_set_number(&o, "calls", line->calls);
	jm_json_set_number(&o, "seconds", line->seconds);
	jm_json_set_number(&o, "share", line->seconds / step_s);
	if (*line->what)
		jm_json_set_text(&o, "result", line->what);
	jm_json_set_number(&o, "flops_per_s", line->flops > 0 ? line->flops / seconds : NAN);
	jm_json_set_number(&o, "bytes_per_s", line->bytes / seconds);
	jm_json_set_number(&o, "roofline", line->roofline_s / seconds);
	return o;
}

json_t *jm_profile_json(const struct jm_program *p)
{
	struct jm_profile_line *kind = calloc(MOST_KINDS, sizeof(*kind)), one;
	json_t *kinds = json_array(), *nodes = json_array(), *json = json_object();
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
	jm_json_set_number(&json, "step_s", step_s);
	jm_json_set_number(&json, "whole_step_s", jm_profile_whole(p));
	jm_json_set_number(&json, "peak_flops_per_s",
		jm_device_peak(p->device, p->graph->compute, p->graph->math));
	jm_json_set_number(&json, "peak_bytes_per_s",
		p->profile ? p->profile->peak_bytes : p->device->props.peak_bytes);
	jm_json_set(&json, "kinds", kinds);
	jm_json_set(&json, "nodes", nodes);
	return json;
}
