/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of a program in the order of running: operands with their layouts and places, FLOPs,
 * bytes. */
#include "describe_graph.h"
#include "engine/graph/op.h"
#include "engine/graph/tensor.h"
#include "engine/plan/arena.h"
#include "engine/run/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

static void print_tensor(const struct jm_program *p, const struct jm_tensor *t, FILE *f)
{
	char layout[64];

	fprintf(f, " %s %s[", t->name, jm_dtype_name(t->type));
	for (int i = 0; i < t->rank; i++)
		fprintf(f, "%s%lld", i ? "," : "", (long long)t->dim[i]);
	fputc(']', f);
	if (t->layout.rank)
		fprintf(f, ":%s", jm_layout_name(&t->layout, layout, sizeof(layout)));
	if (t->is_virtual)
		fprintf(f, "@-");
	else
		fprintf(f, "@%zu", jm_graph_cell(p->graph, t)->offset);
}

static void print_node(const struct jm_program *p, const struct jm_node *n, FILE *f)
{
	fprintf(f, " %-14s", jm_op_name(n->op));
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i])
			print_tensor(p, n->in[i], f);
	fprintf(f, " ->");
	for (int i = 0; i < n->n_out; i++)
		if (n->out[i]) {
			print_tensor(p, n->out[i], f);
			fprintf(f, "%s", n->accumulate >> i & 1 ? "+=" : "");
		}
	fputc('\n', f);
}

static void print_unit(const struct jm_program *p, const struct jm_unit *u, FILE *f)
{
	for (int k = 0; k < u->group.n_nodes; k++) {
		const struct jm_node *n = u->group.node[k];

		if (k)
			fprintf(f, "    +");
		else
			fprintf(f, "%5d", u->position);
		fprintf(f, " %9.3f %9.3f", n->flops_model / 1e9, n->bytes / 1e6);
		print_node(p, n, f);
	}
	if (u->scratch)
		fprintf(f, "%26s scratch %zu B@%zu\n", "", u->scratch->bytes,
			jm_graph_cell(p->graph, u->scratch)->offset);
	if (u->saved)
		fprintf(f, "%26s saved %zu B@%zu\n", "", u->saved->bytes,
			jm_graph_cell(p->graph, u->saved)->offset);
}

static int reorders(const struct jm_program *p)
{
	int n = 0;

	for (int i = 0; i < p->n_units; i++) {
		const struct jm_node *node = p->unit[i]->group.node[0];

		n += node->op == JM_OP_CAST && node->in[0]->type == node->out[0]->type &&
		     !jm_layout_equal(&node->in[0]->layout, &node->out[0]->layout);
	}
	return n;
}

#define LARGEST 12 /* tensors that are listed, of those allocated at the peak */

static int larger_first(const void *a, const void *b)
{
	const struct jm_cell *x = *(struct jm_cell *const *)a, *y = *(struct jm_cell *const *)b;

	return x->t.bytes == y->t.bytes ? x->t.id - y->t.id : x->t.bytes < y->t.bytes ? 1 : -1;
}

/* Where the peak is and what makes it. */
static void print_peak(const struct jm_program *p, FILE *f)
{
	struct jm_cell **live = calloc((size_t)p->graph->n_cells + 1, sizeof(struct jm_cell *));
	size_t sum, rest;
	int at, n = 0;

	rest = sum = jm_program_live(p, &at);
	for (int i = 0; live && i < p->graph->n_cells; i++)
		if (jm_program_is_live(p->graph->cell[i], at))
			live[n++] = p->graph->cell[i];
	if (n)
		qsort(live, (size_t)n, sizeof(struct jm_cell *), larger_first);
	fprintf(f,
		"\npeak: %zu B are alive at group %d, %.2f %% below what is planned; the "
		"largest:\n",
		sum, at, 100 * (1 - (double)sum / (double)(p->arena_bytes ? p->arena_bytes : 1)));
	for (int i = 0; i < n && i < LARGEST; i++) {
		fprintf(f, "  %-40s %14zu B  groups %d to %d\n", live[i]->t.name, live[i]->t.bytes,
			live[i]->first, live[i]->last);
		rest -= (live[i]->t.bytes + 63) / 64 * 64; /* as sum has them */
	}
	if (n > LARGEST)
		fprintf(f, "  and %-36d %14zu B\n", n - LARGEST, rest);
	free(live);
}

#define MOST_KINDS 64

static int most_work_first(const void *a, const void *b)
{
	const struct jm_profile_line *x = a, *y = b;

	if (x->flops != y->flops)
		return x->flops < y->flops ? 1 : -1;
	return x->bytes == y->bytes ? strcmp(x->name, y->name) : x->bytes < y->bytes ? 1 : -1;
}

/* What a step consists of, groups of the same ops in one line. */
static void print_work(const struct jm_program *p, FILE *f)
{
	struct jm_profile_line kind[MOST_KINDS];
	int n = jm_profile_kinds(p, kind, MOST_KINDS);

	qsort(kind, (size_t)n, sizeof(*kind), most_work_first);
	fprintf(f, "\nwork of a step:\n   runs  executed GFLOP   MB moved  group\n");
	for (int i = 0; i < n; i++)
		fprintf(f, "  %5.0f %15.3f %10.3f  %s\n", kind[i].calls, kind[i].flops / 1e9,
			kind[i].bytes / 1e6, kind[i].name);
}

void describe_graph_print(const struct jm_program *p, FILE *f)
{
	int n_nodes = 0;

	for (int i = 0; i < p->n_units; i++)
		n_nodes += p->unit[i]->group.n_nodes;
	fprintf(f,
		"\nmemory by kind (activations and what is saved share places over the step):\n");
	for (int i = 0; i < JM_CLASS_COUNT; i++)
		if (p->class_bytes[i])
			fprintf(f, "  %-20s %14zu B\n", jm_class_name((enum jm_class)i),
				p->class_bytes[i]);
	print_peak(p, f);
	print_work(p, f);
	fprintf(f,
		"\nprogram: %d groups of %d nodes, %d reorders between layouts; '+' runs with the "
		"one above it\n"
		"name type[dims]:layout@place; no layout = plain, @- = never written, += = added "
		"to\n\n",
		p->n_units, n_nodes, reorders(p));
	fprintf(f, "group model GFLOP  MB moved op             operands -> results\n");
	for (int i = 0; i < p->n_units; i++)
		print_unit(p, p->unit[i], f);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *tensor_json(const struct jm_program *p, const struct jm_tensor *t)
{
	json_t *o = json_object(), *dims = json_array();
	char layout[64];

	for (int i = 0; i < t->rank; i++)
		json_array_append_new(dims, json_integer(t->dim[i]));
	json_object_set_new(o, "name", json_string(t->name));
	json_object_set_new(o, "class", json_string(jm_class_name(t->class)));
	json_object_set_new(o, "type", json_string(jm_dtype_name(t->type)));
	json_object_set_new(o, "dims", dims);
	json_object_set_new(
		o, "layout", json_string(jm_layout_name(&t->layout, layout, sizeof(layout))));
	json_object_set_new(o, "bytes", json_integer((json_int_t)t->bytes));
	json_object_set_new(o, "offset",
		t->is_virtual ? json_null()
			      : json_integer((json_int_t)jm_graph_cell(p->graph, t)->offset));
	return o;
}

static json_t *operands_json(const struct jm_program *p, struct jm_tensor *const *t, int n)
{
	json_t *array = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(array, t[i] ? tensor_json(p, t[i]) : json_null());
	return array;
}

static json_t *node_json(const struct jm_program *p, const struct jm_node *n)
{
	json_t *o = json_object();

	json_object_set_new(o, "op", json_string(jm_op_name(n->op)));
	json_object_set_new(o, "in", operands_json(p, n->in, n->n_in));
	json_object_set_new(o, "out", operands_json(p, n->out, n->n_out));
	json_object_set_new(o, "accumulate", json_integer(n->accumulate));
	json_object_set_new(o, "flops_model", json_real(n->flops_model));
	json_object_set_new(o, "flops_executed", json_real(n->flops_executed));
	json_object_set_new(o, "bytes", json_real(n->bytes));
	return o;
}

json_t *describe_graph_json(const struct jm_program *p)
{
	json_t *groups = json_array();

	for (int i = 0; i < p->n_units; i++) {
		const struct jm_unit *u = p->unit[i];
		json_t *o = json_object(), *nodes = json_array();

		for (int k = 0; k < u->group.n_nodes; k++)
			json_array_append_new(nodes, node_json(p, u->group.node[k]));
		json_object_set_new(o, "nodes", nodes);
		json_object_set_new(
			o, "scratch_bytes", json_integer((json_int_t)u->choice.scratch));
		json_object_set_new(o, "saved_bytes", json_integer((json_int_t)u->choice.saved));
		json_array_append_new(groups, o);
	}
	return groups;
}
