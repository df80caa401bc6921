/* SPDX-License-Identifier: Apache-2.0 */
/* Titles of series: the work, and what distinguishes a series from others of that name. */
#include "title.h"
#include "base/text/json.h"
#include "dimension.h"
#include "report/format/text.h"

#include <stdlib.h>
#include <string.h>

/* What the workload works on, where it has a choice: "gpt-117m", "llama3-8b-train". */
static const char *subject(const json_t *record)
{
	const char *model = json_string_value(jm_dim_parameter(record, "model"));

	return model ? model : json_string_value(jm_dim_parameter(record, "response"));
}

static bool varies(const struct jm_grouping *g, const struct jm_group_series *s, int dim)
{
	const struct jm_group_point *p = &g->point[s->first_point];

	for (int i = 1; i < s->n_points; i++)
		if (strcmp(p[i].value[dim].key, p->value[dim].key) != 0)
			return true;
	return false;
}

/* Is it a column of the series' table? The title must not name one of its values. */
static bool is_axis(const struct jm_grouping *g, const struct jm_group_series *s, const char *name)
{
	int dim = 0;

	while (dim < g->n_dims && strcmp(g->dim[dim].name, name) != 0)
		dim++;
	return dim < g->n_dims && varies(g, s, dim);
}

/* Which dimensions the labels have. Returns how many: 0 = none has a value. */
static int choose_labels(const struct jm_grouping *g, const struct jm_group_series *s, bool *ret)
{
	const struct jm_group_point *first = &g->point[s->first_point];
	int n = 0;

	for (int i = 0; i < g->n_dims; i++) {
		ret[i] = g->dim[i].knob || varies(g, s, i);
		n += ret[i];
	}
	if (s->n_points > 1 || jm_dim_has_knob(g))
		return n;
	/* one point: what it has */
	for (int i = 0; i < g->n_dims; i++) {
		ret[i] = strcmp(first->value[i].text, "-") != 0;
		n += ret[i];
	}
	return n;
}

void jm_group_label(struct jm_grouping *g, const struct jm_group_series *s)
{
	bool shown[JM_GROUP_MAX_DIMS];
	int n = choose_labels(g, s, shown);

	for (int k = s->first_point; k < s->first_point + s->n_points; k++) {
		struct jm_group_point *p = &g->point[k];

		p->label[0] = '\0';
		for (int i = 0; i < g->n_dims; i++) {
			const char *text = p->value[i].text;

			if (!shown[i] || (n > 1 && !strcmp(text, "-")))
				continue;
			if (n > 1)
				jm_text_append(p->label, sizeof(p->label), ", ", g->dim[i].name);
			jm_text_append(p->label, sizeof(p->label), n > 1 ? " " : "", text);
		}
		if (!*p->label)
			jm_text_format(p->label, sizeof(p->label), "%s",
				p->reference ? "reference" : "all");
	}
}

/* " (8 parts of job 4711)" */
static void add_parts(const json_t *job, char *out, size_t size)
{
	int parts = (int)json_integer_value(json_object_get(job, "parts"));
	char text[80];

	if (!parts)
		return;
	snprintf(text, sizeof(text), "(%d parts of job %.40s)", parts, jm_json_text(job, "id"));
	jm_text_append(out, size, " ", text);
}

void jm_group_work(const json_t *record, bool with_subject, char *out, size_t size)
{
	const json_t *command = jm_dim_command(record), *word;
	const char *workload = jm_json_text(record, "workload");
	size_t i;

	*out = '\0';
	if (!*workload)
		workload = json_string_value(jm_dim_parameter(record, "workload"));
	jm_text_append(out, size, "", workload ? workload : "");
	if (subject(record) && with_subject)
		jm_text_append(out, size, " ", subject(record));
	if (!*out)
		json_array_foreach(command, i, word) jm_text_append(
			out, size, " ", json_is_string(word) ? json_string_value(word) : "?");
	add_parts(json_object_get(record, "job"), out, size);
}

void jm_group_title(const struct jm_grouping *g, struct jm_group_series *s)
{
	bool with_subject = !jm_dim_is(g, "model") && !jm_dim_is(g, "response");

	jm_group_work(s->record, with_subject, s->title, sizeof(s->title));
	if (!*s->title)
		jm_text_append(s->title, sizeof(s->title), "", "run");
	if (*jm_json_text(s->record, "device") && !is_axis(g, s, "device"))
		jm_text_append(
			s->title, sizeof(s->title), " on ", jm_json_text(s->record, "device"));
	if (!is_axis(g, s, "precision"))
		jm_text_append(
			s->title, sizeof(s->title), ", ", jm_json_text(s->record, "precision"));
	jm_text_format(s->item, sizeof(s->item), "%s",
		*jm_json_text(s->record, "unit") ? jm_json_text(s->record, "unit") : "run");
}

/* Of the series of a name, by parameter: [first value, how many have it]; the last is null where
 * they differ. A parameter that some of them lack differs too, for fewer have it. */
static void note_parameters(const struct jm_grouping *g, const json_t *parameters, json_t *by_name)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)parameters, key, value)
	{
		json_t *seen = json_object_get(by_name, key), *n = json_array_get(seen, 1);

		if (json_is_object(value))
			note_parameters(g, value, by_name);
		else if (jm_dim_is(g, key) || !strcmp(key, "command"))
			continue;
		else if (!seen)
			json_object_set_new(by_name, key, json_pack("[O, i]", value, 1));
		else if (!json_equal(json_array_get(seen, 0), value))
			json_array_set_new(seen, 1, json_null());
		else if (json_is_integer(n))
			json_integer_set(n, json_integer_value(n) + 1);
	}
}

/* What distinguishes the series from others of its name: "batch=8". n: how many series have that
 * name. */
static void title_differences(const struct jm_grouping *g, struct jm_group_series *s,
	const json_t *parameters, const json_t *by_name, int n)
{
	const json_t *value;
	const char *key;
	char *word;

	json_object_foreach((json_t *)parameters, key, value)
	{
		const json_t *have = json_array_get(json_object_get(by_name, key), 1);

		if (json_is_object(value)) {
			title_differences(g, s, value, by_name, n);
		} else if (have && !jm_dim_is(g, key) && json_integer_value(have) != n) {
			word = json_is_string(value)
				       ? strdup(json_string_value(value))
				       : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
			jm_text_append(s->title, sizeof(s->title), ", ", key);
			jm_text_append(s->title, sizeof(s->title), "=", word ? word : "");
			free(word);
		}
	}
}

static const struct jm_machine *machine_of(
	const struct jm_grouping *g, const struct jm_group_series *s)
{
	return &g->machine[s->first_machine];
}

/* Series of one name: what they have, and where their machines differ. */
struct names {
	json_t *parameters;
	int n, first; /* of the series */
	bool part_differs[JM_MACHINE_PARTS], models_differ;
};

/* "GPU-8f000000"; where models differ "1 x NVIDIA H100 (GPU-8f000000)" */
static void title_devices(
	struct jm_group_series *s, const struct jm_machine *m, const struct names *names)
{
	char both[400];

	jm_text_format(both, sizeof(both), "%s (%s)", m->models, m->ids);
	jm_text_append(s->title, sizeof(s->title), ", ",
		names->models_differ && *m->models ? both : m->ids);
}

/* What distinguishes its machine from that of another series of its name: the host, else
 * devices, else drivers. */
static void title_machine(
	const struct jm_grouping *g, struct jm_group_series *s, const struct names *names)
{
	const struct jm_machine *m = machine_of(g, s);
	const bool *differs = names->part_differs;

	if (differs[JM_MACHINE_HOST] && s->n_machines > 1)
		jm_text_append(s->title, sizeof(s->title), ", ", m->models);
	else if (differs[JM_MACHINE_HOST] && *m->part[JM_MACHINE_HOST])
		jm_text_append(s->title, sizeof(s->title), ", on ", m->part[JM_MACHINE_HOST]);
	if (differs[JM_MACHINE_DEVICES] && s->n_machines == 1)
		title_devices(s, m, names);
	if (differs[JM_MACHINE_DRIVERS] && s->n_machines == 1)
		jm_text_append(s->title, sizeof(s->title), ", ", m->part[JM_MACHINE_DRIVERS]);
}

static void note_series(const struct jm_grouping *g, int index, struct names *names)
{
	const struct jm_group_series *s = &g->series[index];
	const struct jm_machine *m = machine_of(g, s), *first;

	if (!names->n++) {
		names->first = index;
		names->parameters = json_object();
	}
	first = machine_of(g, &g->series[names->first]);
	for (int i = 0; i < JM_MACHINE_PARTS; i++)
		if (strcmp(m->part[i], first->part[i]) != 0)
			names->part_differs[i] = true;
	names->models_differ = names->models_differ || strcmp(m->models, first->models) != 0;
	note_parameters(g, jm_dim_parameters(s->record), names->parameters);
}

/* Index of the series' name among those noted. */
static int name_of(json_t *by_title, const char *title)
{
	const json_t *known = json_object_get(by_title, title);
	int index = known ? (int)json_integer_value(known) : (int)json_object_size(by_title);

	if (!known)
		json_object_set_new_nocheck(by_title, title, json_integer(index));
	return index;
}

int jm_group_tell_apart(struct jm_grouping *g)
{
	struct names *names = calloc((size_t)g->n_series, sizeof(*names));
	int *name = calloc((size_t)g->n_series, sizeof(*name));
	json_t *by_title = json_object();

	for (int i = 0; names && name && i < g->n_series; i++) {
		name[i] = name_of(by_title, g->series[i].title);
		note_series(g, i, &names[name[i]]);
	}
	for (int i = 0; names && name && i < g->n_series; i++) {
		struct jm_group_series *s = &g->series[i];

		title_differences(g, s, jm_dim_parameters(s->record), names[name[i]].parameters,
			names[name[i]].n);
		title_machine(g, s, &names[name[i]]);
	}
	for (int i = 0; names && i < g->n_series; i++)
		json_decref(names[i].parameters);
	json_decref(by_title);
	free(name);
	free(names);
	return names && name ? 0 : -1;
}
