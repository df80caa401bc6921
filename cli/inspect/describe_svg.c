/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan as a drawing: one row per group, from top to bottom as they run. On the left, arcs from
 * the row that makes a tensor to the rows that read it; then the group and its FLOPs; on the right
 * the arena over time: every tensor a box, from its first row to its last, at its address.
 */
#include "describe_svg.h"
#include "engine/graph/tensor.h"

#include <math.h>
#include <stdio.h>

#define ROW	   14 /* pixels */
#define TOP	   64
#define ARC_AT	   110 /* where arcs begin */
#define TEXT_AT	   118
#define BAR_AT	   470
#define BAR_WIDTH  120
#define MAP_AT	   610
#define MAP_WIDTH  560
#define WIDTH	   (MAP_AT + MAP_WIDTH + 20)
#define LEGEND_GAP 150

static const char *const colours[JM_CLASS_COUNT] = {
	[JM_CLASS_COPY] = "#8da0cb",
	[JM_CLASS_ACT] = "#66c2a5",
	[JM_CLASS_SAVED] = "#e78ac3",
	[JM_CLASS_SCRATCH] = "#fc8d62",
};

static double row_y(int position)
{
	return TOP + ROW * position;
}

static void head(const struct jm_program *p, const char *title, FILE *f)
{
	double height = row_y(p->n_units) + ROW, unit = p->arena_bytes < 1000000000 ? 1e6 : 1e9;
	int x = MAP_AT;

	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"10\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
		"<text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"bold\">%s</text>\n",
		WIDTH, height, WIDTH, height, title);
	fprintf(f, "<text x=\"8\" y=\"38\">%d groups, %.4g GFLOP per step</text>\n", p->n_units,
		p->flops_model / 1e9);
	fprintf(f, "<text x=\"%d\" y=\"56\">executed FLOPs</text>\n", BAR_AT);
	fprintf(f,
		"<text x=\"%d\" y=\"38\">memory planned over the step: %.4g %s from left to right "
		"(%.4g more stay)</text>\n",
		MAP_AT, (double)p->arena_bytes / unit, unit < 1e9 ? "MB" : "GB",
		(double)p->persistent_bytes / unit);
	for (int i = 0; i < JM_CLASS_COUNT; i++) {
		if (!colours[i])
			continue;
		fprintf(f,
			"<rect x=\"%d\" y=\"47\" width=\"10\" height=\"10\" fill=\"%s\"/>"
			"<text x=\"%d\" y=\"56\">%s</text>\n",
			x, colours[i], x + 14, jm_class_name((enum jm_class)i));
		x += i == JM_CLASS_ACT ? LEGEND_GAP - 60 : LEGEND_GAP - 30;
	}
}

/* "conv + bn-stats", the first result, its shape. */
static void label(const struct jm_unit *u, FILE *f)
{
	const struct jm_node *last = u->group.node[u->group.n_nodes - 1];
	const struct jm_tensor *t = last->out[0] ? last->out[0] : last->in[0];
	char layout[64];

	for (int k = 0; k < u->group.n_nodes; k++)
		fprintf(f, "%s%s", k ? " + " : "", jm_op_name(u->group.node[k]->op));
	fprintf(f, " <tspan fill=\"#777\">%.36s %s[", t->name, jm_dtype_name(t->type));
	for (int i = 0; i < t->rank; i++)
		fprintf(f, "%s%lld", i ? "," : "", (long long)t->dim[i]);
	fprintf(f, "]%s%s</tspan>", t->layout.rank ? ":" : "",
		t->layout.rank ? jm_layout_name(&t->layout, layout, sizeof(layout)) : "");
}

static double flops_of(const struct jm_unit *u)
{
	double flops = 0;

	for (int k = 0; k < u->group.n_nodes; k++)
		flops += u->group.node[k]->flops_executed;
	return flops;
}

static void rows(const struct jm_program *p, FILE *f)
{
	double most = 1;

	for (int i = 0; i < p->n_units; i++)
		most = fmax(most, flops_of(p->unit[i]));
	for (int i = 0; i < p->n_units; i++) {
		double y = row_y(i);

		if (i % 2)
			fprintf(f,
				"<rect x=\"%d\" y=\"%.0f\" width=\"%d\" height=\"%d\" "
				"fill=\"#f5f5f5\"/>\n",
				TEXT_AT - 2, y, MAP_AT - TEXT_AT - 8, ROW);
		fprintf(f,
			"<rect x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"#bbb\"/>\n",
			BAR_AT, y + 2, BAR_WIDTH * flops_of(p->unit[i]) / most, ROW - 4);
		fprintf(f, "<text x=\"%d\" y=\"%.0f\">%d ", TEXT_AT, y + 10, i);
		label(p->unit[i], f);
		fprintf(f, "</text>\n");
	}
}

/* From the row that made the tensor to this one, the wider the farther. */
static void arc(const struct jm_tensor *t, int from, int to, FILE *f)
{
	double a = row_y(from) + ROW / 2.0, b = row_y(to) + ROW / 2.0;
	double reach = fmin(ARC_AT - 6, 6 + 9 * log2(to - from));

	if (to - from < 2)
		return;
	fprintf(f,
		"<path d=\"M%d %.0fC%.0f %.0f %.0f %.0f %d %.0f\" fill=\"none\" stroke=\"#468\" "
		"stroke-opacity=\"0.35\"><title>%s</title></path>\n",
		ARC_AT, a, ARC_AT - reach * 1.3, a, ARC_AT - reach * 1.3, b, ARC_AT, b, t->name);
}

static void arcs(const struct jm_program *p, FILE *f)
{
	for (int i = 0; i < p->n_units; i++)
		for (int k = 0; k < p->unit[i]->group.n_nodes; k++) {
			const struct jm_node *n = p->unit[i]->group.node[k];

			for (int j = 0; j < n->n_in; j++)
				if (n->in[j] && n->in[j]->class == JM_CLASS_ACT &&
					!n->in[j]->is_virtual)
					arc(n->in[j], jm_graph_cell(p->graph, n->in[j])->first, i,
						f);
		}
}

static void memory_map(const struct jm_program *p, FILE *f)
{
	double scale = MAP_WIDTH / fmax(1, (double)p->arena_bytes);

	fprintf(f,
		"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
		"stroke=\"#999\"/>\n",
		MAP_AT, TOP, MAP_WIDTH, ROW * p->n_units);
	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_cell *c = p->graph->cell[i];

		if (c->first < 0 || c->alias || c->slab || !colours[c->t.class] || c->t.is_virtual)
			continue;
		fprintf(f,
			"<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
			"stroke=\"white\" stroke-width=\"0.5\"><title>%s, %zu B at "
			"%zu</title></rect>\n",
			MAP_AT + scale * (double)(c->offset - p->persistent_bytes), row_y(c->first),
			scale * (double)c->t.bytes, ROW * (c->last - c->first + 1),
			colours[c->t.class], c->t.name, c->t.bytes, c->offset);
	}
}

bool describe_svg_write(const struct jm_program *p, const char *title, FILE *f)
{
	head(p, title, f);
	rows(p, f);
	arcs(p, f);
	memory_map(p, f);
	fprintf(f, "</svg>\n");
	return !ferror(f);
}
