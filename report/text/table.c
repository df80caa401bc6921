/* SPDX-License-Identifier: Apache-2.0 */
/* The report on a terminal. */
#include "table.h"
#include "base/text/json.h"
#include "run_tables.h"
#include "scaling_text.h"
#include "signature_text.h"
#include "training_text.h"
#include "phases.h"
#include "tuning_text.h"
#include "report/format/text.h"
#include "report/judge/capacity.h"
#include "report/judge/legend.h"
#include "report/judge/meaning.h"
#include "report/judge/next_command.h"
#include "report/judge/sentence.h"
#include "report/judge/series_table.h"
#include "report/judge/soft_control.h"
#include "report/judge/verdict.h"
#include "report/model/family.h"
#include "report/model/warnings.h"
#include "report/systems/published_table.h"

#include <stdlib.h>
#include <string.h>

static void put_title(const struct jm_grouping *g, const char *title, FILE *out)
{
	jm_text_title(out, title, g->options.bold, g->options.width);
}

#define VERDICT_COLUMN 30 /* where the settings begin, after the questions */
#define NARROW	       60

static void put_verdict_line(
	const struct jm_grouping *g, const char *title, const char *text, FILE *out)
{
	char line[900];

	jm_text_format(line, sizeof(line), "%-*s %s", VERDICT_COLUMN - 3, title, text);
	jm_text_wrap(
		out, line, 2, g->options.width < NARROW ? 4 : VERDICT_COLUMN, g->options.width);
}

/* Questions that have no answer for the same reason are named together, once. */
static void put_no_verdict(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, int n, int at, FILE *out)
{
	char title[80], names[400] = "", text[700];
	int alike = 0;

	for (int i = 0; i < n; i++) {
		if (v[i].kind != JM_VERDICT_NONE || strcmp(v[i].why, v[at].why) != 0)
			continue;
		if (i < at)
			return;
		jm_text_question(g, s, v[i].metric, title, sizeof(title));
		jm_text_append(names, sizeof(names), ", ", title);
		alike++;
	}
	jm_text_format(text, sizeof(text), "No best setting by %s: %s.",
		alike == n ? "any metric" : names, v[at].why);
	jm_text_wrap(out, text, 2, 4, g->options.width);
}

/* What the metrics are that combine energy and time, where one of them has a best setting. */
static void put_products(const struct jm_grouping *g, const struct jm_group_series *s,
	const struct jm_verdict *v, int n, FILE *out)
{
	bool any = false;
	char text[400];

	for (int i = 0; i < n; i++)
		any = any || (v[i].kind != JM_VERDICT_NONE &&
				     (v[i].metric == JM_M_EDP || v[i].metric >= JM_M_EDS));
	if (!any)
		return;
	jm_text_products(s, text, sizeof(text));
	jm_text_wrap(out, text, 2, 4, g->options.width);
}

/* What to type next, on a line of its own to copy. */
static void put_next(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char text[400];

	if (jm_next_command(g, s, text, sizeof(text)))
		fprintf(out, "  Next: %s\n", text);
	else if (jm_next_limit(g, s, text, sizeof(text)))
		jm_text_wrap(out, text, 2, 4, g->options.width);
}

/* Can settings be compared by their energy? If not, the metrics below give the reason. */
static bool has_conclusion(const struct jm_grouping *g, const struct jm_group_series *s)
{
	struct jm_verdict v[JM_VERDICT_MAX];
	int n = jm_verdicts(g, s, v);

	if (g->options.objective != JM_OBJECTIVE_SLOWDOWN) /* it was asked for */
		return true;
	for (int i = 0; i < n && s->reference >= 0; i++)
		if (v[i].metric == JM_M_JOULES_ITEM)
			return v[i].kind != JM_VERDICT_NONE;
	return false;
}

static void put_within(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char title[120], text[400];

	if (!has_conclusion(g, s))
		return;
	put_title(g, jm_text_within_title(g, title, sizeof(title)), out);
	jm_text_within_answer(g, s, text, sizeof(text));
	jm_text_wrap(out, text, 2, 4, g->options.width);
	put_next(g, s, out);
	fputc('\n', out);
}

static void put_verdicts(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	struct jm_verdict v[JM_VERDICT_MAX];
	char title[80], text[400];
	int n = jm_verdicts(g, s, v);

	if (s->n_points < 2)
		return;
	put_within(g, s, out);
	put_title(g, "Best setting by one metric alone", out);
	for (int i = 0; i < n; i++) {
		if (v[i].kind == JM_VERDICT_NONE) {
			put_no_verdict(g, s, v, n, i, out);
			continue;
		}
		if (jm_verdict_repeats(g, v, n, i) >= 0)
			continue;
		jm_text_question(g, s, v[i].metric, title, sizeof(title));
		jm_text_verdict(g, s, &v[i], text, sizeof(text));
		put_verdict_line(g, title, text, out);
	}
	put_products(g, s, v, n, out);
	fputc('\n', out);
}

static void put_note(const struct jm_grouping *g, const char *text, FILE *out)
{
	jm_text_wrap(out, text, 2, 5, g->options.width);
}

/* Is there a column of median, 99th percentile or maximum power over several meters? */
static bool says_sums(const struct jm_grouping *g, const struct jm_group_series *s)
{
	return s->has_energy && s->n_meters > 1 &&
	       (jm_series_table_lists(g, "watts_median") || jm_series_table_lists(g, "watts_p99") ||
		       jm_series_table_lists(g, "watts_max"));
}

/* What to note about the runs, the user's figures, and how many nodes a rack feeds. */
static void put_warnings(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	json_t *warnings = jm_warnings(g, s);
	const json_t *warning;
	char line[500];
	size_t i;

	json_array_foreach(warnings, i, warning)
		jm_text_wrap(out, json_string_value(warning), 2, 4, g->options.width);
	json_decref(warnings);
	jm_text_figures(g, line, sizeof(line));
	if (*line)
		jm_text_wrap(out, line, 2, 4, g->options.width);
	for (int k = 0; k < s->n_points && g->options.rack_watts > 0; k++) {
		jm_text_capacity(g, &g->point[s->first_point + k], line, sizeof(line));
		jm_text_wrap(out, line, 2, 4, g->options.width);
	}
}

/* Is there a column of energy saved or slowdown? */
static bool says_relative(const struct jm_grouping *g)
{
	const char *list = g->options.columns;

	return !list || !strcmp(list, "all") || strstr(list, "energy_gain") ||
	       strstr(list, "time_loss") || strstr(list, "gain_minus");
}

/* The columns that compare with the reference. */
static void put_relative(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char text[400];

	jm_text_relative(g, s, text, sizeof(text));
	jm_text_wrap(out, text, 2, 4, g->options.width);
	if (jm_text_paired(g, s, text, sizeof(text)))
		jm_text_wrap(out, text, 2, 4, g->options.width);
}

static void put_edp(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	const char *list = g->options.columns;
	char text[160];

	if (!jm_group_has_metric(g, s, JM_M_EDP) ||
		(list && strcmp(list, "all") != 0 && !strstr(list, "edp")))
		return;
	jm_text_meaning(g, s->item, JM_M_EDP, text, sizeof(text));
	jm_text_wrap(out, text, 2, 4, g->options.width);
}

static void put_lines(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	struct jm_text_sign signs[JM_TEXT_SIGNS];
	char reasons[1800], grade[80], line[2000];

	if (s->reference >= 0) {
		snprintf(line, sizeof(line), "*  the reference: %s", jm_text_reference(g, s));
		put_note(g, line, out);
	}
	for (const struct jm_text_sign *sign = jm_text_signs(g, s, signs); sign->sign; sign++) {
		snprintf(line, sizeof(line), "%s%s%s", sign->sign,
			jm_text_width(sign->sign) == 1 ? "  " : " ", sign->meaning);
		put_note(g, line, out);
	}
	if (says_sums(g, s))
		put_note(g, "median, p99 and max W are the sums of those of the meters", out);
	if (jm_text_sums(g, s, line, sizeof(line)))
		put_note(g, line, out);
	if (jm_text_held(g, s, line, sizeof(line)))
		jm_text_wrap(out, line, 2, 4, g->options.width);
	if (jm_text_share(g, s))
		jm_text_wrap(out, jm_text_share(g, s), 2, 4, g->options.width);
	if (s->reference >= 0 && says_relative(g))
		put_relative(g, s, out);
	else if (s->reference < 0 && s->has_energy)
		put_edp(g, s, out);
	if (*s->grade) {
		jm_text_quality(
			g, &g->series[g->point[s->first_point].series], reasons, sizeof(reasons));
		jm_text_grade(s->grade, jm_text_energy_origin(g, s), grade, sizeof(grade));
		snprintf(line, sizeof(line), "quality %s%s%s", grade,
			!*reasons	 ? ""
			: g->options.why ? ". "
					 : "; 'joulemark report --why' gives the reasons",
			g->options.why ? reasons : "");
		jm_text_wrap(out, line, 2, 4, g->options.width);
	}
	put_warnings(g, s, out);
}

/* What the table's signs and columns mean, the grade, the warnings; and an empty line if there is
 * any of these. */
static void put_notes(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char *text = NULL;
	size_t n = 0;
	FILE *lines = open_memstream(&text, &n);

	if (!lines)
		return;
	put_lines(g, s, lines);
	if (!fclose(lines) && n)
		fprintf(out, "%s\n", text);
	free(text);
}

static void put_failures(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char text[900];

	if (!s->n_failed)
		return;
	fprintf(out, "Failed: %d of %d runs%s\n", s->n_failed, s->n_failed + s->n_ok,
		g->options.told ? "; the reason is above" : "");
	for (int i = 0; i < g->n_cases && !g->options.told; i++) {
		if (g->c[i].ok || &g->series[g->c[i].series] != s)
			continue;
		jm_text_failure(g, &g->c[i], text, sizeof(text));
		jm_text_wrap(out, text, 2, 4, g->options.width);
	}
	fputc('\n', out);
}

/* Where the energy comes from, and what the "±" means. */
static void put_caption(const struct jm_grouping *g, const struct jm_group_series *s, FILE *out)
{
	char energy[200], spread[120], text[400], machine[900];

	jm_text_energy(g, s, energy, sizeof(energy));
	jm_text_spread(g, s, spread, sizeof(spread));
	snprintf(text, sizeof(text), "%s%s", energy, spread);
	jm_text_wrap(out, text, 0, 2, g->options.width);
	jm_text_machine(g, s, machine, sizeof(machine));
	if (*machine)
		jm_text_wrap(out, machine, 0, 2, g->options.width);
	fputc('\n', out);
}

static void put_phases_of(
	const struct jm_grouping *g, const struct jm_group_case *c, const char *member, FILE *out)
{
	const struct jm_group_series *s = &g->series[c->series];
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;
	const char *comma = *member ? ", " : "";
	char title[460];

	if (!jm_phases_several(c->record) ||
		jm_phases_grid(c->record, false, jm_json_text(c->record, "unit"), &grid, &none))
		return;
	if (s->n_ok + s->n_failed > 1)
		jm_text_format(title, sizeof(title), "Phases of %s%s%s, repeat %d", member, comma,
			g->point[c->point].label,
			(int)json_integer_value(
				json_object_get(json_object_get(c->record, "case"), "repeat")));
	else
		jm_text_format(title, sizeof(title), "Phases%s%s", comma, member);
	put_title(g, title, out);
	jm_grid_print(&grid, 0, g->options.width, out);
	jm_grid_done(&grid);
	fputc('\n', out);
}

/* Of a training on pictures: top1, and the loading. */
static void put_learnt(const struct jm_grouping *g, const struct jm_group_case *c, FILE *out)
{
	char text[800];

	jm_text_learnt(c->record, text, sizeof(text));
	if (!*text)
		return;
	jm_text_wrap(out, text, 2, 4, g->options.width);
	fputc('\n', out);
}

/* Of work whose setting was tuned while it ran: the choice, and the curve that was seen. */
static void put_tuned(const struct jm_grouping *g, const struct jm_group_case *c, FILE *out)
{
	const json_t *tune = json_object_get(c->record, "tune");
	struct jm_err none = JM_ERR_INIT;
	struct jm_grid grid;

	if (!tune && !json_object_get(c->record, "budget") && !json_object_get(c->record, "policy"))
		return;
	put_title(g, "Tuning", out);
	jm_tuning_print(c->record, out, g->options.width);
	fputc('\n', out);
	if (jm_tuning_curve(tune, &grid, &none))
		return;
	jm_grid_print(&grid, 0, g->options.width, out);
	jm_grid_done(&grid);
	fputc('\n', out);
}

/* Of a single run, and of each where they are asked for. */
static void put_phases(
	const struct jm_grouping *g, const struct jm_group_series *s, const char *member, FILE *out)
{
	if (!g->options.phases && s->n_ok != 1)
		return;
	for (int i = 0; i < g->n_cases; i++) {
		if (!g->c[i].ok || &g->series[g->c[i].series] != s)
			continue;
		put_learnt(g, &g->c[i], out);
		put_tuned(g, &g->c[i], out);
		put_phases_of(g, &g->c[i], member, out);
	}
}

struct printed {
	const struct jm_grouping *g;
	const char *member; /* of a family: "rate 10"; "" = the series is alone */
	FILE *out;
};

static void put_heading(void *to, const char *title, const char *caption)
{
	const struct printed *p = to;
	char line[300];

	jm_text_format(line, sizeof(line), "%s%s%s", title, *p->member ? ", " : "", p->member);
	put_title(p->g, line, p->out);
	jm_text_wrap(p->out, caption, 0, 2, p->g->options.width);
	fputc('\n', p->out);
}

static void put_grid(void *to, struct jm_grid *grid)
{
	const struct printed *p = to;

	jm_grid_print(grid, 0, p->g->options.width, p->out);
	fputc('\n', p->out);
}

#define WHY_NOT 700

/* Why no member has a best setting by metric number i: the reason that all share, or each with its
 * own; false: one has one. */
static bool why_no_member(
	const struct jm_grouping *g, const struct jm_family *f, int i, char *out, size_t size)
{
	struct jm_verdict first[JM_VERDICT_MAX], v[JM_VERDICT_MAX];
	bool same = true;
	char name[200];

	jm_verdicts(g, &g->series[f->first], first);
	*out = '\0';
	for (int k = 0; k < f->n; k++) {
		jm_verdicts(g, &g->series[f->first + k], v);
		if (v[i].kind != JM_VERDICT_NONE)
			return false;
		same = same && !strcmp(v[i].why, first[i].why);
		jm_family_name(g, f, k, name, sizeof(name));
		jm_text_append(out, size, "; ", name);
		jm_text_append(out, size, ": ", v[i].why);
	}
	if (same)
		jm_text_format(out, size, "%s", first[i].why);
	return true;
}

/* Metrics by which no member has a best setting, those of one reason together. why: [n], "" where
 * one has. */
static void put_family_none(const struct jm_grouping *g, const struct jm_family *f,
	const struct jm_verdict *v, char why[][WHY_NOT], int n, FILE *out)
{
	char title[80], names[400], text[WHY_NOT + 420];

	for (int i = 0; i < n; i++) {
		int alike = 0;

		*names = '\0';
		for (int k = 0; *why[i] && k < n; k++) {
			if (strcmp(why[k], why[i]) != 0)
				continue;
			if (k < i) /* it is in the line of that one */
				break;
			jm_text_question(g, &f->all, v[k].metric, title, sizeof(title));
			jm_text_append(names, sizeof(names), ", ", title);
			alike++;
		}
		if (!alike)
			continue;
		jm_text_format(text, sizeof(text), "No best setting by %s: %s.",
			alike == n ? "any metric" : names, why[i]);
		jm_text_wrap(out, text, 2, 4, g->options.width);
	}
}

/* By one metric, the best setting of each member: settings, not the axes. */
static void put_family_verdict(
	const struct jm_grouping *g, const struct jm_family *f, int i, FILE *out)
{
	struct jm_verdict v[JM_VERDICT_MAX];
	char title[80], name[200], text[400], line[700];

	for (int k = 0; k < f->n; k++) {
		const struct jm_group_series *s = &g->series[f->first + k];

		jm_verdicts(g, s, v);
		jm_text_question(g, &f->all, v[i].metric, title, sizeof(title));
		if (!k)
			jm_text_wrap(out, title, 2, 4, g->options.width);
		jm_family_name(g, f, k, name, sizeof(name));
		jm_text_verdict(g, s, &v[i], text, sizeof(text));
		jm_text_format(line, sizeof(line), "%s: %s", name, text);
		jm_text_wrap(out, line, 4, 6, g->options.width);
	}
}

/* The leading answer of each member. */
static void put_family_within(const struct jm_grouping *g, const struct jm_family *f, FILE *out)
{
	char title[120], name[200], text[400], line[700];
	bool any = false;

	for (int k = 0; k < f->n; k++)
		any = any || has_conclusion(g, &g->series[f->first + k]);
	if (!any)
		return;
	put_title(g, jm_text_within_title(g, title, sizeof(title)), out);
	for (int k = 0; k < f->n; k++) {
		jm_text_within_answer(g, &g->series[f->first + k], text, sizeof(text));
		jm_family_name(g, f, k, name, sizeof(name));
		jm_text_format(line, sizeof(line), "%s: %s", name, text);
		jm_text_wrap(out, line, 2, 4, g->options.width);
	}
	fputc('\n', out);
}

static void put_family_verdicts(const struct jm_grouping *g, const struct jm_family *f, FILE *out)
{
	char why[JM_VERDICT_MAX][WHY_NOT] = {""};
	struct jm_verdict v[JM_VERDICT_MAX];
	int n = jm_verdicts(g, &g->series[f->first], v);

	put_family_within(g, f, out);
	put_title(g, "Best setting by one metric alone", out);
	for (int i = 0; i < n; i++) {
		if (why_no_member(g, f, i, why[i], WHY_NOT))
			continue;
		*why[i] = '\0';
		put_family_verdict(g, f, i, out);
	}
	put_family_none(g, f, v, why, n, out);
	put_products(g, &f->all, v, n, out);
	fputc('\n', out);
}

/* What to note of each member; those that have nothing are left out. */
static void put_family_warnings(const struct jm_grouping *g, const struct jm_family *f, FILE *out)
{
	char name[200], line[600];
	const json_t *warning;
	size_t i;

	for (int k = 0; k < f->n; k++) {
		json_t *warnings = jm_warnings(g, &g->series[f->first + k]);

		jm_family_name(g, f, k, name, sizeof(name));
		json_array_foreach(warnings, i, warning)
		{
			jm_text_format(
				line, sizeof(line), "%s: %s", name, json_string_value(warning));
			jm_text_wrap(out, line, 2, 4, g->options.width);
		}
		json_decref(warnings);
	}
}

static void put_runs(
	const struct jm_grouping *g, const struct jm_group_series *s, const char *member, FILE *out)
{
	struct printed to = {g, member, out};

	jm_run_tables_each(g, s, &(struct jm_run_tables_to){put_heading, put_grid, &to});
	put_phases(g, s, member, out);
	put_failures(g, s, out);
}

static int put_family(
	const struct jm_grouping *g, const struct jm_family *f, FILE *out, struct jm_err *err)
{
	struct jm_grid grid;
	char name[200];
	int rc = jm_series_table_of_family(&grid, g, f, err);

	if (rc)
		return rc;
	put_title(g, f->all.title, out);
	put_caption(g, &f->all, out);
	jm_grid_print(&grid, 0, g->options.width, out);
	jm_grid_done(&grid);
	fputc('\n', out);
	put_family_warnings(g, f, out);
	put_notes(g, &f->all, out);
	put_family_verdicts(g, f, out);
	for (int i = 0; i < f->n; i++) {
		jm_family_name(g, f, i, name, sizeof(name));
		put_runs(g, &g->series[f->first + i], name, out);
	}
	return 0;
}

static int put_series(
	const struct jm_grouping *g, const struct jm_group_series *s, FILE *out, struct jm_err *err)
{
	struct jm_grid grid;
	int rc = jm_series_table_of(&grid, g, s, err);

	if (rc)
		return rc;
	put_title(g, s->title, out);
	put_caption(g, s, out);
	jm_grid_print(&grid, 0, g->options.width, out);
	jm_grid_done(&grid);
	fputc('\n', out);
	put_notes(g, s, out);
	put_verdicts(g, s, out);
	put_runs(g, s, "", out);
	return rc;
}

int jm_report_write_table(const struct jm_grouping *g, FILE *out, struct jm_err *err)
{
	struct jm_family f;
	int rc = 0;

	for (int i = 0; i < g->n_series && !rc; i += f.n) {
		jm_family_of(g, i, &f);
		rc = f.n > 1 ? put_family(g, &f, out, err) : put_series(g, &g->series[i], out, err);
	}
	if (!rc)
		jm_signature_print(g, out);
	if (!rc)
		jm_scaling_print(g, out);
	return rc || !g->options.published ? rc : jm_published_write_table(g, out, err);
}
