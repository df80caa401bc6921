/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a value, journals and syncs it, changes the knob and reads it back, in this order; and
 * restores. */
#include "guard/guard_apply.h"

#include "base/log_later.h"
#include "guard/journal_each.h"
#include "guard/knob_restore.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int jm_knob_holder_open(struct jm_knob_holder *ret, struct jm_ctx *ctx, const char *specs,
	const char *more, int client, struct jm_err *err)
{
	struct jm_knob_holder k = {
		.ctx = ctx, .client = jm_process_of(client), .self = jm_process_of(getpid())};
	int rc = jm_knob_table_open(ctx, specs, more, &k.table, err);

	if (rc)
		return rc;
	jm_process_boot(ctx->root, k.boot, sizeof(k.boot));
	jm_process_machine(ctx->root, k.machine, sizeof(k.machine));
	k.journal = calloc((size_t)k.table.knobs.n + 1, sizeof(*k.journal));
	k.known_by = calloc((size_t)k.table.knobs.n + 1, sizeof(*k.known_by));
	k.written = calloc((size_t)k.table.knobs.n + 1, sizeof(*k.written));
	k.left = calloc((size_t)k.table.knobs.n + 1, sizeof(*k.left));
	k.back = calloc((size_t)k.table.knobs.n + 1, sizeof(*k.back));
	if (!k.journal || !k.known_by || !k.written || !k.left || !k.back) {
		free(k.journal);
		free(k.known_by);
		free(k.written);
		free(k.left);
		free(k.back);
		jm_knob_table_close(&k.table);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d knobs.", k.table.knobs.n);
	}
	for (int i = 0; i < k.table.knobs.n; i++)
		k.journal[i] = (struct jm_journal){.lock = -1, .folder = -1, .copies = -1};
	*ret = k;
	return 0;
}

void jm_knob_holder_close(struct jm_knob_holder *k)
{
	for (int i = 0; i < k->table.knobs.n; i++)
		jm_journal_close(&k->journal[i]);
	free(k->journal);
	free(k->known_by);
	free(k->written);
	free(k->left);
	free(k->back);
	jm_knob_table_close(&k->table);
}

/* What an earlier session has left in place is known of an unreadable knob, too. */
static void look_up(const struct jm_knob_holder *k, int i, struct jm_knob_value *accepted)
{
	const struct jm_knob *knob = &k->table.knobs.knob[i];
	struct jm_journal_state s;

	if (knob->unreadable && !jm_knob_value_known(accepted) &&
		!jm_journal_peek(k->ctx, knob->name, knob->device, &s) && s.kept && !s.open &&
		!jm_outlived(&s, k->boot))
		*accepted = s.left;
}

/* A call of each line's knob; NULL: no memory. */
static struct jm_knob_call *calls_of(
	const struct jm_applied *plan, int n, enum jm_knob_act act, struct jm_err *err)
{
	struct jm_knob_call *call = calloc((size_t)n + 1, sizeof(*call));

	for (int p = 0; call && p < n; p++)
		call[p] = (struct jm_knob_call){
			.act = act, .i = plan[p].knob, .value = plan[p].requested};
	if (!call)
		jm_err_set(err, JM_ENOMEM, "Out of memory for %d settings.", n);
	return call;
}

/* A device that does not answer gets a row with the reason. */
void jm_knob_holder_get(struct jm_knob_holder *k, struct jm_applied *out)
{
	const int n = k->table.knobs.n;
	struct jm_knob_call *call;

	for (int i = 0; i < n; i++)
		out[i] = (struct jm_applied){.knob = i,
			.requested = jm_knob_value_of(NAN),
			.accepted = jm_knob_value_of(NAN),
			.enforced = jm_knob_value_of(NAN),
			.why = "Out of memory."};
	call = calls_of(out, n, JM_KNOB_GET, NULL);
	if (!call)
		return;
	jm_knob_table_call(&k->table, call, n, false);
	for (int i = 0; i < n; i++) {
		snprintf(out[i].why, sizeof(out[i].why), "%.*s", (int)sizeof(out[i].why) - 1,
			call[i].rc ? call[i].err.text : "");
		out[i].accepted = call[i].accepted;
		out[i].enforced = call[i].enforced;
		if (!call[i].rc)
			look_up(k, i, &out[i].accepted);
	}
	free(call);
}

/* ---- taking hold ----------------------------------------------------------------------------- */

bool jm_outlived(const struct jm_journal_state *s, const char *boot)
{
	return s->ends != JM_ENDS_NEVER && *s->boot && *boot && strcmp(s->boot, boot) != 0;
}

/* The journal's record of knob i. */
static struct jm_journal_state describe(const struct jm_knob_holder *k, int i)
{
	const struct jm_knob *knob = &k->table.knobs.knob[i];
	struct jm_journal_state s = {.client = k->client,
		.guard = k->self,
		.ends = knob->ends,
		.left = jm_knob_value_of(NAN),
		.known_by = k->known_by[i]};

	snprintf(s.knob, sizeof(s.knob), "%s", knob->name);
	snprintf(s.unit, sizeof(s.unit), "%s", knob->unit);
	snprintf(s.device, sizeof(s.device), "%s", knob->device);
	jm_knob_table_spec(&k->table, i, s.control, sizeof(s.control));
	snprintf(s.boot, sizeof(s.boot), "%s", k->boot);
	snprintf(s.machine, sizeof(s.machine), "%s", k->machine);
	return s;
}

/* The journal of an earlier holder is handled first, so that `found` is the original value. */
static int finish_earlier_session(struct jm_knob_holder *k, int i, struct jm_err *err)
{
	struct jm_journal *j = &k->journal[i];
	struct jm_journal_state s;
	int rc = 0;

	if (j->now.open || j->now.kept)
		k->known_by[i] = j->now.known_by;
	s = describe(k, i);
	if ((j->now.open || j->now.kept) && jm_outlived(&j->now, k->boot))
		return jm_journal_write(j, &s, JM_JOURNAL_GONE, NULL, err);
	if (!j->now.open)
		return 0;
	rc = jm_put_back(&k->table, i, &j->now.found, err);
	return rc ? rc : jm_journal_write(j, &s, JM_JOURNAL_BACK, NULL, err);
}

static void tell_damage(const struct jm_knob_holder *k, int i)
{
	const struct jm_journal *j = &k->journal[i];

	if (*j->damage)
		jm_log(k->ctx, JM_WARNING, JM_JOURNAL_MENDED, j->path, j->damage);
}

/* An unreadable knob has what an earlier session left in place, else what the user states. */
static int learn(struct jm_knob_holder *k, int i, struct jm_err *err)
{
	const struct jm_knob *knob = &k->table.knobs.knob[i];
	const struct jm_knob_value *left = &k->journal[i].now.left, *told = &k->table.told[i];
	char text[JM_KNOB_TEXT];

	if (!knob->unreadable || !k->journal[i].now.kept || !jm_knob_value_known(left))
		return 0;
	jm_knob_value_text(left, knob->unit, text, sizeof(text));
	if (jm_knob_value_known(told) && !jm_knob_value_same(told, left))
		return jm_err_set(err, JM_EUSAGE,
			"%s of %s has %s, which 'joulemark set' left in place, so something else "
			"cannot be stated of it; omit --found, or run 'joulemark restore' first.",
			knob->name, knob->label, text);
	jm_knob_table_tell(&k->table, i, left);
	return 0;
}

/* Locks knob i. */
static int take(struct jm_knob_holder *k, int i, struct jm_patience *patience, struct jm_err *err)
{
	const struct jm_knob *knob = &k->table.knobs.knob[i];
	int rc = jm_journal_open(k->ctx, knob->name, knob->device, patience, &k->journal[i], err);

	if (!rc)
		tell_damage(k, i);
	if (!rc)
		rc = finish_earlier_session(k, i, err);
	if (!rc)
		rc = learn(k, i, err);
	if (rc)
		jm_journal_close(&k->journal[i]);
	k->written[i] = false;
	k->left[i] = jm_knob_value_of(NAN);
	return rc;
}

/* Journals the value that a locked knob was found with. */
static int write_found(struct jm_knob_holder *k, const struct jm_knob_call *now, struct jm_err *err)
{
	const struct jm_knob_value *found = jm_knob_call_now(now);
	struct jm_journal_state s = describe(k, now->i);
	int rc = now->rc;

	if (rc)
		return jm_err_set(err, rc, "%s", now->err.text);
	rc = jm_knob_check_found(&k->table.knobs.knob[now->i], found, err);
	return rc ? rc : jm_journal_write(&k->journal[now->i], &s, JM_JOURNAL_FOUND, found, err);
}

/* Releases a knob that has the value found. */
static void let_go(struct jm_knob_holder *k, int i)
{
	struct jm_journal *j = &k->journal[i];
	struct jm_journal_state s = describe(k, i);

	/* if this cannot be written, the next start restores the same value once more */
	if (j->now.open)
		jm_journal_write(j, &s, JM_JOURNAL_BACK, NULL, NULL);
	jm_journal_close(j);
}

/* Locks all knobs of the plan that are not locked yet, and journals what they have; or none. */
static int hold_all(
	struct jm_knob_holder *k, const struct jm_applied *plan, int n, struct jm_err *err)
{
	struct jm_patience patience = {.ctx = k->ctx, .limit_ns = JM_LOCK_LIMIT_NS};
	struct jm_knob_call *taken = calls_of(plan, n, JM_KNOB_GET, err);
	int n_taken = 0, rc = 0;

	if (!taken)
		return JM_ENOMEM;
	for (int p = 0; p < n && !rc; p++) {
		int i = plan[p].knob;

		if (k->journal[i].lock >= 0)
			continue;
		rc = take(k, i, &patience, err);
		if (!rc)
			taken[n_taken++].i = i;
	}
	if (!rc)
		jm_knob_table_call(&k->table, taken, n_taken, true);
	for (int t = 0; t < n_taken && !rc; t++)
		rc = write_found(k, &taken[t], err);
	if (!rc && n_taken)
		rc = jm_journal_sync_folder(k->ctx, err);
	while (rc && n_taken)
		let_go(k, taken[--n_taken].i);
	free(taken);
	return rc;
}

/* ---- setting --------------------------------------------------------------------------------- */

/* One setting becomes one line per device; two settings for one device are an error. */
static int plan_one(const struct jm_knob_holder *k, const struct jm_setting *s,
	struct jm_applied *plan, int *n, struct jm_err *err)
{
	int before = *n, rc;

	for (int i = 0; i < k->table.knobs.n; i++) {
		const struct jm_knob *knob = &k->table.knobs.knob[i];

		if (!jm_setting_matches(s, knob))
			continue;
		for (int p = 0; p < before; p++)
			if (plan[p].knob == i)
				return jm_err_set(err, JM_EUSAGE,
					"Two settings name %s of %s; give it one value.",
					knob->name, knob->label);
		rc = jm_knob_check(knob, &s->value, err);
		if (rc)
			return rc;
		plan[*n] = (struct jm_applied){.knob = i,
			.requested =
				jm_knob_value_is(&s->value, JM_DEFAULT) ? knob->fallback : s->value,
			.accepted = jm_knob_value_of(NAN),
			.enforced = jm_knob_value_of(NAN)};
		++*n;
	}
	if (*n > before)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"No device with %s has an id that begins with '%s'; 'joulemark get' lists the ids.",
		s->knob, s->selector);
}

static int state_one(
	struct jm_knob_holder *k, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	const struct jm_knob *knob = &k->table.knobs.knob[i];
	int rc = jm_knob_check(knob, value, err);

	if (rc)
		return rc;
	if (!knob->unreadable)
		return jm_err_set(err, JM_EUSAGE,
			"What %s of %s has is read from it; omit --found %s.", knob->name,
			knob->label, knob->name);
	if (k->journal[i].lock >= 0)
		return jm_err_set(
			err, JM_EBUG, "%s of %s is held already.", knob->name, knob->label);
	jm_knob_table_tell(
		&k->table, i, jm_knob_value_is(value, JM_DEFAULT) ? &knob->fallback : value);
	k->known_by[i] = JM_KNOWN_STATED;
	return 0;
}

int jm_knob_holder_state(
	struct jm_knob_holder *k, const struct jm_setting *settings, int n, struct jm_err *err)
{
	int rc = 0;

	for (int s = 0; s < n; s++)
		for (int i = 0; i < k->table.knobs.n && !rc; i++)
			if (jm_setting_matches(&settings[s], &k->table.knobs.knob[i]))
				rc = state_one(k, i, &settings[s].value, err);
	return rc;
}

/* Until the devices of calls hold what they are set to, s. changed: of those that were written. */
static double settling(
	const struct jm_knob_holder *k, const struct jm_knob_call *call, int n, bool changed)
{
	double seconds = 0;

	for (int p = 0; p < n; p++)
		if (call[p].wrote || !changed)
			seconds = fmax(seconds, k->table.knobs.knob[call[p].i].settle_s);
	return seconds;
}

static void wait_for(double seconds)
{
	struct timespec rest = {.tv_sec = (time_t)seconds};

	rest.tv_nsec = (long)((seconds - (double)rest.tv_sec) * 1e9);
	while (nanosleep(&rest, &rest) && errno == EINTR)
		;
}

/* Restores the lines to their values before this call, the last one first. */
static void roll_back(struct jm_knob_holder *k, const struct jm_applied *plan,
	const struct jm_knob_value *before, int n)
{
	for (int p = 0; p < n; p++)
		k->back[n - 1 - p] = (struct jm_back){.table = &k->table,
			.i = plan[p].knob,
			.untouched = !k->written[plan[p].knob],
			.value = jm_knob_value_known(&before[p])
					 ? before[p]
					 : k->journal[plan[p].knob].now.found};
	jm_put_back_all(k->back, n);
	for (int p = 0; p < n; p++)
		if (k->back[p].rc)
			jm_log(k->ctx, JM_WARNING, "While taking back a setting that failed: %s",
				k->back[p].why.text);
}

static int first_error(const struct jm_knob_call *call, int n, struct jm_err *err)
{
	for (int p = 0; p < n; p++)
		if (call[p].rc)
			return jm_err_set(err, call[p].rc, "%s", call[p].err.text);
	return 0;
}

/* Sets the lines; returns how many may have been changed. before: of each line, which one line of a
 * device may change for another. */
static int write_all(struct jm_knob_holder *k, struct jm_knob_call *call, int n,
	struct jm_knob_value *before, struct jm_err *err)
{
	bool coupled = jm_knob_table_coupled(&k->table, call, n);
	bool once = !coupled && !(settling(k, call, n, false) > 0);
	int done = 0;

	if (coupled)
		jm_knob_table_call(&k->table, call, n, true);
	for (int p = 0; p < n; p++) {
		before[p] = call[p].accepted;
		call[p].act = once ? JM_KNOB_SET_READ : JM_KNOB_SET;
	}
	if (coupled && first_error(call, n, err))
		return 0;
	jm_knob_table_call(&k->table, call, n, true);
	for (; done < n && call[done].made; done++) {
		if (call[done].wrote && call[done].rc != JM_EPERM)
			k->written[call[done].i] = true;
		if (!coupled)
			before[done] = call[done].before;
	}
	first_error(call, n, err);
	return done;
}

static int read_all(struct jm_knob_holder *k, struct jm_knob_call *call, struct jm_applied *plan,
	int n, struct jm_err *err)
{
	bool again = n && call->act != JM_KNOB_SET_READ;

	for (int p = 0; p < n; p++)
		call[p].act = JM_KNOB_GET;
	if (again)
		jm_knob_table_call(&k->table, call, n, true);
	for (int p = 0; p < n; p++) {
		plan[p].known_by = k->known_by[plan[p].knob];
		plan[p].accepted = call[p].accepted;
		plan[p].enforced = call[p].enforced;
		k->left[call[p].i] = *jm_knob_call_now(&call[p]);
	}
	return first_error(call, n, err);
}

static int apply_all(struct jm_knob_holder *k, struct jm_applied *plan, int n, struct jm_err *err)
{
	struct jm_knob_value *before = calloc((size_t)n + 1, sizeof(*before));
	struct jm_knob_call *call = calls_of(plan, n, JM_KNOB_GET, err);
	struct jm_err why = JM_ERR_INIT;
	int done = 0;

	if (!before || !call) {
		jm_err_set(&why, JM_ENOMEM, "Out of memory for %d settings.", n);
	} else {
		done = write_all(k, call, n, before, &why);
		if (!why.code)
			wait_for(settling(k, call, n, true));
		if (!why.code)
			read_all(k, call, plan, n, &why);
	}
	if (why.code)
		roll_back(k, plan, before, done);
	free(before);
	free(call);
	return why.code ? jm_err_set(err, why.code, "%s", why.text) : 0;
}

/* In the order of the knobs: a knob that decides what another one takes stands before it. */
static int by_knob(const void *a, const void *b)
{
	const struct jm_applied *x = a, *y = b;

	return x->knob - y->knob;
}

int jm_knob_holder_plan(const struct jm_knob_holder *k, const struct jm_setting *settings, int n,
	struct jm_applied **ret_plan, int *ret_n, struct jm_err *err)
{
	int rc = 0;

	*ret_n = 0;
	*ret_plan = calloc((size_t)k->table.knobs.n + 1, sizeof(**ret_plan));
	if (!*ret_plan)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d settings.", n);
	for (int i = 0; i < n && !rc; i++)
		rc = plan_one(k, &settings[i], *ret_plan, ret_n, err);
	qsort(*ret_plan, (size_t)*ret_n, sizeof(**ret_plan), by_knob);
	return rc;
}

static int plan_and_hold(struct jm_knob_holder *k, const struct jm_setting *settings, int n,
	struct jm_applied **ret_plan, int *ret_n, struct jm_err *err)
{
	int rc = jm_knob_holder_plan(k, settings, n, ret_plan, ret_n, err);

	return rc ? rc : hold_all(k, *ret_plan, *ret_n, err);
}

int jm_knob_holder_hold(struct jm_knob_holder *k, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err)
{
	struct jm_applied *plan;
	int n_plan, rc = plan_and_hold(k, settings, n, &plan, &n_plan, err);

	for (int p = 0; p < n_plan && !rc; p++)
		plan[p].accepted = k->journal[plan[p].knob].now.found;
	if (!rc) {
		memcpy(out, plan, (size_t)n_plan * sizeof(*plan));
		*ret_n = n_plan;
	}
	free(plan);
	return rc;
}

int jm_knob_holder_set(struct jm_knob_holder *k, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err)
{
	struct jm_applied *plan;
	int n_plan, rc = plan_and_hold(k, settings, n, &plan, &n_plan, err);

	if (!rc)
		rc = apply_all(k, plan, n_plan, err);
	if (!rc) {
		memcpy(out, plan, (size_t)n_plan * sizeof(*plan));
		*ret_n = n_plan;
	}
	free(plan);
	return rc;
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* Is another knob of this device held, which may change this one? */
static bool is_coupled(const struct jm_knob_holder *k, int i)
{
	const struct jm_knob *knob = k->table.knobs.knob;

	for (int o = 0; o < k->table.knobs.n; o++)
		if (o != i && k->journal[o].lock >= 0 && !strcmp(knob[o].device, knob[i].device))
			return true;
	return false;
}

static int conclude(struct jm_knob_holder *k, const struct jm_back *b, bool release,
	const struct jm_ctx *log, struct jm_err *err)
{
	const struct jm_knob *knob = &k->table.knobs.knob[b->i];
	char found[JM_KNOB_TEXT];

	if (!b->rc && release)
		let_go(k, b->i);
	if (!b->rc)
		return 0;
	jm_knob_value_text(&b->value, knob->unit, found, sizeof(found));
	jm_log(log, JM_WARNING,
		"%s of %s is NOT back at %s: %s It stays in the journal; 'joulemark restore' "
		"tries again.",
		knob->name, knob->label, found, b->why.text);
	return jm_err_set(err, b->rc, "%s of %s is not back at %s: %s", knob->name, knob->label,
		found, b->why.text);
}

int jm_knob_holder_restore(struct jm_knob_holder *k, bool release, struct jm_err *err)
{
	struct jm_log_later log;
	int first = 0, n = 0;

	jm_log_later_init(&log, k->ctx);
	for (int i = k->table.knobs.n - 1; i >= 0; i--)
		if (k->journal[i].lock >= 0 && k->journal[i].now.open)
			k->back[n++] = (struct jm_back){.table = &k->table,
				.i = i,
				.untouched = !k->written[i],
				.value = k->journal[i].now.found};
	jm_put_back_all(k->back, n);
	for (int i = 0; i < n; i++)
		if (!is_coupled(k, k->back[i].i))
			jm_put_back_tell(&k->back[i], &k->left[k->back[i].i], &log.ctx);
	for (int i = 0; i < n; i++) {
		int rc = conclude(k, &k->back[i], release, &log.ctx, err);

		k->left[k->back[i].i] = jm_knob_value_of(NAN);
		first = first ? first : rc;
	}
	jm_log_later_done(&log);
	return first;
}

static int keep_one(struct jm_knob_holder *k, int i, struct jm_err *err)
{
	struct jm_journal *j = &k->journal[i];
	struct jm_journal_state s = describe(k, i);
	struct jm_knob_value base = j->now.kept ? j->now.base : j->now.found, enforced;
	struct jm_knob_value now = jm_knob_value_of(NAN); /* unless it can be read */
	bool home = !jm_knob_table_get(&k->table, i, &now, &enforced, NULL) &&
		    jm_knob_value_same(&now, &base);
	int rc;

	s.left = now;
	rc = jm_journal_write(j, &s, home ? JM_JOURNAL_GONE : JM_JOURNAL_KEPT, &base, err);

	if (!rc)
		jm_journal_close(j);
	return rc;
}

int jm_knob_holder_keep(struct jm_knob_holder *k, struct jm_err *err)
{
	for (int i = 0; i < k->table.knobs.n; i++) {
		int rc = 0;

		if (k->journal[i].lock >= 0 && k->journal[i].now.open)
			rc = keep_one(k, i, err);
		if (rc)
			return rc;
	}
	return 0;
}
