/* SPDX-License-Identifier: Apache-2.0 */
#include "freeze.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "tensor.h"

#define PATTERN_MOST 256

/* Cuts the next pattern off; false: there is none. */
static bool next_pattern(const char **list, char ret[PATTERN_MOST])
{
	size_t n = strcspn(*list, ",");

	if (!**list)
		return false;
	snprintf(ret, PATTERN_MOST, "%.*s", (int)n, *list);
	*list += n + ((*list)[n] == ',');
	return true;
}

static bool fits(const struct jm_freeze *f, const char *pattern, const char *name)
{
	return !fnmatch(pattern, name, 0) || jm_weight_name_fits(f->names, name, pattern);
}

static bool fits_one(const struct jm_freeze *f, const char *list, const char *name)
{
	char pattern[PATTERN_MOST];

	while (list && next_pattern(&list, pattern))
		if (fits(f, pattern, name))
			return true;
	return false;
}

bool jm_freezes(const struct jm_freeze *f, const char *name)
{
	return fits_one(f, f->patterns, name) || fits_one(f, f->always, name);
}

void jm_freeze_cell(struct jm_graph *g, struct jm_cell *c)
{
	c->frozen = jm_freezes(&g->freeze, c->t.name);
	c->needs_grad = !c->frozen;
	if (!c->frozen || c->t.rank < 2)
		return;
	c->t.type = g->compute;
	c->t.bytes = jm_layout_bytes(&c->t, &c->t.layout);
}

static bool is_parameter(const struct jm_cell *c)
{
	return c->t.class == JM_CLASS_PARAM && (c->needs_grad || c->frozen);
}

static int count_fits(const struct jm_graph *g, const char *pattern)
{
	int n = 0;

	for (int i = 0; i < g->n_cells; i++)
		n += is_parameter(g->cell[i]) && fits(&g->freeze, pattern, g->cell[i]->t.name);
	return n;
}

int jm_freeze_check(const struct jm_graph *g, const char *model, struct jm_err *err)
{
	const char *list = g->freeze.patterns ? g->freeze.patterns : "";
	char pattern[PATTERN_MOST];
	size_t bytes;

	while (next_pattern(&list, pattern))
		if (!count_fits(g, pattern))
			return jm_err_set(err, JM_EUSAGE,
				"--freeze: no parameter of %s has a name like '%.100s'; "
				"'joulemark describe' with --graph and the same options prints "
				"their names.",
				model, pattern);
	if (jm_freeze_parameters(g, &bytes) < jm_graph_parameters(g))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--freeze %.100s fits all parameters of %s, so nothing would be trained; "
		"omit those of the last layer.",
		g->freeze.patterns, model);
}

int64_t jm_freeze_parameters(const struct jm_graph *g, size_t *ret_bytes)
{
	int64_t n = 0;

	*ret_bytes = 0;
	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_cell *c = g->cell[i];

		if (c->t.class != JM_CLASS_PARAM || !c->frozen)
			continue;
		n += jm_cell_parameters(g, c);
		*ret_bytes += c->t.bytes;
	}
	return n;
}
