/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a record for the page: its details; the meters that include others or are included, in
 * each phase. */
#include "page_details.h"
#include "base/text/json.h"

#include <stdio.h>
#include <string.h>

const json_t *jm_page_whole_record(const struct jm_grouping *g, const struct jm_group_case *c)
{
	const json_t *whole;
	char key[24];

	snprintf(key, sizeof(key), "%d", c->index);
	whole = json_object_get(g->options.details, key);
	return whole ? whole : c->record;
}

static json_t *part_json(const json_t *meter)
{
	return json_pack("[o, o, o]", jm_json_number(jm_json_real_of(meter, "joules")),
		jm_json_number(jm_json_real_of(meter, "rest_joules")),
		jm_json_number(jm_json_real_of(meter, "rest_error_joules")));
}

static bool is_nested(const json_t *meters, const json_t *meter)
{
	const char *id = jm_json_text(meter, "id");
	const json_t *other;
	size_t i;

	json_array_foreach(meters, i,
		other) if (*id && !strcmp(jm_json_text(other, "covered_by"), id)) return true;
	return *jm_json_text(meter, "covered_by") != '\0';
}

/* Of a meter in each phase. */
static json_t *part_phases(const json_t *record, const char *id)
{
	const json_t *phase;
	json_t *out = json_array();
	size_t i;

	json_array_foreach(json_object_get(record, "phases"), i, phase)
	{
		const json_t *meter = jm_json_find(json_object_get(phase, "meters"), "id", id);

		json_array_append_new(out, meter ? part_json(meter) : json_null());
	}
	return out;
}

json_t *jm_page_parts(const json_t *record)
{
	const json_t *meters = json_object_get(record, "meters"), *meter;
	json_t *out = json_object();
	size_t i;

	json_array_foreach(meters, i, meter) if (is_nested(meters, meter)) json_object_set_new(
		out, jm_json_text(meter, "id"), part_phases(record, jm_json_text(meter, "id")));
	return out;
}
