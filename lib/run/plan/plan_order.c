/* SPDX-License-Identifier: Apache-2.0 */
/* Which run of a plan file comes after which. */
#include "plan_order.h"
#include "plan_lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the order of the runs.");
}

static int find_run(const struct jm_plan_file *file, const char *name)
{
	for (int i = 0; i < file->n; i++)
		if (!strcmp(file->run[i].name, name))
			return i;
	return -1;
}

static int unknown_run(
	const struct jm_plan_file *file, const struct jm_yaml *name, struct jm_err *err)
{
	const char *names[JM_PLAN_RUNS], *near;

	for (int i = 0; i < file->n; i++)
		names[i] = file->run[i].name;
	near = jm_did_you_mean(name->text, names, (size_t)file->n);
	return jm_yaml_fail(name, JM_EUSAGE, err, "There is no run '%.80s' to come after%s%s%s.",
		name->text, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int add_after(const struct jm_plan_file *file, struct jm_plan_run *run,
	const struct jm_yaml *name, struct jm_err *err)
{
	int rc = jm__plan_scalar(name, "after", err), *grown, i;

	if (rc)
		return rc;
	i = find_run(file, name->text);
	if (i < 0)
		return unknown_run(file, name, err);
	grown = reallocarray(run->after, (size_t)run->n_after + 1, sizeof(*grown));
	if (!grown)
		return no_memory(err);
	run->after = grown;
	grown[run->n_after++] = i;
	return 0;
}

static int read_after(const struct jm_plan_file *file, struct jm_plan_run *run, struct jm_err *err)
{
	const struct jm_yaml *after = jm_yaml_get(run->where, "after");
	int rc = 0;

	if (!after)
		return 0;
	if (after->kind != JM_YAML_LIST)
		return add_after(file, run, after, err);
	for (int i = 0; i < after->n && !rc; i++)
		rc = add_after(file, run, after->item[i], err);
	return rc;
}

/* Every run of a cycle waits for another one that waits: following them leads round. */
static int fail_of_cycle(
	const struct jm_plan_file *file, const bool *done, int at, struct jm_err *err)
{
	char text[360];
	size_t used;
	int first;

	for (int i = 0; i < file->n; i++) { /* into the cycle */
		for (int k = 0; k < file->run[at].n_after; k++)
			if (!done[file->run[at].after[k]]) {
				at = file->run[at].after[k];
				break;
			}
	}
	first = at;
	used = (size_t)snprintf(text, sizeof(text), "'%s'", file->run[at].name);
	do {
		int next = at;

		for (int k = 0; k < file->run[at].n_after && next == at; k++)
			if (!done[file->run[at].after[k]])
				next = file->run[at].after[k];
		if (used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, " after '%s'",
				file->run[next].name);
		at = next;
	} while (at != first && used < sizeof(text));
	return jm_yaml_fail(file->run[first].where, JM_EUSAGE, err,
		"These runs wait for one another: %s; remove 'after' from one of them.", text);
}

static bool is_ready(const struct jm_plan_run *run, const bool *done)
{
	for (int i = 0; i < run->n_after; i++)
		if (!done[run->after[i]])
			return false;
	return true;
}

/* Of the runs that may come next the first of the file. */
static int sort(const struct jm_plan_file *file, bool *done, int *ret_order, struct jm_err *err)
{
	for (int n = 0; n < file->n; n++) {
		int i = 0;

		while (i < file->n && (done[i] || !is_ready(&file->run[i], done)))
			i++;
		if (i == file->n) {
			for (i = 0; done[i];)
				i++;
			return fail_of_cycle(file, done, i, err);
		}
		ret_order[n] = i;
		done[i] = true;
	}
	return 0;
}

static int reorder(struct jm_plan_file *file, const int *order, int *place, struct jm_err *err)
{
	struct jm_plan_run *sorted = calloc((size_t)file->n + 1, sizeof(*sorted));

	if (!sorted)
		return no_memory(err);
	for (int i = 0; i < file->n; i++) {
		sorted[i] = file->run[order[i]];
		place[order[i]] = i;
	}
	for (int i = 0; i < file->n; i++)
		for (int k = 0; k < sorted[i].n_after; k++)
			sorted[i].after[k] = place[sorted[i].after[k]];
	free(file->run);
	file->run = sorted;
	return 0;
}

int jm__plan_order(struct jm_plan_file *file, struct jm_err *err)
{
	bool *done = calloc((size_t)file->n + 1, sizeof(*done));
	int *order = calloc(2 * (size_t)file->n + 1, sizeof(*order)), rc = 0;

	if (!done || !order)
		rc = no_memory(err);
	for (int i = 0; i < file->n && !rc; i++)
		rc = read_after(file, &file->run[i], err);
	if (!rc)
		rc = sort(file, done, order, err);
	if (!rc)
		rc = reorder(file, order, order + file->n, err);
	free(done);
	free(order);
	return rc;
}
