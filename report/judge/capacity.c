/* SPDX-License-Identifier: Apache-2.0 */
/* How many nodes a rack can feed at each setting, by the node's rated power and by what was
 * measured. */
#include "capacity.h"
#include "base/text/json.h"
#include "series_table.h"
#include "report/format/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What the power of a node is taken to be. */
struct basis {
	const char *key, *name;
	double watts;
};

enum { BASES = 4 };

/* Of one node, where the runs are of several. */
static double of_node(const struct jm_grouping *g, const struct jm_group_point *p, double of_all)
{
	return of_all / jm_metric_nodes(g->series[p->series].record);
}

static void bases(const struct jm_grouping *g, const struct jm_group_point *p, struct basis *ret)
{
	double max = of_node(g, p, p->stat[JM_M_WATTS_MAX].max);
	double p99 = of_node(g, p, p->stat[JM_M_WATTS_P99].max);

	ret[0] = (struct basis){"rated", "by rated power", g->options.rated_watts};
	ret[1] = (struct basis){"max", "by the maximum", max};
	ret[2] = (struct basis){"p99", "by the 99th percentile", p99};
	ret[3] = (struct basis){"mean", "by mean power", of_node(g, p, p->stat[JM_M_WATTS].mean)};
}

static int racks(const struct jm_grouping *g)
{
	return g->options.racks > 1 ? g->options.racks : 1;
}

/* Of the power of all racks, without the reserve. */
static double usable(const struct jm_grouping *g)
{
	return racks(g) * g->options.rack_watts * (1 - g->options.rack_reserve / 100);
}

/* NAN: unknown. A quotient that is whole but for rounding is whole. */
static double nodes(double watts, const struct basis *b)
{
	return b->watts > 0 ? floor(watts / b->watts + 1e-9) : NAN;
}

json_t *jm_capacity(const struct jm_grouping *g, const struct jm_group_point *p)
{
	double rate = of_node(g, p, p->stat[JM_M_THROUGHPUT].mean);
	struct basis basis[BASES];
	json_t *json;

	if (!(g->options.rack_watts > 0))
		return json_null();
	json = json_object();
	bases(g, p, basis);
	jm_json_set_number(&json, "usable_watts", usable(g));
	for (int i = 0; i < BASES; i++) {
		double n = nodes(usable(g), &basis[i]);
		char key[40];

		snprintf(key, sizeof(key), "nodes_%s", basis[i].key);
		jm_json_set(&json, key, isnan(n) ? json_null() : json_integer((json_int_t)n));
		snprintf(key, sizeof(key), "%s_watts", basis[i].key);
		jm_json_set_number(&json, key, basis[i].watts > 0 ? basis[i].watts : NAN);
		snprintf(key, sizeof(key), "throughput_%s", basis[i].key);
		jm_json_set_number(&json, key, n * rate);
	}
	return json;
}

static void put_nodes(char *out, size_t size, const struct jm_grouping *g, const struct basis *b,
	double rate, const char *item)
{
	char part[160];
	double n = nodes(usable(g), b), apart = racks(g) * nodes(usable(g) / racks(g), b);

	if (isnan(n))
		return;
	snprintf(part, sizeof(part), "%s (%.0f W) %.0f", b->name, b->watts, n);
	if (n > apart)
		snprintf(part + strlen(part), sizeof(part) - strlen(part),
			" (%.0f if each rack keeps its own)", apart);
	if (rate > 0)
		snprintf(part + strlen(part), sizeof(part) - strlen(part),
			n * rate < 1000 ? " with %.4g %s/s" : " with %.0f %s/s", n * rate, item);
	jm_text_apart(part, sizeof(part));
	jm_text_append(out, size, ", ", part);
}

void jm_text_capacity(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size)
{
	char list[700] = "", watts[40], reserve[60] = "", where[80] = "a rack";
	struct basis basis[BASES];

	bases(g, p, basis);
	for (int i = 0; i < BASES; i++)
		put_nodes(list, sizeof(list), g, &basis[i],
			of_node(g, p, p->stat[JM_M_THROUGHPUT].mean), g->series[p->series].item);
	if (g->options.rack_reserve > 0)
		snprintf(reserve, sizeof(reserve), " with a reserve of %.4g %%",
			g->options.rack_reserve);
	snprintf(watts, sizeof(watts), "%.6g", g->options.rack_watts);
	jm_text_apart(watts, sizeof(watts));
	if (racks(g) > 1)
		snprintf(where, sizeof(where), "%d racks that share their power, each", racks(g));
	snprintf(out, size, "Nodes in %s of %s W%s at %s: %s", where, watts, reserve, p->label,
		*list ? list : "unknown, because no power was measured");
}
