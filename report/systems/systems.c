/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of systems by work, and pairs of a system and a published row. */
#include "systems.h"
#include "base/stat/stat.h"
#include "base/text/json.h"
#include "published.h"
#include "report/format/text.h"
#include "report/model/dimension.h"
#include "report/model/title.h"
#include "result/case_id.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const jm_system_metric_names[] = {
#define X(name, text, unit, better, key, compared, inverse) text,
	JM_SYSTEM_METRICS(X)
#undef X
		NULL,
};

const struct jm_system_metric_row jm_system_metrics[] = {
#define X(name, text, unit, better, key, compared, inverse) {unit, better, key, compared, inverse},
	JM_SYSTEM_METRICS(X)
#undef X
};

/* ---- one system ------------------------------------------------------------------------------ */

static struct jm_estimate estimate_of(const struct jm_stat *stat, double divisor)
{
	return (struct jm_estimate){.mean = stat->n ? stat->mean / divisor : NAN,
		.low = (stat->mean - stat->half_width) / divisor,
		.high = (stat->mean + stat->half_width) / divisor};
}

static void fill_values(struct jm_system *s)
{
	const struct jm_stat *stat = s->point->stat;
	bool by_device = stat[JM_M_THROUGHPUT_DEVICE].n > 0;
	double devices = jm_json_real_of(s->record, "devices");

	s->devices = by_device && devices > 0 ? devices : 1;
	s->value[JM_SYSTEM_THROUGHPUT] =
		estimate_of(&stat[by_device ? JM_M_THROUGHPUT_DEVICE : JM_M_THROUGHPUT], 1);
	s->value[JM_SYSTEM_POWER] = estimate_of(&stat[JM_M_WATTS], s->devices);
	s->value[JM_SYSTEM_EFFICIENCY] = estimate_of(&stat[JM_M_ITEMS_JOULE], 1);
}

/* Is it a power limit of the phase that was measured? own: of that phase alone. */
static bool is_cap(const struct jm_group_dim *dim, const char *measured, bool *own)
{
	char phase[JM_PHASE_NAME];

	jm_case_knob(dim->name, phase, sizeof(phase));
	*own = *phase;
	return dim->knob && !strcmp(dim->unit, "W") && (!*own || !strcmp(phase, measured));
}

/* The one power cap that all devices had in the phase that was measured. */
static double cap_of(
	const struct jm_grouping *g, const struct jm_group_point *p, const json_t *record)
{
	double cap = NAN;
	bool own;

	for (int i = 0; i < g->n_dims && !p->reference; i++)
		if (is_cap(&g->dim[i], jm_json_text(record, "phase"), &own) &&
			p->enforced_min[i] == p->enforced_max[i] && (own || isnan(cap)))
			cap = p->enforced_min[i];
	return cap;
}

/* The part of the series' title after the work: "cuda:0, bf16, batch=8". */
static void fill_name(const struct jm_grouping *g, struct jm_system *s)
{
	const char *title = s->series->title;
	char work[200];
	size_t n;

	jm_group_work(s->record, true, work, sizeof(work));
	n = strlen(work);
	if (strncmp(title, work, n) != 0) {
		jm_group_work(s->record, false, work, sizeof(work));
		n = strncmp(title, work, strlen(work)) ? 0 : strlen(work);
	}
	title += n;
	title += !strncmp(title, " on ", 4) ? 4 : !strncmp(title, ", ", 2) ? 2 : 0;
	if (!*title)
		title = g->machine[s->series->first_machine].part[JM_MACHINE_HOST];
	jm_text_format(s->name, sizeof(s->name), "%s%s", *title ? title : "one machine",
		s->simulated ? " (simulated)" : "");
	jm_text_format(s->setting, sizeof(s->setting), "%s", g->n_dims ? s->point->label : "-");
}

static int find_work(struct jm_systems *s, const json_t *record)
{
	const char *unit = *jm_json_text(record, "unit") ? jm_json_text(record, "unit") : "run";
	char title[200];
	int i = 0;

	jm_group_work(record, true, title, sizeof(title));
	while (i < s->n_works &&
		(strcmp(s->work[i].title, title) != 0 || strcmp(s->work[i].item, unit) != 0))
		i++;
	if (i == s->n_works) {
		struct jm_systems_work *w = &s->work[s->n_works++];

		jm_text_format(w->title, sizeof(w->title), "%s", title);
		jm_text_format(w->item, sizeof(w->item), "%s", unit);
	}
	s->work[i].n++;
	return i;
}

static void add_system(struct jm_systems *s, int point)
{
	struct jm_system *one = &s->system[s->n++];
	int i = 0;

	while (s->g.c[i].point != point || (!s->g.c[i].ok && s->g.point[point].n_ok))
		i++;
	one->point = &s->g.point[point];
	one->series = &s->g.series[one->point->series];
	one->record = s->g.c[i].record;
	one->simulated = jm_metric_simulated(one->record);
	one->cap_watts = cap_of(&s->g, one->point, one->record);
	one->work = find_work(s, one->record);
	fill_values(one);
	fill_name(&s->g, one);
}

/* ---- the order ------------------------------------------------------------------------------- */

/* The better one first; what is unknown comes last. */
static int order_of(double a, double b, int better)
{
	return jm_stat_by_value(&(double){-better * a}, &(double){-better * b});
}

static int compare_systems(const void *pa, const void *pb, void *arg)
{
	const struct jm_system *a = pa, *b = pb;
	enum jm_system_metric sort = *(enum jm_system_metric *)arg;
	int order;

	if (a->work != b->work)
		return a->work - b->work;
	order = order_of(a->value[sort].mean, b->value[sort].mean, jm_system_metrics[sort].better);
	return order ? order : (a->point > b->point) - (a->point < b->point);
}

static void sort_systems(struct jm_systems *s)
{
	int first = 0;

	qsort_r(s->system, (size_t)s->n, sizeof(*s->system), compare_systems, &s->sort);
	for (int i = 0; i < s->n_works; i++) {
		s->work[i].first = first;
		first += s->work[i].n;
	}
}

/* ---- published rows -------------------------------------------------------------------------- */

void jm_systems_row_name(const json_t *row, char *out, size_t size)
{
	const json_t *cap = json_object_get(row, "cap_watts"),
		     *batch = json_object_get(row, "batch");

	jm_text_format(out, size, "%s", jm_json_text(row, "device"));
	if (json_is_number(cap))
		jm_text_format(out, size, "%s at %.6g W", jm_json_text(row, "device"),
			json_number_value(cap));
	else if (json_is_number(batch))
		jm_text_format(out, size, "%s, batch %.6g", jm_json_text(row, "device"),
			json_number_value(batch));
}

/* How well a row of a device fits a system. */
struct fit {
	bool same;  /* cap or batch */
	bool alike; /* both have a cap, or neither */
	/* the cap, W, or without one the throughput, items/s; rows alike have the same of the
	 * two */
	double value;
};

static struct fit fit_of(const json_t *row, const struct jm_system *s)
{
	const json_t *given = jm_dim_parameter(s->record, "batch");
	double cap = jm_json_real_of(row, "cap_watts"), batch = jm_json_real_of(row, "batch");
	bool capped = !isnan(cap);

	if (json_is_number(json_object_get(row, "devices"))) /* a record has that of one */
		batch /= jm_json_real_of(row, "devices");

	return (struct fit){.same = capped ? cap == s->cap_watts : jm_dim_number(given) == batch,
		.alike = capped == !isnan(s->cap_watts),
		.value = capped ? cap : fmax(jm_json_real_of(row, "items_per_s"), 0)};
}

static int compare_fits(const struct fit *a, const struct fit *b)
{
	if (a->same != b->same)
		return a->same - b->same;
	if (a->alike != b->alike)
		return a->alike - b->alike;
	return (a->value > b->value) - (a->value < b->value);
}

bool jm_systems_is_best_row(const json_t *rows, size_t i, const struct jm_system *s)
{
	const json_t *row = json_array_get(rows, i), *other;
	struct fit fit = fit_of(row, s);
	size_t k;

	json_array_foreach(rows, k, other)
	{
		struct fit of_other = fit_of(other, s);
		int order = compare_fits(&of_other, &fit);

		if (k == i ||
			strcmp(jm_json_text(other, "device"), jm_json_text(row, "device")) != 0)
			continue;
		if (order > 0 || (!order && k < i))
			return false;
	}
	return true;
}

/* Why the ratio allows no conclusion, for JM_SYSTEM_THROUGHPUT or others, which need energy; NULL =
 * it may be one. */
static const char *obstacle(const struct jm_system *s, int metric)
{
	if (s->simulated)
		return "the run is simulated, the published figures are measured";
	if (!s->point->n_ok)
		return "no run succeeded";
	if (metric == JM_SYSTEM_THROUGHPUT)
		return NULL;
	if (!s->series->has_energy)
		return "the runs have no meter";
	if (s->series->mixed_origin || s->series->origin == JM_ESTIMATED)
		return "the energy is not measured in all runs";
	return s->series->faulty ? "a sensor gave impossible readings (see quality)" : NULL;
}

/* The end of an interval of the reciprocal: a rate that may be zero takes any time; NAN stays. */
static double most_time(double theirs, double least)
{
	return least <= 0 ? theirs * INFINITY : theirs / least;
}

static void fill_line(
	const struct jm_system *s, const json_t *row, int metric, struct jm_compare_line *l)
{
	const struct jm_estimate *own = &s->value[metric];
	double theirs = jm_json_real_of(row, jm_system_metrics[metric].key);
	bool inverse = jm_system_metrics[metric].inverse;

	*l = (struct jm_compare_line){.p_rank = NAN,
		.mean_a = inverse ? 1 / theirs : theirs,
		.mean_b = inverse ? 1 / own->mean : own->mean};
	l->c = (struct jm_comparison){.n_b = s->point->n_ok,
		.p = NAN,
		.ratio = l->mean_b / l->mean_a,
		.low = inverse ? theirs / own->high : own->low / theirs,
		.high = inverse ? most_time(theirs, own->low) : own->high / theirs};
	l->why_not = obstacle(s, metric);
	if (!l->why_not && isnan(theirs))
		l->why_not = "it is not published";
	l->hard = l->why_not;
	if (!l->why_not && isnan(l->c.low))
		l->why_not = "there are too few repeats for an interval";
}

static void add_pairs(struct jm_systems *s, int index, const json_t *rows)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		struct jm_system_pair *p = &s->pair[s->n_pairs];

		if (!jm_systems_is_best_row(rows, i, &s->system[index]))
			continue;
		*p = (struct jm_system_pair){.system = index, .row = row};
		for (int m = 0; m < JM_SYSTEM_METRIC_COUNT; m++)
			fill_line(
				&s->system[index], row, m, &p->line[jm_system_metrics[m].compared]);
		s->n_pairs++;
	}
}

struct jm_estimate jm_system_ratio(const struct jm_system_pair *p, enum jm_system_metric metric)
{
	const struct jm_comparison *c = &p->line[jm_system_metrics[metric].compared].c;

	if (!jm_system_metrics[metric].inverse)
		return (struct jm_estimate){c->ratio, c->low, c->high};
	return (struct jm_estimate){1 / c->ratio, 1 / c->high, 1 / c->low};
}

static int compare_pairs(const void *pa, const void *pb, void *arg)
{
	const struct jm_system_pair *a = pa, *b = pb;
	enum jm_system_metric sort = *(enum jm_system_metric *)arg;
	int order = order_of(jm_system_ratio(a, sort).mean, jm_system_ratio(b, sort).mean,
		jm_system_metrics[sort].better);

	return order			? order
	       : a->system != b->system ? a->system - b->system
					: (a->row > b->row) - (a->row < b->row);
}

static void pair_work(struct jm_systems *s, struct jm_systems_work *w)
{
	const json_t *published;
	size_t i;

	w->first_pair = s->n_pairs;
	json_array_foreach(s->published, i, published)
	{
		for (int k = w->first; k < w->first + w->n; k++) {
			const json_t *record = s->system[k].record;

			if (!jm_published_is(record, published))
				continue;
			w->published = published;
			add_pairs(s, k, json_object_get(published, "rows"));
		}
	}
	w->n_pairs = s->n_pairs - w->first_pair;
	qsort_r(&s->pair[w->first_pair], (size_t)w->n_pairs, sizeof(*s->pair), compare_pairs,
		&s->sort);
}

static size_t count_rows(const json_t *published)
{
	const json_t *work;
	size_t n = 0, i;

	json_array_foreach(published, i, work) n += json_array_size(json_object_get(work, "rows"));
	return n;
}

static int add_published(struct jm_systems *s)
{
	s->published = jm_published_of(&s->g);
	s->pair = calloc((size_t)s->n * count_rows(s->published) + 1, sizeof(*s->pair));
	if (!s->published || !s->pair)
		return -1;
	for (int i = 0; i < s->n_works; i++)
		pair_work(s, &s->work[i]);
	return 0;
}

int jm_systems_make(const json_t *records, enum jm_system_metric sort, bool with_published,
	struct jm_systems *ret, struct jm_err *err)
{
	struct jm_systems s = {.sort = sort};
	int rc = jm_group_init(&s.g, records, NULL, err);

	if (rc)
		return rc;
	s.system = calloc((size_t)s.g.n_points + 1, sizeof(*s.system));
	s.work = calloc((size_t)s.g.n_points + 1, sizeof(*s.work));
	rc = s.system && s.work ? 0 : -1;
	for (int i = 0; i < s.g.n_points && !rc; i++)
		add_system(&s, i);
	if (!rc)
		sort_systems(&s);
	if (!rc && with_published)
		rc = add_published(&s);
	if (rc) {
		jm_systems_done(&s);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the table of systems.");
	}
	*ret = s;
	return 0;
}

void jm_systems_done(struct jm_systems *s)
{
	json_decref(s->published);
	free(s->pair);
	free(s->work);
	free(s->system);
	jm_group_done(&s->g);
	*s = (struct jm_systems){.n = 0};
}
