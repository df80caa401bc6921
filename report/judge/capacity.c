/* SPDX-License-Identifier: Apache-2.0 */
/* How many nodes a rack can feed at each setting, by the node's rated power and by what was
 * measured. */
#include "capacity.h"
#include "base/text/json.h"
#include "grid.h"
#include "report/format/text.h"

#include <math.h>
#include <stdio.h>

/* Whole nodes within the power of the rack; null: unknown. */
static json_t *nodes(double rack_watts, double watts)
{
	return watts > 0 ? json_integer((json_int_t)floor(rack_watts / watts)) : json_null();
}

json_t *jm_capacity(const struct jm_grouping *g, const struct jm_group_point *p)
{
	double rack = g->options.rack_watts, p99 = p->stat[JM_M_WATTS_P99].max;
	double rate = p->stat[JM_M_THROUGHPUT].mean;

	if (!(rack > 0))
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "nodes_rated",
		nodes(rack, g->options.rated_watts), "nodes_p99", nodes(rack, p99), "nodes_mean",
		nodes(rack, p->stat[JM_M_WATTS].mean), "p99_watts", jm_json_number(p99),
		"throughput_p99", jm_json_number(p99 > 0 ? floor(rack / p99) * rate : NAN));
}

static void put_nodes(char *out, size_t size, const char *what, double rack, double watts)
{
	char part[80];

	if (!(watts > 0))
		return;
	snprintf(part, sizeof(part), "%s (%.0f W) %.0f", what, watts, floor(rack / watts));
	jm_text_apart(part, sizeof(part));
	jm_text_append(out, size, ", ", part);
}

void jm_text_capacity(
	const struct jm_grouping *g, const struct jm_group_point *p, char *out, size_t size)
{
	double rack = g->options.rack_watts;
	char nodes[200] = "", watts[40];

	put_nodes(nodes, sizeof(nodes), "by rated power", rack, g->options.rated_watts);
	put_nodes(
		nodes, sizeof(nodes), "by the 99th percentile", rack, p->stat[JM_M_WATTS_P99].max);
	put_nodes(nodes, sizeof(nodes), "by mean power", rack, p->stat[JM_M_WATTS].mean);
	snprintf(watts, sizeof(watts), "%.6g", rack);
	jm_text_apart(watts, sizeof(watts));
	snprintf(out, size, "Nodes in a rack of %s W at %s: %s", watts, p->label,
		*nodes ? nodes : "unknown, because no power was measured");
}
