/* SPDX-License-Identifier: Apache-2.0 */
/* Text has the topmost meters as far as they fit on the line; CSV and JSON have all of them. */
#include "watch_show.h"
#include "cli/frame/screen.h"

#include "base/clock.h"
#include "base/text/csv_fields.h"
#include "base/text/json.h"
#include "report/format/text.h"
#include "result/record.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define CLOCK	   8 /* 12:34:56 */
#define TENTHS	   2 /* .7 */
#define COLUMN	   10
#define LABEL	   7
#define HEAD_EVERY 20 /* lines */
#define MOST	   (JM_WIDTH_MOST / COLUMN)

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

/* ---- text ---- */

struct column {
	char label[32];
	enum jm_origin origin;
	double value;
	int decimals;
};

struct columns {
	struct column column[MOST];
	int n, room, left_out;
};

static void add_column(
	struct columns *c, const char *label, const char *unit, enum jm_origin origin, double value)
{
	struct column *column = &c->column[c->n];

	if (c->n >= c->room) {
		c->left_out++;
		return;
	}
	snprintf(column->label, sizeof(column->label), "%s %s", label, unit);
	column->origin = origin;
	column->value = value;
	column->decimals = value < 1e5 ? 1 : 0;
	c->n++;
}

/* As many words of the label as fit: "GPU 0" of "GPU 0 NVIDIA H200". */
static void short_label(const char *label, char *ret)
{
	size_t n = strlen(label);

	while (n > LABEL) {
		while (n && label[n - 1] != ' ')
			n--;
		while (n && label[n - 1] == ' ')
			n--;
	}
	snprintf(ret, LABEL + 1, "%.*s", n ? (int)n : LABEL, label);
}

static void add_totals(const struct jm_watch_show *show, struct columns *c)
{
	for (int i = 0; i < JM_ORIGIN_COUNT; i++) {
		enum jm_origin origin = jm_origin_order[i];
		struct jm_live_total total = jm_live_total(show->live, origin);
		bool any = false;

		for (int k = 0; k < show->set->n; k++)
			any = any || show->set->meter[k].origin == origin;
		if (!any)
			continue;
		add_column(c, "sum", "W", origin, total.watts);
		add_column(c, "sum", "J", origin, total.joules);
	}
}

/* Of those that this meter has. */
static void add_extras(
	const struct jm_watch_show *show, struct columns *c, int meter, const char *label)
{
	for (int k = 0; k < show->n_extra; k++) {
		const struct jm_watch_extra *extra = show->extra[k];
		int before = c->n;

		if (jm_meter_signal(show->set, meter, extra->quantity) < 0)
			continue;
		add_column(c, strlen(extra->title) > 3 ? "" : label, extra->title,
			show->set->meter[meter].origin,
			jm_watch_extra_value(extra, show->session, meter) * extra->scale);
		if (c->n > before)
			c->column[before].decimals = extra->decimals;
	}
}

/* Columns for tenths of a second in the time of a line; 0 for intervals of 1 s or more. */
static int tenths_of(const struct jm_watch_show *show)
{
	return show->interval_ns < JM_SECOND ? TENTHS : 0;
}

static void make_columns(const struct jm_watch_show *show, struct columns *c)
{
	char label[LABEL + 1];

	*c = (struct columns){.room = (show->width - CLOCK - tenths_of(show)) / COLUMN};
	if (c->room > MOST)
		c->room = MOST;
	add_totals(show, c);
	for (int i = 0; i < show->set->n; i++) {
		const struct jm_meter *m = &show->set->meter[i];

		if (m->covered_by >= 0 || m->scope == JM_SCOPE_CONTEXT)
			continue;
		short_label(m->label, label);
		add_column(c, label, "W", m->origin, jm_live_meter(show->live, i)->watts);
		add_extras(show, c, i, label);
	}
}

/* tenths: columns of the time's fraction */
static void put_head(const struct columns *c, int tenths, FILE *out)
{
	fprintf(out, "%-*s", CLOCK + tenths, "time");
	for (int i = 0; i < c->n; i++)
		fprintf(out, "%*s%s", COLUMN - jm_text_width(c->column[i].label), "",
			c->column[i].label);
	fprintf(out, "\n%-*s", CLOCK + tenths, "");
	for (int i = 0; i < c->n; i++)
		fprintf(out, "%*s", COLUMN, jm_origin_name(c->column[i].origin));
	fputc('\n', out);
	if (c->left_out)
		fprintf(out, "(+%d not shown)\n", c->left_out);
}

static void put_text(struct jm_watch_show *show, FILE *out, int64_t wall_ns)
{
	time_t wall = (time_t)(wall_ns / JM_SECOND);
	int tenths = tenths_of(show);
	struct columns c;
	char clock[16];
	struct tm tm;

	make_columns(show, &c);
	if (!show->lines || (show->repeat_head && show->lines % HEAD_EVERY == 0))
		put_head(&c, tenths, out);
	localtime_r(&wall, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	fputs(clock, out);
	if (tenths)
		fprintf(out, ".%d", (int)(wall_ns % JM_SECOND / (JM_SECOND / 10)));
	for (int i = 0; i < c.n; i++) {
		double value = c.column[i].value;

		if (isnan(value))
			fprintf(out, "%*s", COLUMN, "-");
		else
			fprintf(out, "%*.*f", COLUMN, c.column[i].decimals, value);
	}
	fputc('\n', out);
}

/* ---- CSV ---- */

static void put_number(FILE *out, double value)
{
	fputc(',', out);
	if (!isnan(value))
		fprintf(out, "%.9g", value);
}

static void put_field(FILE *out, const char *text)
{
	fputc(',', out);
	jm_csv_put_text(out, text);
}

static void put_csv_head(const struct jm_watch_show *show, FILE *out)
{
	fputs("time,meter,label,scope,covered_by,origin,from_s,until_s,watts_W,error_W,energy_J",
		out);
	for (int k = 0; k < show->n_extra; k++)
		fprintf(out, ",%s", show->extra[k]->key);
	fputs("\r\n", out);
}

static void put_extras(const struct jm_watch_show *show, FILE *out, int meter)
{
	for (int k = 0; k < show->n_extra; k++)
		put_number(out, jm_watch_extra_value(show->extra[k], show->session, meter));
}

static void put_csv(const struct jm_watch_show *show, FILE *out, const char *time)
{
	if (!show->lines)
		put_csv_head(show, out);
	for (int i = 0; i < show->set->n; i++) {
		const struct jm_meter *m = &show->set->meter[i];
		const struct jm_live_meter *now = jm_live_meter(show->live, i);

		if (m->scope == JM_SCOPE_CONTEXT)
			continue;
		fputs(time, out);
		put_field(out, m->id);
		put_field(out, m->label);
		put_field(out, jm_scope_name(m->scope));
		put_field(out, m->covered_by < 0 ? "" : show->set->meter[m->covered_by].id);
		put_field(out, jm_origin_name(m->origin));
		put_number(out, seconds(now->t0_ns - show->start_ns));
		put_number(out, seconds(now->t1_ns - show->start_ns));
		put_number(out, now->watts);
		put_number(out, now->error_watts);
		put_number(out, now->t1_ns > now->t0_ns ? now->joules : NAN);
		put_extras(show, out, i);
		fputs("\r\n", out);
	}
}

static void put_wide_head(const struct jm_watch_show *show, FILE *out)
{
	char name[JM_ID_MAX + 32];

	fputs("time", out);
	for (int i = 0; i < show->set->n; i++) {
		const char *id = show->set->meter[i].id;

		if (show->set->meter[i].scope == JM_SCOPE_CONTEXT)
			continue;
		put_field(out, id);
		for (int k = 0; k < show->n_extra; k++) {
			snprintf(name, sizeof(name), "%s %s", id, show->extra[k]->key);
			put_field(out, name);
		}
	}
	fputs("\r\n", out);
}

static void put_csv_wide(const struct jm_watch_show *show, FILE *out, const char *time)
{
	if (!show->lines)
		put_wide_head(show, out);
	fputs(time, out);
	for (int i = 0; i < show->set->n; i++)
		if (show->set->meter[i].scope != JM_SCOPE_CONTEXT) {
			put_number(out, jm_live_meter(show->live, i)->watts);
			put_extras(show, out, i);
		}
	fputs("\r\n", out);
}

/* ---- JSON ---- */

static json_t *meter_json(const struct jm_watch_show *show, int i)
{
	const struct jm_meter *m = &show->set->meter[i];
	const struct jm_live_meter *now = jm_live_meter(show->live, i);
	int above = m->covered_by;
	json_t *json = json_object();

	jm_json_set_text(&json, "id", m->id);
	jm_json_set_text(&json, "label", m->label);
	jm_json_set_text(&json, "scope", jm_scope_name(m->scope));
	jm_json_set_text(&json, "covered_by", above < 0 ? NULL : show->set->meter[above].id);
	jm_json_set_text(&json, "origin", jm_origin_name(m->origin));
	jm_json_set_number(&json, "from_s", seconds(now->t0_ns - show->start_ns));
	jm_json_set_number(&json, "until_s", seconds(now->t1_ns - show->start_ns));
	jm_json_set_number(&json, "watts", now->watts);
	jm_json_set_number(&json, "error_watts", now->error_watts);
	jm_json_set_number(&json, "joules", now->t1_ns > now->t0_ns ? now->joules : NAN);
	for (int k = 0; k < show->n_extra; k++)
		json_object_set_new(json, show->extra[k]->key,
			jm_json_number(jm_watch_extra_value(show->extra[k], show->session, i)));
	return json;
}

static json_t *total_json(const struct jm_watch_show *show)
{
	json_t *total = json_object();

	for (int i = 0; i < JM_ORIGIN_COUNT; i++) {
		enum jm_origin origin = jm_origin_order[i];
		struct jm_live_total sum = jm_live_total(show->live, origin);
		char key[40];

		snprintf(key, sizeof(key), "watts_%s", jm_origin_name(origin));
		json_object_set_new(total, key, jm_json_number(sum.watts));
		snprintf(key, sizeof(key), "joules_%s", jm_origin_name(origin));
		json_object_set_new(total, key, jm_json_number(sum.joules));
	}
	return total;
}

static void put_json(const struct jm_watch_show *show, FILE *out, const char *time, int64_t t_ns)
{
	json_t *meters = json_array(), *line;

	for (int i = 0; i < show->set->n; i++)
		if (show->set->meter[i].scope != JM_SCOPE_CONTEXT)
			json_array_append_new(meters, meter_json(show, i));
	line = json_pack("{s:s, s:I, s:f, s:o, s:o}", "time", time, "start_ns",
		(json_int_t)show->start_ns, "elapsed_s", seconds(t_ns - show->start_ns), "meters",
		meters, "total", total_json(show));
	json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
	fputc('\n', out);
	json_decref(line);
}

void jm_watch_put(struct jm_watch_show *show, FILE *out, int64_t wall_ns, int64_t t_ns)
{
	char time[40];

	jm_time_text(wall_ns, time, sizeof(time));
	if (show->format == JM_WATCH_TEXT)
		put_text(show, out, wall_ns);
	else if (show->format == JM_WATCH_CSV)
		put_csv(show, out, time);
	else if (show->format == JM_WATCH_CSV_WIDE)
		put_csv_wide(show, out, time);
	else
		put_json(show, out, time, t_ns);
	show->lines++;
}
