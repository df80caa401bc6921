/* SPDX-License-Identifier: Apache-2.0 */
/* Opens controls by name and finds the control of a knob. */
#include "guard/knob_table.h"

#include "base/clock.h"
#include "base/printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_member(struct jm_knob_table *table, struct jm_ctx *ctx,
	const struct jm_control *control, const char *arg, struct jm_err *err)
{
	struct jm_knob_member *grown, *m;
	int rc;

	if (*arg && !control->argument)
		return jm_err_set(err, JM_EUSAGE, "The control %s takes no argument, not '%s'.",
			control->name, arg);
	grown = reallocarray(table->member, (size_t)table->n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for control %s.", control->name);
	table->member = grown;
	m = &grown[table->n];
	*m = (struct jm_knob_member){.control = control, .first = table->knobs.n};
	snprintf(m->argument, sizeof(m->argument), "%s", arg);
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

/* Is the word at w of the copy, which was cut into words, also an earlier word of the list? */
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
				"The control '%s' is given twice; give it once.", w);
		else
			rc = strlen(w) < JM_SPEC_MAX ? open_spec(table, ctx, w, err)
						     : jm_err_set(err, JM_EUSAGE,
							       "'%.60s...' is not a control.", w);
	if (!rc && !table->n)
		return jm_err_set(
			err, JM_EUSAGE, "No control is given; 'joulemark list' lists them.");
	return rc;
}

/* A control that does not open, because its device is gone, must not keep the others. */
static void open_rest(struct jm_knob_table *table, struct jm_ctx *ctx, const char *specs)
{
	char spec[JM_SPEC_MAX];

	for (size_t n; *specs; specs += n + (specs[n] == ',')) {
		struct jm_err why = JM_ERR_INIT;

		n = strcspn(specs, ",");
		snprintf(spec, sizeof(spec), "%.*s", (int)n, specs);
		if (open_spec(table, ctx, spec, &why))
			jm_log(ctx, JM_WARNING, "%s", why.text);
	}
}

static int no_knobs(const char *absent, struct jm_err *err)
{
	char why[JM_KNOBS_ABSENT];

	snprintf(why, sizeof(why), "%s", absent);
	for (char *at = why; (at = strchr(at, '\n'));)
		*at = ' ';
	return jm_err_set(err, JM_ENOENT,
		"No knob of this machine is available; %.380s%s A simulated one is --device "
		"sim:h100x4.",
		why, strlen(why) > 380 ? "... ('joulemark doctor --all' has the rest)." : "");
}

/* Opens every control that acts on the machine; the knobs have the reasons of those that did not
 * open, and if none did, the error. */
static int open_machine(struct jm_knob_table *table, struct jm_ctx *ctx, struct jm_err *err)
{
	char *why = table->knobs.absent;
	const size_t size = sizeof(table->knobs.absent);
	size_t used = 0;

	for (int i = 0; jm_controls[i]; i++) {
		struct jm_err one = JM_ERR_INIT;

		if (jm_controls[i]->origin != JM_MEASURED ||
			!add_member(table, ctx, jm_controls[i], "", &one) || used >= size)
			continue;
		jm_text_tame(one.text);
		used += (size_t)snprintf(why + used, size - used, "%s%s: %s", used ? "\n" : "",
			jm_controls[i]->name, one.text);
	}
	return table->knobs.n ? 0 : no_knobs(why, err);
}

/* Hands the table over once its controls are open; rc: of opening them. */
static int finish_opening(
	struct jm_knob_table *table, int rc, struct jm_knob_table *ret, struct jm_err *err)
{
	if (!rc) {
		table->left = calloc((size_t)table->knobs.n + 1, sizeof(struct jm_driver_call *));
		table->told = calloc((size_t)table->knobs.n + 1, sizeof(*table->told));
		rc = table->left && table->told
			     ? 0
			     : jm_err_set(err, JM_ENOMEM, "Out of memory for knobs.");
	}
	for (int i = 0; i < table->knobs.n && !rc; i++)
		table->told[i] = jm_knob_value_of(NAN);
	if (rc)
		jm_knob_table_close(table);
	else
		*ret = *table;
	return rc;
}

int jm_knob_table_open(
	struct jm_ctx *ctx, const char *specs, struct jm_knob_table *ret, struct jm_err *err)
{
	struct jm_knob_table table = {0};
	int rc = specs ? open_list(&table, ctx, specs, err) : open_machine(&table, ctx, err);

	return finish_opening(&table, rc, ret, err);
}

int jm_knob_table_open_one(
	struct jm_ctx *ctx, const char *spec, struct jm_knob_table *ret, struct jm_err *err)
{
	struct jm_knob_table table = {0};

	return finish_opening(&table, open_spec(&table, ctx, spec, err), ret, err);
}

int jm_knob_table_open_rest(
	struct jm_ctx *ctx, const char *specs, struct jm_knob_table *ret, struct jm_err *err)
{
	struct jm_knob_table table = {0};

	if (specs)
		open_rest(&table, ctx, specs);
	else
		open_machine(&table, ctx, NULL);
	return finish_opening(&table, 0, ret, err);
}

void jm_knob_table_spec(const struct jm_knob_table *table, int i, char *out, size_t size)
{
	const struct jm_knob_member *m = jm_knob_table_member(table, i);
	const char *again = m->control->device_is_argument ? table->knobs.knob[i].device
			    : m->control->restore_argument ? m->control->restore_argument
							   : m->argument;

	snprintf(out, size, "%s%s%s", m->control->name, *again ? ":" : "", again);
}

static bool is_left(const struct jm_knob_table *table, int i)
{
	if (table->left[i] && jm_driver_call_returned(table->left[i]))
		table->left[i] = NULL;
	return table->left[i] != NULL;
}

bool jm_knob_table_waits(const struct jm_knob_table *table)
{
	bool waits = false;

	for (int i = 0; i < table->knobs.n && table->left; i++)
		waits = is_left(table, i) || waits;
	return waits;
}

/* Memory that a driver call still uses must stay. */
void jm_knob_table_close(struct jm_knob_table *table)
{
	if (jm_knob_table_waits(table))
		return;
	for (int i = 0; i < table->n; i++)
		table->member[i].control->close(table->member[i].state);
	free(table->member);
	free(table->left);
	free(table->told);
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

/* ---- calls of drivers, which may not return -------------------------------------------------- */

struct call {
	const struct jm_control *control;
	void *state;
	int i, rc;
	bool sets;
	struct jm_knob_value value; /* to set */
	struct jm_knob_value accepted, enforced;
	struct jm_err err;
};

static void make_call(void *arg)
{
	struct call *c = arg;

	if (c->sets)
		c->rc = c->control->set(c->state, c->i, &c->value, &c->err);
	else
		c->rc = c->control->get(c->state, c->i, &c->accepted, &c->enforced, &c->err);
}

static int not_returned(const struct jm_knob *knob, struct jm_err *err)
{
	return jm_err_set(err, JM_EIO,
		"The driver does not return from a call for %s of %s; see the kernel's log.",
		knob->name, knob->label);
}

/* Calls the function in a separate thread; true = it has returned within the limit. */
static bool call_patiently(const struct jm_knob_table *table, int i, struct call *c)
{
	const struct jm_knob *knob = &table->knobs.knob[i];
	int64_t limit_ns = JM_DRIVER_LIMIT_NS, first_ns = table->announce ? JM_SECOND : limit_ns;

	if (jm_driver_call(make_call, c, first_ns, &table->left[i])) {
		table->left[i] = NULL;
		return true;
	}
	if (first_ns == limit_ns)
		return false;
	jm_log(table->announce, JM_WARNING,
		"Waiting up to %.0f s for the driver to return from a call for %s of %s.",
		(double)limit_ns / 1e9, knob->name, knob->label);
	if (!jm_driver_call_again(table->left[i], limit_ns - first_ns))
		return false;
	table->left[i] = NULL;
	return true;
}

static int call(const struct jm_knob_table *table, int i, const struct call *given,
	struct call *ret, struct jm_err *err)
{
	const struct jm_knob_member *m = jm_knob_table_member(table, i);
	struct call *c;

	if (is_left(table, i))
		return not_returned(&table->knobs.knob[i], err);
	c = malloc(sizeof(*c));
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a call of a driver.");
	*c = *given;
	c->control = m->control;
	c->state = m->state;
	c->i = i - m->first;
	if (!call_patiently(table, i, c))
		return not_returned(&table->knobs.knob[i], err);
	*ret = *c;
	free(c);
	return ret->rc ? jm_err_set(err, ret->rc, "%s", ret->err.text) : 0;
}

int jm_knob_table_get(const struct jm_knob_table *table, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct call c = {.err = JM_ERR_INIT};
	int rc = call(table, i, &c, &c, err);

	if (!rc) {
		*ret_accepted = table->knobs.knob[i].unreadable ? table->told[i] : c.accepted;
		*ret_enforced = c.enforced;
	}
	return rc;
}

int jm_knob_table_set(const struct jm_knob_table *table, int i, const struct jm_knob_value *value,
	struct jm_err *err)
{
	struct call c = {.sets = true, .value = *value, .err = JM_ERR_INIT};
	int rc = call(table, i, &c, &c, err);

	table->told[i] = rc ? jm_knob_value_of(NAN) : *value;
	return rc;
}

void jm_knob_table_tell(struct jm_knob_table *table, int i, const struct jm_knob_value *value)
{
	table->told[i] = *value;
}

int jm_knob_table_find(const struct jm_knob_table *table, const char *knob, const char *device)
{
	for (int i = 0; i < table->knobs.n; i++)
		if (!strcmp(table->knobs.knob[i].name, knob) &&
			!strcmp(table->knobs.knob[i].device, device))
			return i;
	return -1;
}
