/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where a NaN or an infinity first appeared: runs a micro-step unit by unit and checks all
 * results after each. Slow, and only run after a failure.
 */
#include "find_nonfinite.h"
#include "engine/graph/tensor.h"
#include "reduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool all_finite(const struct jm_tensor *t, const void *data)
{
	size_t n = t->bytes / jm_dtype_bytes(t->type); /* padding is zero */

	for (size_t i = 0; i < n; i++)
		if (!isfinite(jm_element_get(t->type, data, (int64_t)i)))
			return false;
	return true;
}

/* 1 = all elements are finite, or the type has no such values; 0 = not all; negative = an error. */
static int look(struct jm_program *p, const struct jm_tensor *t, struct jm_err *err)
{
	void *data;
	int code;

	if (!t || !t->data || t->is_virtual || t->type == JM_I32)
		return 1;
	data = malloc(t->bytes);
	if (!data)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a check of %s.", t->name);
	code = jm_program_read(p, t, data, err);
	if (!code)
		code = all_finite(t, data);
	free(data);
	return code;
}

/* Checks parameters and inputs, which no unit computes. */
static int look_at_given(struct jm_program *p, char *ret, size_t size, struct jm_err *err)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_tensor *t = &p->graph->cell[i]->t;
		bool given = t->class == JM_CLASS_PARAM || t->class == JM_CLASS_INPUT;
		int good = given ? look(p, t, err) : 1;

		if (good < 0)
			return good;
		if (good)
			continue;
		snprintf(ret, size, "%s %s was not finite before the step",
			t->class == JM_CLASS_PARAM ? "parameter" : "input", t->name);
		return 1;
	}
	return 0;
}

static int look_at_results(
	struct jm_program *p, const struct jm_unit *u, char *ret, size_t size, struct jm_err *err)
{
	for (int k = 0; k < u->group.n_nodes; k++) {
		const struct jm_node *n = u->group.node[k];

		for (int i = 0; i < n->n_out; i++) {
			int good = look(p, n->out[i], err);

			if (good < 0)
				return good;
			if (good)
				continue;
			snprintf(ret, size,
				"it first became non-finite in node %d, %s, in its result %s",
				n->id, jm_op_name(n->op), n->out[i]->name);
			return 1;
		}
	}
	return 0;
}

/* The last unit to check, including a separate norm, which may overflow although gradients are
 * finite. */
static int last_unit(const struct jm_program *p)
{
	const struct jm_group *next = p->n_micro < p->n_units ? &p->unit[p->n_micro]->group : NULL;

	return p->n_micro + (next && next->n_nodes == 1 && next->node[0]->op == JM_OP_NORM);
}

int jm_program_find_nonfinite(struct jm_program *p, char *ret, size_t size, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	int found = look_at_given(p, ret, size, err), last = last_unit(p);

	for (int i = p->n_once; i < last && !found; i++) {
		found = jm_program_run_unit(p, i, err);
		if (!found)
			found = jm_device_sync(d, err);
		if (!found)
			found = look_at_results(p, p->unit[i], ret, size, err);
	}
	return found;
}
