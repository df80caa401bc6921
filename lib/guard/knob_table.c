/* SPDX-License-Identifier: Apache-2.0 */
/* Opening controls by name and finding a knob's own. */
#include "guard/knob_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_member(struct jm_knob_table *table, struct jm_ctx *ctx,
	const struct jm_control *control, const char *arg, struct jm_err *err)
{
	struct jm_knob_member *grown, *m;
	const char *again = control->restore_argument ? control->restore_argument : arg;
	int rc;

	grown = reallocarray(table->member, (size_t)table->n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for control %s.", control->name);
	table->member = grown;
	m = &grown[table->n];
	*m = (struct jm_knob_member){.control = control, .first = table->knobs.n};
	snprintf(m->restore_spec, sizeof(m->restore_spec), "%s%s%s", control->name,
		*again ? ":" : "", again);
	rc = control->open(ctx, arg, &table->knobs, &m->state, err);
	if (rc < 0) {
		table->knobs.n = m->first;
		return rc;
	}
	m->n = table->knobs.n - m->first;
	table->n++;
	return 0;
}

/* One of the list, "name" or "name:argument". */
static int open_spec(
	struct jm_knob_table *table, struct jm_ctx *ctx, const char *spec, struct jm_err *err)
{
	char name[JM_SPEC_MAX];
	const struct jm_control *control;
	char *colon;

	snprintf(name, sizeof(name), "%s", spec);
	colon = strchr(name, ':');
	if (colon)
		*colon = '\0';
	control = jm_control_find(name, err);
	if (!control)
		return err && err->code ? err->code : JM_EUSAGE;
	return add_member(table, ctx, control, colon ? colon + 1 : "", err);
}

/* Is the word at w of the cut copy one of those before it in the list? */
static bool named_before(const char *list, const char *copy, const char *w)
{
	const char *end = list + (w - copy);
	size_t n = strlen(w), length;

	for (; list < end; list += length + (list[length] == ',')) {
		length = strcspn(list, ",");
		if (length == n && !strncmp(list, w, n))
			return true;
	}
	return false;
}

static int open_list(
	struct jm_knob_table *table, struct jm_ctx *ctx, const char *specs, struct jm_err *err)
{
	char copy[512], *save = NULL;
	int rc = 0;

	if (strlen(specs) >= sizeof(copy))
		return jm_err_set(
			err, JM_EUSAGE, "The list of controls is too long: '%.60s...'.", specs);
	memcpy(copy, specs, strlen(specs) + 1);
	for (char *w = strtok_r(copy, ",", &save); w && !rc; w = strtok_r(NULL, ",", &save))
		if (named_before(specs, copy, w))
			rc = jm_err_set(err, JM_EUSAGE,
				"The control '%s' is named twice; once is enough.", w);
		else
			rc = strlen(w) < JM_SPEC_MAX
				     ? open_spec(table, ctx, w, err)
				     : jm_err_set(err, JM_EUSAGE, "'%.60s...' is no control.", w);
	if (!rc && !table->n)
		return jm_err_set(
			err, JM_EUSAGE, "No control is named; 'joulemark list' shows them.");
	return rc;
}

/* Every control that acts on the machine and opens; why the others do not is said when none does. */
static int open_machine(struct jm_knob_table *table, struct jm_ctx *ctx, struct jm_err *err)
{
	char why[400] = "";
	size_t used = 0;

	for (int i = 0; jm_controls[i]; i++) {
		struct jm_err one = JM_ERR_INIT;

		if (jm_controls[i]->origin != JM_MEASURED)
			continue;
		if (add_member(table, ctx, jm_controls[i], "", &one) && used < sizeof(why))
			used += (size_t)snprintf(why + used, sizeof(why) - used, " %s: %s",
				jm_controls[i]->name, one.text);
	}
	if (table->knobs.n)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"This machine has no knob that can be reached;%s A simulated one is --control "
		"sim:h100x4.",
		why);
}

int jm_knob_table_open(
	struct jm_ctx *ctx, const char *specs, struct jm_knob_table *ret, struct jm_err *err)
{
	struct jm_knob_table table = {0};
	int rc = specs ? open_list(&table, ctx, specs, err) : open_machine(&table, ctx, err);

	if (rc)
		jm_knob_table_close(&table);
	else
		*ret = table;
	return rc;
}

void jm_knob_table_close(struct jm_knob_table *table)
{
	for (int i = 0; i < table->n; i++)
		table->member[i].control->close(table->member[i].state);
	free(table->member);
	jm_knobs_done(&table->knobs);
	*table = (struct jm_knob_table){0};
}

const struct jm_knob_member *jm_knob_table_member(const struct jm_knob_table *table, int i)
{
	const struct jm_knob_member *m = table->member;

	while (i >= m->first + m->n)
		m++;
	return m;
}

int jm_knob_table_get(const struct jm_knob_table *table, int i, double *ret_accepted,
	double *ret_enforced, struct jm_err *err)
{
	const struct jm_knob_member *m = jm_knob_table_member(table, i);

	return m->control->get(m->state, i - m->first, ret_accepted, ret_enforced, err);
}

int jm_knob_table_set(const struct jm_knob_table *table, int i, double value, struct jm_err *err)
{
	const struct jm_knob_member *m = jm_knob_table_member(table, i);

	return m->control->set(m->state, i - m->first, value, err);
}

int jm_knob_table_find(const struct jm_knob_table *table, const char *knob, const char *device)
{
	for (int i = 0; i < table->knobs.n; i++)
		if (!strcmp(table->knobs.knob[i].name, knob) &&
			!strcmp(table->knobs.knob[i].device, device))
			return i;
	return -1;
}
