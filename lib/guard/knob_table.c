/* SPDX-License-Identifier: Apache-2.0 */
/* Opens controls by name and finds the control of a knob. */
#include "guard/knob_table.h"

#include "base/clock.h"
#include "base/printable.h"

#include <stdatomic.h>
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

/* Of the reasons, one a line, those that fit. */
#define REASONS 380
static int no_knobs(const char *absent, struct jm_err *err)
{
	char why[REASONS + 1] = "";
	size_t used = 0, n;

	for (; *absent; absent += n + (absent[n] == '\n')) {
		n = strcspn(absent, "\n");
		if (used + n + 1 > REASONS)
			break;
		used += (size_t)snprintf(why + used, sizeof(why) - used, " %.*s", (int)n, absent);
	}
	return jm_err_set(err, JM_ENOENT,
		"No knob of this machine is available;%s%s A simulated one is --device "
		"sim:h100x4.",
		why, *absent ? " 'joulemark doctor --all' gives the other reasons." : "");
}

/* The control of a spec with an argument; NULL: none. */
static const struct jm_control *control_of(const char *spec)
{
	size_t n = spec ? strcspn(spec, ":") : 0;

	for (int i = 0; n && jm_controls[i]; i++)
		if (strlen(jm_controls[i]->name) == n && !strncmp(jm_controls[i]->name, spec, n))
			return jm_controls[i];
	return NULL;
}

/* Opens every control that acts on the machine; the knobs have the reasons of those that did not
 * open, and if none did, the error. */
static int open_machine(
	struct jm_knob_table *table, struct jm_ctx *ctx, const char *more, struct jm_err *err)
{
	const struct jm_control *named = control_of(more);
	char *why = table->knobs.absent;
	const size_t size = sizeof(table->knobs.absent);
	size_t used = 0;

	for (int i = 0; jm_controls[i]; i++) {
		const struct jm_control *c = jm_controls[i];
		struct jm_err one = JM_ERR_INIT;

		if (c->origin != JM_MEASURED ||
			(named && c != named && !strcmp(c->knobs, named->knobs)) ||
			!add_member(table, ctx, c, c == named ? more + strlen(c->name) + 1 : "",
				&one) ||
			used >= size)
			continue;
		jm_text_tame(one.text);
		used += (size_t)snprintf(
			why + used, size - used, "%s%s: %s", used ? "\n" : "", c->name, one.text);
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

int jm_knob_table_open(struct jm_ctx *ctx, const char *specs, const char *more,
	struct jm_knob_table *ret, struct jm_err *err)
{
	struct jm_knob_table table = {0};
	int rc = specs ? open_list(&table, ctx, specs, err) : open_machine(&table, ctx, more, err);

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
		open_machine(&table, ctx, NULL, NULL);
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

/* A table that was closed while a driver call was under way. */
struct kept {
	struct jm_knob_table table;
	struct kept *before;
};

/* Memory that a driver call still uses must stay, within reach until the process ends. */
static void keep(const struct jm_knob_table *table)
{
	static _Atomic(struct kept *) last;
	struct kept *k = malloc(sizeof(*k));

	if (!k)
		return;
	k->table = *table;
	k->before = atomic_exchange(&last, k);
}

void jm_knob_table_close(struct jm_knob_table *table)
{
	if (jm_knob_table_waits(table)) {
		keep(table);
		return;
	}
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

#define NOBODY (-1) /* in place of the call that a job is at: it was given up */

struct item {
	const struct jm_control *control;
	void *state;
	int i;			   /* among the knobs of the control */
	bool unreadable;	   /* then */
	struct jm_knob_value told; /* is what it has */
	struct jm_knob_call call;
};

#define CALLS 3 /* of a driver for an item: get, set, get */

/* Calls that one thread makes. A call that is given up keeps its job, so nothing in it points to a
 * caller. */
struct job {
	_Atomic int at;		  /* the driver's call that is made: item * CALLS + 0, 1, 2 */
	_Atomic int64_t begin_ns; /* of that call */
	int own;		  /* `at`, as the thread has left it */
	int n;
	bool stop;
	struct item item[];
};

/* Before another call of a driver. False: the one before was given up, so nothing more is asked
 * of it: what it holds may belong to others by now. */
static bool goes_on(struct job *j, int at)
{
	j->begin_ns = jm_clock_now(jm_clock_real());
	if (!atomic_compare_exchange_strong(&j->at, &j->own, at))
		return false;
	j->own = at;
	return true;
}

static int get(struct item *m)
{
	struct jm_knob_call *c = &m->call;

	c->rc = m->control->get(m->state, m->i, &c->accepted, &c->enforced, &c->err);
	if (m->unreadable)
		c->accepted = m->told;
	return c->rc;
}

static int set(struct item *m)
{
	struct jm_knob_call *c = &m->call;

	c->wrote = true;
	c->err = (struct jm_err)JM_ERR_INIT;
	c->rc = m->control->set(m->state, m->i, &c->value, &c->err);
	m->told = c->rc ? jm_knob_value_of(NAN) : c->value;
	return c->rc;
}

/* False: it was given up. */
static bool make_call(struct job *j, int k)
{
	struct item *m = &j->item[k];
	struct jm_knob_call *c = &m->call;

	switch (c->act) {
	case JM_KNOB_GET:
		get(m);
		return true;
	case JM_KNOB_SET:
	case JM_KNOB_SET_READ:
		if (get(m))
			return true;
		c->before = c->accepted;
		if (!m->unreadable && jm_knob_value_same(&c->accepted, &c->value))
			return true;
		break;
	case JM_KNOB_PUT_BACK:
		if (!m->unreadable && !get(m))
			c->before = *jm_knob_call_now(c);
		if (jm_knob_value_same(&c->before, &c->value))
			return true;
		break;
	}
	if (!goes_on(j, k * CALLS + 1))
		return false;
	if (set(m) || c->act == JM_KNOB_SET)
		return true;
	if (!goes_on(j, k * CALLS + 2))
		return false;
	get(m);
	return true;
}

static void run_job(void *arg)
{
	struct job *j = arg;

	for (int k = 0; make_call(j, k) && k + 1 < j->n; k++)
		if ((j->stop && j->item[k].call.rc) || !goes_on(j, (k + 1) * CALLS))
			return;
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

/* The driver's call that does not return within the limit; NOBODY: all have returned. */
static int await(const struct jm_knob_table *table, struct job *j, struct jm_driver_call *call)
{
	int announced = table->announce ? NOBODY : j->n; /* an item */

	for (;;) {
		int at = j->at, item = at / CALLS;
		bool first = announced != item && announced != j->n;
		int64_t end_ns = j->begin_ns + (first ? JM_SECOND : JM_DRIVER_LIMIT_NS);
		int64_t left_ns = end_ns - jm_clock_now(jm_clock_real());

		if (jm_driver_call_again(call, left_ns > 0 ? left_ns : 0))
			return NOBODY;
		if (j->at != at)
			continue;
		if (!first && atomic_compare_exchange_strong(&j->at, &at, NOBODY))
			return at;
		if (!first)
			continue;
		announced = item;
		jm_log(table->announce, JM_WARNING,
			"Waiting up to %.0f s for the driver to return from a call for %s of %s.",
			(double)JM_DRIVER_LIMIT_NS / 1e9,
			table->knobs.knob[j->item[item].call.i].name,
			table->knobs.knob[j->item[item].call.i].label);
	}
}

static int not_returned(const struct jm_knob *knob, struct jm_err *err)
{
	return jm_err_set(err, JM_EIO,
		"The driver does not return from a call for %s of %s; see the kernel's log.",
		knob->name, knob->label);
}

static struct job *new_job(
	const struct jm_knob_table *table, const struct jm_knob_call *call, int n, bool stop)
{
	struct job *j = calloc(1, sizeof(*j) + (size_t)n * sizeof(*j->item));

	for (int k = 0; j && k < n; k++) {
		const struct jm_knob_member *m = jm_knob_table_member(table, call[k].i);

		j->item[k] = (struct item){.control = m->control,
			.state = m->state,
			.i = call[k].i - m->first,
			.unreadable = table->knobs.knob[call[k].i].unreadable,
			.told = table->told[call[k].i],
			.call = call[k]};
		j->item[k].call.made = true;
	}
	if (j) {
		j->n = n;
		j->stop = stop;
		j->begin_ns = jm_clock_now(jm_clock_real());
	}
	return j;
}

/* Of calls none of whose drivers is awaited, all up to one that does not return; returns how many
 * have been made. */
static int make_calls(
	const struct jm_knob_table *table, struct jm_knob_call *call, int n, bool stop)
{
	struct job *j = new_job(table, call, n, stop);
	struct jm_driver_call *left;
	int at = NOBODY, hung = n;

	if (!j) {
		call->rc = jm_err_set(&call->err, JM_ENOMEM, "Out of memory for a driver's call.");
		return 1;
	}
	if (!jm_driver_call(run_job, j, 0, &left))
		at = await(table, j, left);
	if (at != NOBODY)
		hung = at / CALLS;
	for (int k = 0; k < n && k != hung; k++) {
		call[k] = j->item[k].call;
		if (call[k].wrote)
			table->told[call[k].i] = j->item[k].told;
		if (stop && call[k].rc)
			n = k + 1;
	}
	if (at == NOBODY) {
		free(j);
		return n;
	}
	call += hung;
	table->left[call->i] = left;
	call->made = true;
	call->wrote = at % CALLS > 0;
	if (call->wrote) {
		call->before = j->item[hung].call.before;
		table->told[call->i] = jm_knob_value_of(NAN);
	}
	call->rc = not_returned(&table->knobs.knob[call->i], &call->err);
	return hung + 1;
}

bool jm_knob_table_coupled(
	const struct jm_knob_table *table, const struct jm_knob_call *call, int n)
{
	const struct jm_knob *knob = table->knobs.knob;

	for (int k = 0; k < n; k++)
		for (int o = 0; o < k; o++)
			if (!strcmp(knob[call[k].i].device, knob[call[o].i].device))
				return true;
	return false;
}

void jm_knob_table_call(
	const struct jm_knob_table *table, struct jm_knob_call *call, int n, bool stop)
{
	int done = 0, ready;

	for (int k = 0; k < n; k++)
		call[k] = (struct jm_knob_call){.act = call[k].act,
			.i = call[k].i,
			.value = call[k].value,
			.accepted = jm_knob_value_of(NAN),
			.enforced = jm_knob_value_of(NAN),
			.before = jm_knob_value_of(NAN),
			.err = JM_ERR_INIT};
	while (done < n && !(stop && done && call[done - 1].rc)) {
		for (ready = 0; done + ready < n && !is_left(table, call[done + ready].i);)
			ready++;
		if (ready) {
			done += make_calls(table, call + done, ready, stop);
			continue;
		}
		call[done].made = true;
		call[done].rc = not_returned(&table->knobs.knob[call[done].i], &call[done].err);
		done++;
	}
}

int jm_knob_table_get(const struct jm_knob_table *table, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	struct jm_knob_call one = {.act = JM_KNOB_GET, .i = i};

	jm_knob_table_call(table, &one, 1, false);
	if (one.rc)
		return jm_err_set(err, one.rc, "%s", one.err.text);
	*ret_accepted = one.accepted;
	*ret_enforced = one.enforced;
	return 0;
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
