/* SPDX-License-Identifier: Apache-2.0 */
#include "grouping.h"
#include "base/text/json.h"
#include "case_order.h"
#include "dimension.h"
#include "family.h"
#include "machine_effect.h"
#include "pareto.h"
#include "report/format/text.h"
#include "result/metric_figures.h"
#include "result/record_keys.h"
#include "title.h"
#include "warnings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double default_k[] = {1.5, 2.0};

const char *jm_group_state_name(enum jm_group_state state)
{
	switch (state) {
#define X(id, name)                                                                                \
	case JM_STATE_##id:                                                                        \
		return name;
		JM_GROUP_STATES(X)
#undef X
	}
	return "unknown";
}

void jm_group_metric_name(const struct jm_grouping *g, int metric, char *out, size_t size)
{
	if (metric < JM_M_EDS)
		snprintf(out, size, "%s", jm_metrics[metric].name);
	else
		snprintf(out, size, "eds_k%.6g", g->options.k[metric - JM_M_EDS]);
}

void jm_group_metric_title(const struct jm_grouping *g, const struct jm_group_series *s, int metric,
	char *out, size_t size)
{
	if (metric < JM_M_EDS)
		jm_text_item(jm_metrics[metric].title, s->item, out, size);
	else
		snprintf(out, size, "EDS k=%.6g", g->options.k[metric - JM_M_EDS]);
}

void jm_group_metric_unit(const struct jm_group_series *s, int metric, char *out, size_t size)
{
	jm_text_item(metric < JM_M_EDS ? jm_metrics[metric].unit : "1", s->item, out, size);
}

int jm_group_metric_better(int metric)
{
	return metric < JM_M_EDS ? jm_metrics[metric].better : -1;
}

bool jm_group_metric_energy(int metric)
{
	return metric < JM_M_EDS ? jm_metrics[metric].energy : true;
}

static int json_int(const json_t *object, const char *key, int fallback)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) ? (int)json_integer_value(value) : fallback;
}

/* Index of the machine in the group's list, to which it is added; by_key: those that are there. */
static int number_machine(struct jm_grouping *g, struct jm_machine *m, json_t *by_key)
{
	char *key = jm_machine_key(m, false);
	const json_t *known = key ? json_object_get(by_key, key) : NULL;
	int index = known ? (int)json_integer_value(known) : g->n_machines;

	if (!known && key && !json_object_set_new_nocheck(by_key, key, json_integer(index)))
		g->machine[g->n_machines++] = *m;
	else
		jm_machine_done(m);
	free(key);
	return index;
}

/* The work and the machine, or of pooled ones their kind. */
static int find_machine(
	struct jm_grouping *g, const json_t *record, json_t *by_key, struct jm_group_case *c)
{
	char *work = jm_dim_series_key(g, record), *machine;
	struct jm_machine m;

	if (!work || jm_machine_of(record, &m)) {
		free(work);
		return -1;
	}
	machine = jm_machine_key(&m, g->options.pool_devices);
	c->machine = number_machine(g, &m, by_key);
	if (!machine || asprintf(&c->series_key, "%s\n%s", work, machine) < 0)
		c->series_key = NULL;
	free(machine);
	free(work);
	return c->series_key ? 0 : -1;
}

/* What matrix products reach on the same device in the same precision is the peak of other work
 * there. */
static const char *peak_key(const json_t *record, char *out, size_t size)
{
	const json_t *host = json_object_get(json_object_get(record, "provenance"), "host");

	snprintf(out, size, "%.60s %.60s %.20s",
		json_is_string(host) ? json_string_value(host) : "", jm_json_text(record, "device"),
		jm_json_text(record, "precision"));
	return out;
}

static int find_peaks(struct jm_grouping *g, const json_t *records)
{
	const json_t *record;
	char key[160];
	size_t i;

	g->peaks = json_object();
	json_array_foreach(records, i, record)
	{
		double peak = jm_metric_peak(record), best;

		best = jm_json_real_of(g->peaks, peak_key(record, key, sizeof(key)));
		if (peak > 0 && !(peak <= best) &&
			json_object_set_new_nocheck(g->peaks, key, json_real(peak)))
			return -1;
	}
	return g->peaks ? 0 : -1;
}

static int read_case(struct jm_grouping *g, const json_t *record, json_t *by_key,
	struct jm_group_case *c, struct jm_err *err)
{
	const json_t *of_case = json_object_get(record, "case");
	struct jm_figures figures;
	char key[160];

	c->record = record;
	c->ok = !jm_metric_failed(record);
	c->block = json_int(of_case, "block", -1);
	c->reference = json_is_true(json_object_get(of_case, "reference"));
	jm_metric_measure(record, g->options.add_watts, g->options.idle_gpus, &c->m);
	figures = g->options.figures;
	figures.measured_flops = jm_json_real_of(g->peaks, peak_key(record, key, sizeof(key)));
	jm_metric_figures(record, &figures, &c->m);
	if (find_machine(g, record, by_key, c))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the report.");
	for (int i = 0; i < g->n_dims; i++) {
		if (jm_dim_value(&g->dim[i], record, &c->value[i]))
			return jm_err_set(err, JM_ENOMEM, "Out of memory for the report.");
		if (c->value[i].state > c->state)
			c->state = c->value[i].state;
	}
	return 0;
}

static bool same_point(
	const struct jm_grouping *g, const struct jm_group_case *a, const struct jm_group_case *b)
{
	if (strcmp(a->series_key, b->series_key) || a->reference != b->reference)
		return false;
	for (int i = 0; i < g->n_dims; i++)
		if (strcmp(a->value[i].key, b->value[i].key))
			return false;
	return true;
}

static int number_series(struct jm_grouping *g)
{
	json_t *by_key = json_object();
	int rc = by_key ? 0 : -1;

	for (int i = 0; i < g->n_cases && !rc; i++) {
		const json_t *known = json_object_get(by_key, g->c[i].series_key);

		g->c[i].series = known ? (int)json_integer_value(known) : g->n_series++;
		if (!known)
			rc = json_object_set_new_nocheck(
				by_key, g->c[i].series_key, json_integer(g->c[i].series));
	}
	json_decref(by_key);
	return rc ? rc : jm_family_gather(g);
}

/* The references of a series, a machine and a block: what a case of these is held against. */
struct reference {
	int series, machine, block;
	double joules_item, seconds_item, limit_watts;
	int n;
};

static int compare_references(const void *pa, const void *pb)
{
	const struct reference *a = pa, *b = pb;

	if (a->series != b->series)
		return a->series - b->series;
	return a->machine != b->machine ? a->machine - b->machine : a->block - b->block;
}

static struct reference key_of(const struct jm_group_case *c)
{
	return (struct reference){.series = c->series, .machine = c->machine, .block = c->block};
}

/* One row for each, sums over those of the same place. Returns how many. */
static size_t list_references(const struct jm_grouping *g, struct reference *list)
{
	size_t n = 0, merged = 0;

	for (int i = 0; i < g->n_cases; i++) {
		const struct jm_group_case *c = &g->c[i];

		if (!c->ok || !c->reference)
			continue;
		list[n] = key_of(c);
		list[n].joules_item = c->m.value[JM_M_JOULES_ITEM];
		list[n].seconds_item = c->m.seconds_item;
		list[n].limit_watts = jm_metric_limit(c->record);
		list[n++].n = 1;
	}
	qsort(list, n, sizeof(*list), compare_references);
	for (size_t i = 0; i < n; i++) {
		if (!merged || compare_references(&list[merged - 1], &list[i])) {
			list[merged++] = list[i];
			continue;
		}
		list[merged - 1].joules_item += list[i].joules_item;
		list[merged - 1].seconds_item += list[i].seconds_item;
		list[merged - 1].limit_watts += list[i].limit_watts;
		list[merged - 1].n++;
	}
	return merged;
}

static int relate_cases(struct jm_grouping *g)
{
	struct reference *list = calloc((size_t)g->n_cases, sizeof(*list));
	size_t n = list ? list_references(g, list) : 0;

	for (int i = 0; i < g->n_cases && n; i++) {
		struct jm_group_case *c = &g->c[i];
		const struct reference key = key_of(c), *found;
		struct jm_measured ref = {.seconds_item = 0};

		found = bsearch(&key, list, n, sizeof(*list), compare_references);
		if (!found || !c->ok)
			continue;
		ref.value[JM_M_JOULES_ITEM] = found->joules_item / found->n;
		ref.seconds_item = found->seconds_item / found->n;
		jm_metric_relate(&c->m, &ref, g->options.k, g->options.n_k);
		c->m.value[JM_M_ZEUS] =
			jm_metric_zeus(g->options.figures.zeus_eta, c->m.value[JM_M_JOULES_ITEM],
				c->m.seconds_item, found->limit_watts / found->n);
	}
	free(list);
	return list ? 0 : -1;
}

/* Among the runs of one machine: cards differ from each other by more than runs do. */
static void mark_outliers_of(
	struct jm_group_case *c, int n, int machine, double *values, bool *flags)
{
	static const int watched[] = {JM_M_THROUGHPUT, JM_M_JOULES_ITEM};

	for (size_t m = 0; m < 2; m++) {
		for (int i = 0; i < n; i++)
			values[i] = c[i].machine == machine ? c[i].m.value[watched[m]] : NAN;
		jm_stat_outliers(values, n, flags);
		for (int i = 0; i < n; i++)
			c[i].outlier = c[i].outlier || flags[i];
	}
}

/* Is it the first of these cases that has its machine? */
static bool has_new_machine(const struct jm_group_case *c, int i)
{
	int k = 0;

	while (c[k].machine != c[i].machine)
		k++;
	return k == i;
}

static void mark_outliers(struct jm_grouping *g, struct jm_group_point *p, int first, int n)
{
	struct jm_group_case *c = &g->c[first];
	double *values = calloc((size_t)n, sizeof(*values));
	bool *flags = calloc((size_t)n, sizeof(*flags));

	for (int i = 0; values && flags && i < n; i++)
		if (has_new_machine(c, i))
			mark_outliers_of(c, n, c[i].machine, values, flags);
	for (int i = 0; i < n; i++)
		p->n_outliers += c[i].outlier;
	free(flags);
	free(values);
}

static int point_stats(
	struct jm_grouping *g, struct jm_group_point *p, int first, int n, struct jm_err *err)
{
	double *values = calloc((size_t)n, sizeof(*values));

	if (!values)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d repeats.", n);
	for (int m = 0; m < JM_M_ALL; m++) {
		for (int i = 0; i < n; i++)
			values[i] = g->c[first + i].m.value[m];
		jm_stat_of(values, n, &p->stat[m]);
	}
	free(values);
	jm_shares_reject(p);
	mark_outliers(g, p, first, n);
	return 0;
}

static void judge_point(struct jm_group_point *p)
{
	p->eligible = false;
	if (!p->n_ok)
		snprintf(p->why_not, sizeof(p->why_not), "no run of this setting succeeded");
	else if (p->state == JM_STATE_VIOLATED)
		snprintf(p->why_not, sizeof(p->why_not), "this setting was violated");
	else if (p->late)
		snprintf(p->why_not, sizeof(p->why_not), "a p99 exceeds --ttft or --tpot");
	else
		p->eligible = true;
}

static void read_enforced(const struct jm_group_case *c, int n, int dim, struct jm_group_point *p)
{
	p->accepted[dim] = p->enforced_min[dim] = p->enforced_max[dim] = NAN;
	for (int i = 0; i < n; i++) {
		const struct jm_group_value *v = &c[i].value[dim];

		p->accepted[dim] = fmin(p->accepted[dim], v->accepted);
		p->enforced_min[dim] = fmin(p->enforced_min[dim], v->enforced_min);
		p->enforced_max[dim] = fmax(p->enforced_max[dim], v->enforced_max);
	}
}

/* Cases first .. first + n - 1 are the repeats of one setting. */
static int add_point(struct jm_grouping *g, int first, int n, struct jm_err *err)
{
	struct jm_group_case *c = &g->c[first];
	struct jm_group_point *p = &g->point[g->n_points];
	const json_t *kept;

	p->value = c->value;
	p->x = g->n_dims ? c->value[0].x : NAN;
	p->series = c->series;
	p->reference = c->reference;
	for (int i = 0; i < n; i++) {
		c[i].point = g->n_points;
		p->n_ok += c[i].ok;
		p->n_failed += !c[i].ok;
		kept = json_object_get(json_object_get(c[i].record, "serving"), "p99_in_bounds");
		p->bounded |= json_is_boolean(kept);
		p->late |= json_is_false(kept);
		if (c[i].state > p->state)
			p->state = c[i].state;
	}
	for (int i = 0; i < g->n_dims; i++)
		read_enforced(c, n, i, p);
	judge_point(p);
	g->n_points++;
	return point_stats(g, p, first, n, err);
}

/* Of runs that give the figures: those that succeeded. */
static void add_grade(struct jm_group_series *s, const json_t *record)
{
	const char *grade = jm_json_text(json_object_get(record, "quality"), "grade");

	/* "none" is worse than D */
	if (*grade && (!*s->grade || !strcmp(grade, "none") ||
			      (strcmp(s->grade, "none") && strcmp(grade, s->grade) > 0)))
		jm_text_format(s->grade, sizeof(s->grade), "%s", grade);
}

static void add_to_series(struct jm_group_series *s, const struct jm_group_case *c)
{
	if (!s->record || (c->ok && !s->n_ok))
		s->record = c->record;
	s->n_ok += c->ok;
	s->n_failed += !c->ok;
	if (c->machine < s->first_machine)
		s->first_machine = c->machine;
	if (c->ok)
		add_grade(s, c->record);
	s->faulty = s->faulty || jm_metric_faulty(c->record);
	if (!c->m.has_energy)
		return;
	if (s->has_energy && c->m.origin != s->origin)
		s->mixed_origin = true;
	s->has_energy = true;
	s->origin = c->m.origin;
	s->n_meters = c->m.n_meters > s->n_meters ? c->m.n_meters : s->n_meters;
	if (!s->least_meters || c->m.n_meters < s->least_meters)
		s->least_meters = c->m.n_meters;
}

/* Different ones among its cases. */
static int count_machines(const struct jm_grouping *g, int series)
{
	bool *seen = calloc((size_t)g->n_machines + 1, sizeof(*seen));
	int n = 0;

	for (int i = 0; seen && i < g->n_cases; i++) {
		if (g->c[i].series != series || seen[g->c[i].machine])
			continue;
		seen[g->c[i].machine] = true;
		n++;
	}
	free(seen);
	return n;
}

static void fill_series(struct jm_grouping *g, int index)
{
	struct jm_group_series *s = &g->series[index];

	s->reference = -1;
	s->first_point = -1;
	s->first_machine = g->n_machines;
	for (int i = 0; i < g->n_cases; i++)
		if (g->c[i].series == index)
			add_to_series(s, &g->c[i]);
	s->n_machines = count_machines(g, index);
	for (int i = 0; i < g->n_points; i++) {
		if (g->point[i].series != index)
			continue;
		if (s->first_point < 0)
			s->first_point = i;
		s->n_points++;
		if (g->point[i].reference && s->reference < 0)
			s->reference = i;
	}
	for (int i = 0; i < g->n_dims; i++)
		s->soft = s->soft || g->dim[i].soft;
	jm_group_title(g, s);
	jm_group_label(g, s);
}

static int read_cases(struct jm_grouping *g, const json_t *records, struct jm_err *err)
{
	json_t *by_key = json_object();
	int rc = jm_dim_find(g, records, err);

	if (!rc && find_peaks(g, records))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the report.");
	for (int i = 0; i < g->n_cases && !rc; i++)
		g->c[i].index = i;
	for (int i = 0; i < g->n_cases && !rc; i++)
		rc = read_case(g, json_array_get(records, (size_t)i), by_key, &g->c[i], err);
	json_decref(by_key);
	return rc;
}

static int build(struct jm_grouping *g, const json_t *records, struct jm_err *err)
{
	int rc = read_cases(g, records, err);

	if (rc)
		return rc;
	if (number_series(g))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the series of the report.");
	if (jm_cases_sort(g))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the order of the report.");
	if (relate_cases(g))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the references.");
	for (int first = 0, n; first < g->n_cases && !rc; first += n) {
		n = 1;
		while (first + n < g->n_cases && same_point(g, &g->c[first], &g->c[first + n]))
			n++;
		rc = add_point(g, first, n, err);
	}
	for (int i = 0; i < g->n_series && !rc; i++)
		fill_series(g, i);
	for (int i = 0; i < g->n_series && !rc; i++)
		if (g->series[i].n_machines > 1)
			rc = jm_machine_effect_remove(g, &g->series[i], err);
	for (int i = 0; i < g->n_series && !rc; i++)
		jm_pareto_mark(g, &g->series[i]);
	if (!rc && jm_group_tell_apart(g))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the titles of the report.");
	return rc;
}

static int check_records(const json_t *records, struct jm_err *err)
{
	const json_t *record;
	char what[32];
	size_t i;
	int rc;

	if (!json_is_array(records) || !json_array_size(records))
		return jm_err_set(err, JM_ENOENT,
			"There is no record to report; 'joulemark run' and 'joulemark measure "
			"--json' write records.");
	json_array_foreach(records, i, record)
	{
		if (!json_is_object(record))
			return jm_err_set(err, JM_EFORMAT, "Record %zu is not a JSON object.", i);
		if (strcmp(jm_json_text(record, "schema"), JM_RECORD_SCHEMA))
			return jm_err_set(err, JM_EVERSION,
				"Record %zu has the schema '%s', but this program reads "
				"'" JM_RECORD_SCHEMA "'.",
				i, jm_json_text(record, "schema"));
		snprintf(what, sizeof(what), "record %zu", i);
		rc = jm_record_check(record, what, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* 0 means that a figure was not given. */
static void fill_figures(struct jm_figures *f)
{
	f->price = f->price > 0 ? f->price : NAN;
	f->carbon = f->carbon > 0 ? f->carbon : NAN;
	f->pue = f->pue > 0 ? f->pue : 1;
	f->peak_flops = f->peak_flops > 0 ? f->peak_flops : NAN;
	f->zeus_eta = f->zeus_eta > 0 ? f->zeus_eta : 0.5;
}

void jm_group_take_options(struct jm_grouping *g, const struct jm_report_options *options)
{
	if (options)
		g->options = *options;
	for (int i = 0; !g->options.n_k && i < 2; i++)
		g->options.k[i] = default_k[i];
	g->options.n_k = g->options.n_k ? g->options.n_k : 2;
	fill_figures(&g->options.figures);
	g->options.width = g->options.width ? g->options.width : 80;
}

int jm_group_init(struct jm_grouping *g, const json_t *records,
	const struct jm_report_options *options, struct jm_err *err)
{
	size_t n = json_array_size(records);
	int rc = check_records(records, err);

	*g = (struct jm_grouping){0};
	if (rc)
		return rc;
	jm_group_take_options(g, options);
	g->c = calloc(n, sizeof(*g->c));
	g->point = calloc(n, sizeof(*g->point));
	g->series = calloc(n, sizeof(*g->series));
	g->machine = calloc(n, sizeof(*g->machine));
	g->n_cases = (int)n;
	if (!g->c || !g->point || !g->series || !g->machine)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for %zu records.", n);
	else
		rc = build(g, records, err);
	if (rc)
		jm_group_done(g);
	return rc;
}

void jm_group_done(struct jm_grouping *g)
{
	for (int i = 0; g->c && i < g->n_cases; i++) {
		for (int k = 0; k < g->n_dims; k++)
			free(g->c[i].value[k].key);
		free(g->c[i].series_key);
	}
	for (int i = 0; g->machine && i < g->n_machines; i++)
		jm_machine_done(&g->machine[i]);
	json_decref(g->peaks);
	free(g->machine);
	free(g->c);
	free(g->point);
	free(g->series);
	*g = (struct jm_grouping){0};
}
