/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One op, its loss and all gradients, for comparison with other programs.
 *
 *	one_op CASE DEVICE PRECISION FILE
 *
 * Writes f64 values to FILE: of each tensor that the case is given, in the order of its
 * declaration; of its parameters and the gradients of these, each behind its values; of the loss.
 * tests/parity/test_parity_ops.py has the shapes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/check/op_kit.h"
#include "engine/graph/gradient.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"

static struct jm_err err;

static void check(int code)
{
	if (!code)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(1);
}

static struct jm_tensor *squares(struct kit *k, struct jm_tensor *y)
{
	return jm_graph_mse(k->graph, y, kit_normal(k, y->type, 0, 1, y->rank, y->dim));
}

static struct jm_tensor *ignored(struct kit *k)
{
	struct jm_tensor *target = kit_whole(k, JM_I32, -4, 6, 1, DIMS(12));

	return jm_graph_ignore_targets(
		k->graph, jm_graph_softmax_xent(k->graph, kit_param(k, 2, DIMS(12, 7)), target));
}

static struct jm_tensor *concat(struct kit *k)
{
	struct jm_tensor *part[] = {kit_param(k, 4, DIMS(2, 16, 4, 5)),
		kit_param(k, 4, DIMS(2, 3, 4, 5)), kit_param(k, 4, DIMS(2, 8, 4, 5))};

	return squares(k, jm_graph_concat(k->graph, 3, part, 1));
}

/* SiLU: a parameter is no image in the layout that a backend likes. */
static struct jm_tensor *lopsided(struct kit *k)
{
	struct jm_tensor *x = jm_graph_silu(k->graph, kit_param(k, 4, DIMS(2, 3, 6, 8)));
	struct jm_tensor *w = kit_param(k, 4, DIMS(5, 3, 3, 3));

	return squares(k,
		jm_graph_conv(k->graph, x, w, NULL, &(struct jm_window){.stride = 2, .more = 1}));
}

static struct jm_tensor *upsample(struct kit *k)
{
	return squares(k, jm_graph_upsample(k->graph, kit_param(k, 4, DIMS(2, 5, 3, 4)), 2));
}

static struct jm_tensor *groups(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(3, 12, 5, 4));

	return squares(k, jm_graph_groupnorm(k->graph, x, 4, false, 1e-5, "n"));
}

static struct jm_tensor *groups_silu(struct kit *k)
{
	struct jm_tensor *x = kit_param(k, 4, DIMS(2, 64, 7, 7));

	return squares(k, jm_graph_groupnorm(k->graph, x, 32, true, 1e-6, "n"));
}

static const struct {
	const char *name;
	struct jm_tensor *(*build)(struct kit *k);
} cases[] = {{"ignored", ignored}, {"concat", concat}, {"lopsided", lopsided},
	{"upsample", upsample}, {"groups", groups}, {"groups_silu", groups_silu}, {0}};

static void write_values(struct kit *k, const struct jm_tensor *t, FILE *f)
{
	double *value = kit_values(k, t);

	if (!value || fwrite(value, sizeof(*value), (size_t)jm_tensor_count(t), f) !=
			      (size_t)jm_tensor_count(t))
		exit(1);
	free(value);
}

/* Parameters that the op made: their start values would hide what is in the wrong place. */
static void fill_made(struct kit *k, struct jm_tensor *t)
{
	char *data = malloc(t->bytes);

	for (int64_t i = 0; i < jm_tensor_count(t); i++)
		jm_element_set(t->type, data, i, 0.5 + 0.1 * (double)(i % 9));
	check(jm_program_write(k->program, t, data, &err));
	free(data);
}

static void run(struct kit *k, struct jm_tensor *loss, FILE *f)
{
	check(kit_run(k, &err));
	for (int i = 0; i < k->graph->n_cells; i++)
		if (!strncmp(k->graph->cell[i]->t.name, "n.", 2))
			fill_made(k, &k->graph->cell[i]->t);
	check(jm_program_run(k->program, &err));
	for (int i = 0; i < k->n_given; i++)
		if (k->given[i]->class != JM_CLASS_PARAM)
			write_values(k, k->given[i], f);
	for (int i = 0; i < k->graph->n_cells; i++)
		if (k->graph->cell[i]->grad) {
			write_values(k, &k->graph->cell[i]->t, f);
			write_values(k, k->graph->cell[i]->grad, f);
		}
	write_values(k, loss, f);
}

int main(int argc, char **argv)
{
	enum jm_dtype type = JM_F32;
	struct jm_tensor *loss;
	FILE *f = argc == 5 ? fopen(argv[4], "wb") : NULL;
	struct kit k;
	int i = 0;

	if (!f)
		return 1;
	while (cases[i].name && strcmp(cases[i].name, argv[1]) != 0)
		i++;
	check(jm_dtype_find(argv[3], &type, &err));
	check(kit_open(&k, argv[2], 2, type, &err));
	if (!cases[i].name)
		return 1;
	loss = cases[i].build(&k);
	check(jm_graph_gradients(k.graph, loss, &err));
	run(&k, loss, f);
	kit_done(&k);
	return fclose(f) != 0;
}
