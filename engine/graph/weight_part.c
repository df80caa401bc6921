/* SPDX-License-Identifier: Apache-2.0 */
#include "weight_part.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "tensor_parallel.h"

#define STARS 4 /* in a name */

/* ---- names ----------------------------------------------------------------------------------- */

struct capture {
	const char *at;
	int n;
};

/* What each star stands for, as few characters as possible but one. */
static bool capture(const char *pattern, const char *text, struct capture *ret)
{
	const char *star = strchr(pattern, '*');
	size_t n = star ? (size_t)(star - pattern) : 0;

	if (!star)
		return !strcmp(pattern, text);
	if (strncmp(pattern, text, n) != 0)
		return false;
	text += n;
	for (int i = 1; text[i - 1]; i++)
		if (capture(star + 1, text + i, ret + 1)) {
			*ret = (struct capture){text, i};
			return true;
		}
	return false;
}

/* prefix: NULL = none. False: the name is too long. */
static bool write_name(
	const char *prefix, const char *pattern, const struct capture *star, char *ret)
{
	size_t n = (size_t)snprintf(ret, JM_WEIGHT_NAME, "%s", prefix ? prefix : "");

	for (; *pattern && n + 1 < JM_WEIGHT_NAME; pattern++) {
		if (*pattern == '*' && star) {
			n += (size_t)snprintf(
				ret + n, JM_WEIGHT_NAME - n, "%.*s", star->n, star->at);
			star++;
		} else {
			ret[n++] = *pattern;
			ret[n] = '\0';
		}
	}
	return !*pattern && n < JM_WEIGHT_NAME;
}

static bool ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* A name of the graph, in the table that has it. */
struct entry {
	const char *own;		  /* behind the prefix of its group */
	const char *prefix;		  /* in the file; NULL = none */
	const struct jm_weight_name *row; /* NULL = it has the same name there */
	int n;				  /* rows */
};

static struct entry find_entry(const struct jm_weight_names *names, const char *own)
{
	const struct jm_weight_group *group = names ? names->group : NULL;
	struct entry e = {.own = own, .prefix = names ? names->prefix : NULL};
	const struct jm_weight_name *row = names ? names->name : NULL;
	struct capture star[STARS];

	for (; group && group->own; group++) {
		size_t n = strlen(group->own);

		if (strncmp(own, group->own, n) != 0)
			continue;
		e = (struct entry){.own = own + n, .prefix = group->file};
		row = group->name;
		break;
	}
	while (row && row->own && !capture(row->own, e.own, star))
		row++;
	if (!row || !row->own)
		return e;
	e.row = row;
	for (e.n = 1; row[e.n].own && !strcmp(row[e.n].own, row->own);)
		e.n++;
	return e;
}

bool jm_weight_name_fits(const struct jm_weight_names *names, const char *own, const char *pattern)
{
	struct capture star[STARS];
	char file[JM_WEIGHT_NAME];

	for (; names && names->of; names++) {
		const struct entry e = find_entry(names, own);

		if (!e.n && e.prefix && write_name(e.prefix, e.own, NULL, file) &&
			!fnmatch(pattern, file, 0))
			return true;
		for (int i = 0; i < e.n; i++)
			if (capture(e.row[i].own, e.own, star) &&
				write_name(e.prefix, e.row[i].file, star, file) &&
				!fnmatch(pattern, file, 0))
				return true;
	}
	return false;
}

bool jm_weight_is_kept(const struct jm_cell *c)
{
	if (c->t.class == JM_CLASS_PARAM)
		return !c->origin && (c->needs_grad || c->frozen);
	return c->t.class == JM_CLASS_STATE &&
	       (ends_in(c->t.name, ".running_mean") || ends_in(c->t.name, ".running_var"));
}

/* ---- parts ----------------------------------------------------------------------------------- */

struct list {
	const struct jm_graph *g;
	struct jm_weight_part *part;
	int n;
	const struct jm_values *dims;
	struct jm_err *err;
};

static int wrong(const struct list *l, const struct jm_tensor *t)
{
	return jm_err_set(l->err, JM_EBUG,
		"The table of names in weights files does not fit tensor %s.", t->name);
}

static int64_t share_of(const struct list *l, const struct jm_weight_name *row)
{
	return row->share ? (int64_t)jm_values_number(l->dims, row->share) : 1;
}

/* The dims in the file, from those of the tensor and the part's rows. */
static void set_dims(
	const struct list *l, struct jm_weight_part *p, const struct jm_weight_name *row)
{
	const struct jm_tensor *t = p->tensor;
	const struct jm_cell *c = jm_graph_cell(l->g, t);
	int ones = row->ones;

	for (int i = 0; i < ones; i++)
		p->dim[i] = 1;
	p->rank = ones + t->rank;
	for (int i = 0; i < t->rank; i++)
		p->dim[ones + i] = jm_cell_dim(l->g, c, i);
	if (t->rank)
		p->dim[ones] = p->rows;
	p->transposed = row->transposed && t->rank == 2;
	if (p->transposed) {
		p->dim[ones] = p->width;
		p->dim[ones + 1] = p->rows;
	}
	if (row->flat && t->rank > 2) {
		p->rank = ones + 2;
		p->dim[ones + 1] = p->width;
	}
}

/* Rows of the tensor that are in use. */
static int64_t rows_of(const struct list *l, const struct jm_cell *c)
{
	return c->used ? c->used : c->t.rank ? jm_cell_dim(l->g, c, 0) : 1;
}

/* A part of the tensor, from the row on. */
static struct jm_weight_part part_of(
	const struct list *l, struct jm_cell *c, int64_t row, int64_t rows)
{
	int64_t count = jm_cell_count(l->g, c);

	return (struct jm_weight_part){.tensor = &c->t,
		.count = count,
		.width = c->t.rank ? count / jm_cell_dim(l->g, c, 0) : 1,
		.row = row,
		.rows = rows};
}

static int add_same(struct list *l, struct jm_cell *c, const struct entry *e)
{
	struct jm_weight_part p = part_of(l, c, 0, rows_of(l, c));

	if (!write_name(e->prefix, e->own, NULL, p.name))
		return wrong(l, &c->t);
	set_dims(l, &p, &(struct jm_weight_name){0});
	l->part[l->n++] = p;
	return 0;
}

/* The parts that the rows of the table name. */
static int add_named(struct list *l, struct jm_cell *c, const struct entry *e)
{
	const struct jm_weight_name *row = e->row;
	struct capture star[STARS];
	int64_t at = 0, sum = 0, rows = rows_of(l, c);

	for (int i = 0; i < e->n; i++)
		sum += share_of(l, &row[i]);
	if (!capture(row->own, e->own, star) || sum < 1 || rows % sum)
		return wrong(l, &c->t);
	for (int i = 0; i < e->n; i++) {
		struct jm_weight_part p = part_of(l, c, at, rows / sum * share_of(l, &row[i]));

		p.tied = row[i].tied;
		if (!write_name(e->prefix, row[i].file, star, p.name))
			return wrong(l, &c->t);
		set_dims(l, &p, &row[i]);
		at += p.rows;
		l->part[l->n++] = p;
	}
	return 0;
}

/* What is a tensor of its own is no second name. */
static void drop_tied(struct list *l)
{
	for (int i = 0; i < l->n; i++)
		for (int k = 0; k < l->n && l->part[i].tied; k++)
			if (!strcmp(l->part[i].tied, l->part[k].name))
				l->part[i].tied = NULL;
}

#define PARTS_MOST 3 /* of a tensor */

int jm_weight_parts(const struct jm_graph *g, const struct jm_weight_names *names,
	const struct jm_values *dims, struct jm_weight_part **ret, int *ret_n, struct jm_err *err)
{
	struct list l = {.g = g, .dims = dims, .err = err};
	int code = 0;

	l.part = calloc((size_t)g->n_cells * PARTS_MOST + 1, sizeof(*l.part));
	if (!l.part)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the names of weights.");
	for (int i = 0; i < g->n_cells && !code; i++) {
		struct jm_cell *c = g->cell[i];
		struct entry e;

		if (!jm_weight_is_kept(c))
			continue;
		e = find_entry(names, c->t.name);
		code = e.row ? add_named(&l, c, &e) : add_same(&l, c, &e);
	}
	if (code) {
		free(l.part);
		return code;
	}
	drop_tied(&l);
	*ret = l.part;
	*ret_n = l.n;
	return 0;
}
