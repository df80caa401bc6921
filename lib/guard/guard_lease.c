/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/guard_lease.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define REQUESTS_PER_S 200 /* more are read later */
#define REFUSALS_PER_S 1   /* more are counted, not logged */
#define AT_ONCE	       20
#define SEND_LIMIT_S   5 /* a client that does not read its replies */
#define LONG_MS	       3600000

int jm_lease_begin(struct jm_lease *ret, const struct jm_ctx *ctx, int fd,
	const struct jm_guard_terms *terms, struct jm_err *err)
{
	const struct timeval limit = {.tv_sec = SEND_LIMIT_S};
	int on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) ||
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)))
		return jm_err_set(
			err, JM_EIO, "Cannot watch a client's socket: %s.", strerror(errno));
	*ret = (struct jm_lease){.terms = terms, .ctx = ctx, .begin_ns = jm_clock_boot()};
	ret->requests = jm_rate_of(REQUESTS_PER_S, AT_ONCE, ret->begin_ns);
	ret->refusals = jm_rate_of(REFUSALS_PER_S, AT_ONCE, ret->begin_ns);
	return 0;
}

/* ---- what the client may do ------------------------------------------------------------------ */

void jm_lease_state(const struct jm_lease *l, struct jm_knob_holder *k)
{
	for (int i = 0; i < k->table.knobs.n; i++) {
		const struct jm_knob *knob = &k->table.knobs.knob[i];
		struct jm_setting one = {0};
		struct jm_err why = JM_ERR_INIT;

		if (!knob->unreadable)
			continue;
		one.value = l->terms->found(l->terms->arg, knob);
		snprintf(one.knob, sizeof(one.knob), "%s", knob->name);
		jm_setting_exactly(&one, knob);
		if (jm_knob_value_known(&one.value) && jm_knob_holder_state(k, &one, 1, &why))
			jm_log(l->ctx, JM_WARNING, "%s", why.text);
	}
}

/* The restore would set what the client states, whatever it is. */
static int check_stated(const struct jm_lease *l, const struct jm_knob_holder *k,
	const struct jm_setting *s, struct jm_err *err)
{
	for (int i = 0; i < k->table.knobs.n; i++) {
		const struct jm_knob *knob = &k->table.knobs.knob[i];
		struct jm_knob_value found;

		if (!jm_setting_matches(s, knob))
			continue;
		found = l->terms->found(l->terms->arg, knob);
		if (!jm_knob_value_same(&found, &s->value))
			return jm_err_set(err, JM_EPERM,
				"joulemarkd takes what %s of %s has from root's policy alone; omit "
				"--found %s.",
				knob->name, knob->label, knob->name);
	}
	return 0;
}

static int check_plan(const struct jm_lease *l, const struct jm_knob_holder *k,
	const struct jm_setting *settings, int n, struct jm_err *err)
{
	struct jm_applied *plan;
	int n_plan, rc = jm_knob_holder_plan(k, settings, n, &plan, &n_plan, err);

	for (int p = 0; p < n_plan && !rc; p++)
		rc = l->terms->allow(
			l->terms->arg, &k->table.knobs.knob[plan[p].knob], &plan[p].requested, err);
	free(plan);
	return rc;
}

int jm_lease_check(const struct jm_lease *l, const struct jm_knob_holder *k, uint32_t op,
	const struct jm_setting *settings, int n, struct jm_err *err)
{
	int rc = 0;

	if (op != JM_WIRE_STATE)
		return check_plan(l, k, settings, n, err);
	for (int i = 0; i < n && !rc; i++)
		rc = check_stated(l, k, &settings[i], err);
	return rc;
}

int jm_lease_check_sender(struct jm_lease *l, pid_t sender, struct jm_err *err)
{
	jm_rate_take(&l->requests, jm_clock_boot());
	if (!l->n_requests++ || sender == l->terms->client.pid)
		return 0;
	return jm_err_set(err, JM_EPERM,
		"The lease belongs to process %d, but process %d sent a request; the lease ends.",
		(int)l->terms->client.pid, (int)sender);
}

int jm_lease_refuse_keep(struct jm_err *err)
{
	return jm_err_set(err, JM_EPERM,
		"joulemarkd holds a setting only while the program runs that asked for it; give a "
		"command after the setting.");
}

/* ---- time ------------------------------------------------------------------------------------ */

static int to_ms(int64_t ns)
{
	return ns <= 0			       ? 0
	       : ns > LONG_MS * JM_MILLISECOND ? LONG_MS
					       : (int)(ns / JM_MILLISECOND) + 1;
}

int jm_lease_pause_ms(struct jm_lease *l)
{
	return to_ms(jm_rate_wait(&l->requests, jm_clock_boot()));
}

int jm_lease_wait_ms(struct jm_lease *l)
{
	int pause = jm_lease_pause_ms(l);
	int end = to_ms(l->terms->end_ns(l->terms->arg) - jm_clock_boot());

	return pause && pause < end ? pause : end;
}

bool jm_lease_is_over(const struct jm_lease *l)
{
	return jm_clock_boot() >= l->terms->end_ns(l->terms->arg);
}

void jm_lease_over_text(const struct jm_lease *l, char *out, size_t size)
{
	snprintf(out, size,
		"The lease of joulemarkd has ended after %.4g s, the longest time that root's "
		"policy gives; what it held is being put back.",
		(double)(jm_clock_boot() - l->begin_ns) / 1e9);
}

/* ---- the journal of the system --------------------------------------------------------------- */

void jm_lease_tell_set(const struct jm_lease *l, const struct jm_knob_holder *k,
	const struct jm_applied *rows, int n)
{
	for (int p = 0; p < n; p++) {
		const struct jm_knob *knob = &k->table.knobs.knob[rows[p].knob];
		char asked[JM_KNOB_TEXT], now[JM_KNOB_TEXT], found[JM_KNOB_TEXT];

		jm_knob_value_text(&rows[p].requested, knob->unit, asked, sizeof(asked));
		jm_knob_value_text(&rows[p].accepted, knob->unit, now, sizeof(now));
		jm_knob_value_text(
			&k->journal[rows[p].knob].now.found, knob->unit, found, sizeof(found));
		jm_log(l->ctx, JM_INFO, "set %s of %s: asked for %s, accepted %s, found %s",
			knob->name, knob->device, asked, now, found);
	}
}

void jm_lease_tell_refused(struct jm_lease *l, const char *why)
{
	if (!jm_rate_take(&l->refusals, jm_clock_boot())) {
		l->n_untold++;
		return;
	}
	jm_log(l->ctx, JM_WARNING, "refused: %s", why);
}

void jm_lease_tell_end(const struct jm_lease *l)
{
	char untold[60] = "";

	if (l->n_untold)
		snprintf(untold, sizeof(untold), "; %d more refusals", l->n_untold);
	jm_log(l->ctx, JM_INFO, "ended after %.3f s and %d requests, all put back%s",
		(double)(jm_clock_boot() - l->begin_ns) / 1e9, l->n_requests, untold);
}
