/* SPDX-License-Identifier: Apache-2.0 */
/* Records of two sides by work, their values by block, and what may be concluded. */
#include "comparison.h"
#include "base/stat/stat_ranks.h"
#include "base/text/json.h"
#include "report/format/text.h"
#include "report/model/dimension.h"
#include "report/model/grouping.h"
#include "report/model/title.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const jm_compared_names[] = {
#define X(name, text, unit, energy) text,
	JM_COMPARED(X)
#undef X
		NULL,
};

/* [enum jm_compared] */
static const bool needs_energy[] = {
#define X(name, text, unit, energy) energy,
	JM_COMPARED(X)
#undef X
};

/* ---- the work of a record -------------------------------------------------------------------- */

static bool is_ignored(const char *name, const char *const *ignore)
{
	for (; *ignore; ignore++)
		if (jm_dim_has_name(name, *ignore))
			return true;
	return false;
}

static void copy_parameters(const json_t *from, const char *const *ignore, json_t *to)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)from, key, value)
	{
		if (is_ignored(key, ignore))
			continue;
		if (json_is_object(value))
			copy_parameters(value, ignore, to);
		else
			json_object_set(to, key, (json_t *)value);
	}
}

/* The same text for the same work; for the caller to free. with_device: on the same kind of device
 * only. */
static char *key_of(const json_t *record, const char *const *ignore, bool with_device)
{
	static const char *const also[] = {"workload", "precision", "unit", "command", "device"};
	const json_t *parameters = json_object_get(json_object_get(record, "case"), "parameters");
	json_t *key = json_object();
	char *text;

	for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++)
		if (!is_ignored(also[i], ignore))
			json_object_set(key, also[i], json_object_get(record, also[i]));
	copy_parameters(parameters, ignore, key);
	if (json_object_get(key, "command"))
		json_object_set(key, "command", (json_t *)jm_dim_command(record));
	if (!with_device)
		json_object_del(key, "device");
	text = json_dumps(key, JSON_SORT_KEYS | JSON_COMPACT);
	json_decref(key);
	return text;
}

/* The records of a side as arrays by their key. NULL: no memory. */
static json_t *by_work(const json_t *records, const char *const *ignore, bool with_device)
{
	json_t *works = json_object(), *record;
	size_t i;

	json_array_foreach(records, i, record)
	{
		char *key = key_of(record, ignore, with_device);
		json_t *list = key ? json_object_get(works, key) : NULL;
		bool bad;

		if (key && !list) {
			list = json_array();
			json_object_set_new(works, key, list);
		}
		bad = !key || json_array_append(list, record);
		free(key);
		if (bad) {
			json_decref(works);
			return NULL;
		}
	}
	return works;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The values of one side for a work. */
struct side {
	double *value[JM_COMPARED_COUNT]; /* [n] */
	int *block;			  /* [n]; -1 = none */
	const char *host;		  /* of the first run */
	bool several_hosts;
	int n, n_failed;
	bool simulated, measured; /* some of them are */
	bool faulty, has_energy;
	enum jm_origin origin; /* of the energy of the first that has any */
	bool mixed;
};

static void side_done(struct side *s)
{
	for (int i = 0; i < JM_COMPARED_COUNT; i++)
		free(s->value[i]);
	free(s->block);
}

static void note_host(struct side *s, const char *host)
{
	if (!s->n)
		s->host = host;
	s->several_hosts = s->several_hosts || strcmp(s->host, host) != 0;
}

#define SECONDS_OF_YEAR (365.25 * 24 * 3600)
#define JOULES_OF_KWH	3.6e6

/* Of a million items; NAN where none is given, or a part is unknown. */
static double cost_of(const struct jm_compare_costs *costs, int side, double seconds, double joules)
{
	double cost = costs->purchase[side] / (costs->years * SECONDS_OF_YEAR) * seconds;

	if (!(costs->purchase[side] > 0))
		return NAN;
	if (costs->price > 0)
		cost += joules / JOULES_OF_KWH * costs->price * costs->pue;
	return 1e6 * cost;
}

static void add_value(
	struct side *s, const json_t *record, const struct jm_compare_costs *costs, int which)
{
	const json_t *block = json_object_get(json_object_get(record, "case"), "block");
	struct jm_measured m;

	if (jm_metric_failed(record)) {
		s->n_failed++;
		return;
	}
	jm_metric_measure(record, 0, false, &m);
	s->value[JM_COMPARED_TIME][s->n] = m.seconds_item;
	s->value[JM_COMPARED_POWER][s->n] = m.value[JM_M_WATTS];
	s->value[JM_COMPARED_ENERGY][s->n] = m.value[JM_M_JOULES_ITEM];
	s->value[JM_COMPARED_COST][s->n] =
		cost_of(costs, which, m.seconds_item, m.value[JM_M_JOULES_ITEM]);
	note_host(s, jm_json_text(json_object_get(record, "provenance"), "host"));
	s->block[s->n++] = json_is_integer(block) ? (int)json_integer_value(block) : -1;
	if (jm_metric_simulated(record))
		s->simulated = true;
	else
		s->measured = true;
	s->faulty = s->faulty || jm_metric_faulty(record);
	if (!m.has_energy)
		return;
	s->mixed = s->mixed || (s->has_energy && s->origin != m.origin);
	s->origin = m.origin;
	s->has_energy = true;
}

static int read_side(
	const json_t *records, const struct jm_compare_costs *costs, int which, struct side *ret)
{
	size_t n = json_array_size(records) + 1, i;
	struct side s = {.block = calloc(n, sizeof(int))};
	bool good = s.block;
	const json_t *record;

	for (int k = 0; k < JM_COMPARED_COUNT; k++) {
		s.value[k] = calloc(n, sizeof(double));
		good = good && s.value[k];
	}
	json_array_foreach(records, i, record) if (good) add_value(&s, record, costs, which);
	*ret = s;
	return good ? 0 : -1;
}

/* Mean of the logarithms' exponential over one block, or with -1 over all; NAN: nothing is
 * known. */
static double geometric_mean(const double *value, const int *block, int n, int of)
{
	double sum = 0;
	int known = 0;

	for (int i = 0; i < n; i++) {
		if ((of >= 0 && block[i] != of) || !(value[i] > 0))
			continue;
		sum += log(value[i]);
		known++;
	}
	return known ? exp(sum / known) : NAN;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static bool has_block(const struct side *s, int block)
{
	for (int i = 0; i < s->n; i++)
		if (s->block[i] == block)
			return true;
	return false;
}

/* Both ran in the same blocks of one machine, two at least. */
static bool are_paired(const struct side *a, const struct side *b)
{
	int other = 0;

	if (!a->n || !b->n || a->several_hosts || b->several_hosts || strcmp(a->host, b->host) != 0)
		return false;
	for (int i = 0; i < a->n; i++) {
		if (a->block[i] < 0 || !has_block(b, a->block[i]))
			return false;
		other += a->block[i] != a->block[0];
	}
	for (int i = 0; i < b->n; i++)
		if (b->block[i] < 0 || !has_block(a, b->block[i]))
			return false;
	return other > 0;
}

static int compare_ints(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* One pair for each block: the means of both sides in it. */
static int compare_paired(
	const struct side *a, const struct side *b, int metric, struct jm_comparison *ret)
{
	int *block = calloc((size_t)a->n + 1, sizeof(*block)), n = 0;
	double *x = calloc(2 * (size_t)a->n + 1, sizeof(*x)), *y = x + a->n;

	if (block && x) {
		memcpy(block, a->block, (size_t)a->n * sizeof(*block));
		qsort(block, (size_t)a->n, sizeof(*block), compare_ints);
		for (int i = 0; i < a->n; i++) {
			if (i && block[i] == block[i - 1])
				continue;
			x[n] = geometric_mean(a->value[metric], a->block, a->n, block[i]);
			y[n++] = geometric_mean(b->value[metric], b->block, b->n, block[i]);
		}
		jm_stat_compare_paired(x, y, n, ret);
	}
	n = block && x ? 0 : -1;
	free(block);
	free(x);
	return n;
}

/* Why the numbers allow no conclusion; NULL = they may be one. */
static const char *obstacle(const struct side *a, const struct side *b, int metric,
	const struct jm_comparison *c, const struct jm_compare_costs *costs)
{
	if ((a->simulated && b->measured) || (a->measured && b->simulated))
		return "one side is simulated, the other is not";
	if (!a->n || !b->n)
		return "one side has no run that succeeded";
	if (needs_energy[metric] && (metric != JM_COMPARED_COST || costs->price > 0)) {
		if (!a->has_energy || !b->has_energy)
			return "one side has no meter";
		if (a->mixed || b->mixed || a->origin != b->origin)
			return "the energy of the two sides is of different origin";
		if (a->origin == JM_ESTIMATED)
			return "the energy is estimated";
		if (a->faulty || b->faulty)
			return "a sensor gave impossible readings (see quality)";
	}
	return isnan(c->ratio) ? "one side has no value" : NULL;
}

static int fill_line(const struct side *a, const struct side *b, int metric, bool same_file,
	const struct jm_compare_costs *costs, struct jm_compare_line *l)
{
	l->mean_a = geometric_mean(a->value[metric], a->block, a->n, -1);
	l->mean_b = geometric_mean(b->value[metric], b->block, b->n, -1);
	l->paired = same_file && are_paired(a, b);
	l->p_rank = NAN;
	if (l->paired && compare_paired(a, b, metric, &l->c))
		return -1;
	if (!l->paired) {
		jm_stat_compare_welch(a->value[metric], a->n, b->value[metric], b->n, &l->c);
		l->p_rank = jm_stat_mann_whitney(a->value[metric], a->n, b->value[metric], b->n);
	}
	l->why_not = obstacle(a, b, metric, &l->c, costs);
	l->hard = l->why_not;
	if (!l->why_not && isnan(l->c.low))
		l->why_not = "there are too few repeats for an interval";
	return 0;
}

static void add_settings(
	const json_t *settings, const char *const *ignore, struct jm_compare_row *row)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)settings, key, value)
	{
		if (is_ignored(key, ignore) || !json_is_string(value) || !strchr(key, '.'))
			continue; /* knobs have a dot: gpu.power */
		jm_text_append(row->title, sizeof(row->title), ", ", key);
		jm_text_append(row->title, sizeof(row->title), " ", json_string_value(value));
	}
}

/* What both sides have in common in their names. */
static void set_title(const json_t *record, const char *const *ignore, struct jm_compare_row *row)
{
	const json_t *of_case = json_object_get(json_object_get(record, "case"), "parameters");

	jm_group_work(record, true, row->title, sizeof(row->title));
	if (!is_ignored("settings", ignore)) {
		add_settings(json_object_get(of_case, "settings"), ignore, row);
		add_settings(of_case, ignore, row);
	}
	jm_text_format(row->item, sizeof(row->item), "%s",
		*jm_json_text(record, "unit") ? jm_json_text(record, "unit") : "run");
}

static int fill_row(const json_t *a, const json_t *b, const char *const *ignore, bool same_file,
	const struct jm_compare_costs *costs, struct jm_compare_row *row)
{
	struct side x, y = {.n = 0};
	int rc = read_side(a, costs, 0, &x);

	if (!rc)
		rc = read_side(b, costs, 1, &y);
	row->failed_a = x.n_failed;
	row->failed_b = y.n_failed;
	for (int i = 0; i < JM_COMPARED_COUNT && !rc; i++)
		rc = fill_line(&x, &y, i, same_file, costs, &row->line[i]);
	row->simulated = x.simulated && y.simulated;
	set_title(json_array_get(a, 0), ignore, row);
	side_done(&x);
	side_done(&y);
	return rc;
}

/* Does another row of that title have another value, or none? */
static bool tells_apart(const struct jm_compare *c, const json_t *keys, int row, const char *name,
	const json_t *value)
{
	for (int i = 0; i < c->n; i++)
		if (!strcmp(c->row[i].title, c->row[row].title) &&
			!json_equal(json_object_get(json_array_get(keys, (size_t)i), name), value))
			return true;
	return false;
}

/* Adds to titles that several rows have what these differ in: ", rate 20". keys: of each row. */
static void tell_apart(struct jm_compare *c, const json_t *keys)
{
	char(*more)[sizeof(c->row->title)] = calloc((size_t)c->n + 1, sizeof(*more));
	const json_t *value;
	const char *name;

	for (int i = 0; more && i < c->n; i++) {
		json_object_foreach(json_array_get(keys, (size_t)i), name, value)
		{
			if (!json_is_string(value) || !tells_apart(c, keys, i, name, value))
				continue;
			jm_text_append(more[i], sizeof(*more), ", ", name);
			jm_text_append(more[i], sizeof(*more), " ", json_string_value(value));
		}
	}
	for (int i = 0; more && i < c->n; i++)
		if (*more[i])
			jm_text_append(c->row[i].title, sizeof(c->row[i].title), ", ", more[i]);
	free(more);
}

/* Of every work that both have; a and b: records by key. */
static int fill_rows(
	json_t *a, json_t *b, const char *const *ignore, bool same_file, struct jm_compare *c)
{
	json_t *list, *keys = json_array();
	const char *key;
	int rc = 0;

	json_object_foreach(a, key, list)
	{
		const json_t *other = json_object_get(b, key);

		if (rc)
			break;
		if (!other) {
			c->only_a++;
			continue;
		}
		json_array_append_new(keys, json_loads(key, 0, NULL));
		rc = fill_row(list, other, ignore, same_file, &c->costs, &c->row[c->n++]);
	}
	tell_apart(c, keys);
	json_decref(keys);
	c->only_b = (int)json_object_size(b) - c->n;
	return rc;
}

static int try_match(const struct jm_compare_side side[2], const char *const *ignore,
	bool with_device, const struct jm_compare_costs *costs, struct jm_compare *c)
{
	json_t *a = by_work(side[0].records, ignore, with_device);
	json_t *b = by_work(side[1].records, ignore, with_device);
	int rc = -1;

	if (a && b) {
		*c = (struct jm_compare){.costs = *costs,
			.row = calloc(json_object_size(a) + 1, sizeof(struct jm_compare_row))};
		rc = c->row ? fill_rows(a, b, ignore, !strcmp(side[0].file, side[1].file), c) : -1;
	}
	json_decref(a);
	json_decref(b);
	return rc;
}

int jm_compare_make(const struct jm_compare_side side[2], const char *const *ignore,
	const struct jm_compare_costs *costs, struct jm_compare *ret, struct jm_err *err)
{
	struct jm_compare c = {.n = 0};
	int rc = try_match(side, ignore, true, costs, &c);

	if (!rc && !c.n) {
		jm_compare_done(&c);
		rc = try_match(side, ignore, false, costs, &c);
		c.note = "The devices differ, so that the uncertainty of their meters does not "
			 "cancel; it is not in the intervals.";
	}
	if (rc) {
		jm_compare_done(&c);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the comparison.");
	}
	if (!c.n) {
		jm_compare_done(&c);
		return jm_err_set(err, JM_ENOENT,
			"%s and %s have no work in common: workload, options and settings must be "
			"equal, except those that a filter selects (A.db:gpu.power=700W). "
			"'joulemark compare --systems %s %s' shows all settings of both.",
			side[0].given, side[1].given, side[0].given, side[1].given);
	}
	*ret = c;
	return 0;
}

int jm_compared_count(const struct jm_compare *c)
{
	return c->costs.purchase[0] > 0 ? JM_COMPARED_COUNT : JM_COMPARED_COST;
}

void jm_compare_done(struct jm_compare *c)
{
	free(c->row);
	*c = (struct jm_compare){.n = 0};
}

const char *jm_compare_verdict(const struct jm_compare_line *l)
{
	if (l->why_not)
		return "no verdict";
	if (l->c.low > 1)
		return "higher";
	return l->c.high < 1 ? "lower" : "unclear";
}
