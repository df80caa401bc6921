/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report as CSV (RFC 4180): one row per setting with the statistics of its repeats, or one row
 * per case, which ends with all columns of the table of a record's keys. SI units, no prefixes;
 * unknown is an empty field.
 */
#include "csv.h"
#include "base/text/csv_fields.h"
#include "base/text/json.h"
#include "report/format/text.h"
#include "result/record_keys.h"

#include <math.h>
#include <string.h>

/* What others wrote must not be a formula to a spreadsheet: it gets an apostrophe, which marks text
 * there. */
static void put_text(FILE *out, const char *text, bool first)
{
	char tame[2048];

	if (!first)
		fputc(',', out);
	if (strchr("=+-@\t\r", *text) && *text && text[1]) {
		snprintf(tame, sizeof(tame), "'%s", text);
		text = tame;
	}
	jm_csv_put_text(out, text);
}

static void put_number(FILE *out, double value)
{
	if (isfinite(value))
		fprintf(out, ",%.10g", value);
	else
		fputc(',', out);
}

/* The names of the columns, in their order. */
struct head {
	FILE *out;
	json_t *names;
};

static void add_name(struct head *h, const char *name)
{
	put_text(h->out, name, !json_array_size(h->names));
	json_array_append_new(h->names, json_string(name));
}

static void add_key(void *arg, const char *path, const struct jm_key *key)
{
	struct head *h = arg;
	const json_t *name;
	size_t i;

	(void)path;
	json_array_foreach(h->names, i, name)
	{
		if (!strcmp(json_string_value(name), key->column))
			return;
	}
	add_name(h, key->column);
}

static void add_dims(struct head *h, const struct jm_grouping *g)
{
	static const char *const parts[] = {"", "_requested", "_accepted", "_enforced"};
	char full[96];

	for (int i = 0; i < g->n_dims; i++)
		for (int k = 0; k < (g->dim[i].knob ? 4 : 1); k++) {
			jm_text_format(full, sizeof(full), "%s%s", g->dim[i].name, parts[k]);
			add_name(h, full);
		}
}

static void put_head(
	struct head *h, const struct jm_grouping *g, const char *const *more, bool stats)
{
	static const char *const stat_names[] = {"mean", "median", "sd", "low95", "high95"};
	static const char *const places[] = {"host", "devices", "drivers"};
	char name[64], full[96];

	add_name(h, "series");
	add_name(h, "item");
	add_dims(h, g);
	for (; *more; more++)
		add_name(h, *more);
	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++) {
		jm_group_metric_name(g, m, name, sizeof(name));
		for (int k = 0; k < (stats ? 5 : 1); k++) {
			snprintf(full, sizeof(full), "%s%s%s", name, stats ? "_" : "",
				stats ? stat_names[k] : "");
			add_name(h, full);
		}
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		add_name(h, places[i]);
}

static const char *origin_of(bool has_energy, bool mixed, enum jm_origin origin)
{
	return !has_energy ? "" : mixed ? "mixed" : jm_origin_name(origin);
}

static void put_place(const struct jm_machine *m, bool one, FILE *out)
{
	put_text(out, one ? m->part[JM_MACHINE_HOST] : "", false);
	put_text(out, one ? m->part[JM_MACHINE_DEVICES] : m->models, false);
	put_text(out, m->part[JM_MACHINE_DRIVERS], false);
}

static void put_setting(
	bool knob, const struct jm_group_value *v, double accepted, double enforced, FILE *out)
{
	put_text(out, v->text, false);
	if (!knob)
		return;
	put_number(out, v->requested);
	put_number(out, accepted);
	put_number(out, enforced);
}

static void put_point(const struct jm_grouping *g, const struct jm_group_point *p, FILE *out)
{
	const struct jm_group_series *s = &g->series[p->series];

	put_text(out, s->title, true);
	put_text(out, s->item, false);
	for (int i = 0; i < g->n_dims; i++)
		put_setting(g->dim[i].knob, &p->value[i], p->accepted[i], p->enforced_max[i], out);
	put_text(out, p->reference ? "yes" : "no", false);
	put_text(out, jm_group_state_name(p->state), false);
	fprintf(out, ",%d,%d,%d", p->n_ok, p->n_failed, p->n_outliers);
	put_text(out, origin_of(s->has_energy, s->mixed_origin, s->origin), false);
	put_number(out, g->options.add_watts);
	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++) {
		put_number(out, p->stat[m].mean);
		put_number(out, p->stat[m].median);
		put_number(out, p->stat[m].sd);
		put_number(out, p->stat[m].mean - p->stat[m].half_width);
		put_number(out, p->stat[m].mean + p->stat[m].half_width);
	}
	put_place(&g->machine[s->first_machine], s->n_machines == 1, out);
	fputs("\r\n", out);
}

/* A column of the table of a record's keys. */
static void put_column(FILE *out, const json_t *record, const char *column)
{
	const json_t *value = jm_keys_column(jm_record_keys, record, column);
	const char *text = json_string_value(value);

	if (json_is_number(value))
		put_number(out, json_number_value(value));
	else if (json_is_boolean(value))
		put_text(out, json_is_true(value) ? "yes" : "no", false);
	else
		put_text(out, text ? text : "", false);
}

/* from: the first of the names that are columns of the table of keys alone. */
static void put_case(const struct jm_grouping *g, const struct jm_group_case *c,
	const json_t *names, size_t from, FILE *out)
{
	const struct jm_group_series *s = &g->series[c->series];
	static const char *const of_case[] = {"case_id", "repeat", "block", "position"};

	put_text(out, s->title, true);
	put_text(out, s->item, false);
	for (int i = 0; i < g->n_dims; i++)
		put_setting(g->dim[i].knob, &c->value[i], c->value[i].accepted,
			c->value[i].enforced_max, out);
	for (size_t i = 0; i < sizeof(of_case) / sizeof(of_case[0]); i++)
		put_column(out, c->record, of_case[i]);
	put_text(out, c->reference ? "yes" : "no", false);
	put_text(out, jm_group_state_name(c->state), false);
	put_text(out, c->ok ? "ok" : "failed", false);
	put_column(out, c->record, "reason");
	put_text(out, c->outlier ? "yes" : "no", false);
	put_column(out, c->record, "grade");
	put_text(out, origin_of(c->m.has_energy, false, c->m.origin), false);
	put_number(out, c->m.items);
	put_number(out, c->m.seconds);
	put_number(out, c->m.joules);
	for (int m = 0; m < JM_M_EDS + g->options.n_k; m++)
		put_number(out, c->m.value[m]);
	put_place(&g->machine[c->machine], true, out);
	for (; from < json_array_size(names); from++)
		put_column(out, c->record, json_string_value(json_array_get(names, from)));
	fputs("\r\n", out);
}

int jm_report_write_csv(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	static const char *const of_point[] = {"reference", "state", "runs_ok", "runs_failed",
		"outliers", "origin", "added_watts", NULL};
	static const char *const of_case[] = {"case_id", "repeat", "block", "position", "reference",
		"state", "status", "reason", "outlier", "grade", "origin", "items", "seconds",
		"joules", NULL};

	struct head head = {out, json_array()};
	size_t from;

	(void)err;
	put_head(&head, g, g->options.cases ? of_case : of_point, !g->options.cases);
	from = json_array_size(head.names);
	if (g->options.cases)
		jm_keys_columns(jm_record_keys, add_key, &head);
	fputs("\r\n", out);
	for (int i = 0; i < g->n_points && !g->options.cases; i++)
		put_point(g, &g->point[i], out);
	for (int i = 0; i < g->n_cases && g->options.cases; i++)
		put_case(g, &g->c[i], head.names, from, out);
	json_decref(head.names);
	return 0;
}
