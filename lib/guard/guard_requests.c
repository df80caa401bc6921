/* SPDX-License-Identifier: Apache-2.0 */
/* What a client asks of its guard, or of the lease of joulemarkd that takes its place where this
 * user lacks rights. */
#include "guard/guard_requests.h"
#include "guard/guard_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct jm_knobs *jm_guard_knobs(const struct jm_guard *g)
{
	return &g->knobs;
}

static int ask_about(struct jm_guard *g, enum jm_wire_op op, const struct jm_setting *settings,
	int n, struct jm_err *err)
{
	memcpy(jm_wire_request_payload(g->message), settings, (size_t)n * sizeof(*settings));
	return jm__guard_ask(g, op, n, err);
}

/* ---- a lease of joulemarkd in the place of this guard ---------------------------------------- */

/* Each setting for each device that it means here, by the whole id: joulemarkd has devices of other
 * jobs, too. */
static int name_devices(const struct jm_guard *g, const struct jm_setting *settings, int n,
	struct jm_setting **ret, int *ret_n, struct jm_err *err)
{
	struct jm_setting *out = calloc((size_t)g->knobs.n * (size_t)n + 1, sizeof(*out));
	int n_out = 0;

	if (!out)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d settings.", n);
	for (int s = 0; s < n; s++)
		for (int i = 0; i < g->knobs.n; i++) {
			const struct jm_knob *k = &g->knobs.knob[i];
			struct jm_setting *one = &out[n_out];

			if (!jm_setting_matches(&settings[s], k))
				continue;
			*one = settings[s];
			jm_setting_exactly(one, k);
			n_out++;
		}
	*ret = out;
	*ret_n = n_out;
	return 0;
}

/* What this guard was told of knobs that cannot be read. */
static int state_again(struct jm_guard *g, struct jm_err *err)
{
	struct jm_setting *stated;
	int n, rc = g->n_stated ? name_devices(g, g->stated, g->n_stated, &stated, &n, err) : 0;

	if (rc || !g->n_stated)
		return rc;
	rc = ask_about(g->moved, JM_WIRE_STATE, stated, n, err);
	free(stated);
	return rc;
}

static bool holds_some(struct jm_guard *g)
{
	bool some = false;

	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < g->knobs.n; i++)
		some = some || jm_knob_value_known(&g->found[i]);
	pthread_mutex_unlock(&g->lock);
	return some;
}

/* This guard holds nothing: it has put back what it tried. denied: why this user may not set it.
 * JM_EPERM with the same reason where no joulemarkd serves. */
static int move(struct jm_guard *g, const struct jm_err *denied, struct jm_err *err)
{
	struct jm_guard *lease;
	struct jm_err why = JM_ERR_INIT;
	int rc = jm__guard_open(g->ctx, NULL, true, &lease, &why);

	if (rc == JM_ENOENT)
		return jm_err_set(err, denied->code, "%s", denied->text);
	if (rc)
		return jm_err_set(err, rc, "%s", why.text);
	rc = jm__guard_leave(g, err);
	g->moved = lease;
	jm__guard_forget_found(g);
	return rc ? rc : state_again(g, err);
}

void jm_guard_seek(struct jm_guard *g, const char *text)
{
	const char *end = text + strcspn(text, "@="),
		   *slash = memrchr(text, '/', (size_t)(end - text)),
		   *knob = slash ? slash + 1 : text;
	struct jm_guard *lease;
	struct jm_err why = JM_ERR_INIT;
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "%.*s", (int)(end - knob), knob);
	if (g->controls || g->moved || !geteuid() || jm_knobs_have(&g->knobs, name) ||
		!jm_control_of_knob(name))
		return;
	rc = jm__guard_open(g->ctx, NULL, true, &lease, &why);
	if (!rc && !jm_knobs_have(&lease->knobs, name)) {
		jm_guard_stop(lease, NULL);
		return;
	}
	if (!rc) {
		rc = jm__guard_leave(g, &why);
		g->moved = lease;
		jm__guard_forget_found(g);
	}
	if (!rc)
		rc = jm__guard_add_knobs(g, &lease->knobs, &why);
	if (!rc)
		rc = state_again(g, &why);
	if (rc && rc != JM_ENOENT)
		jm_log(g->ctx, JM_WARNING, "%s", why.text);
}

/* The index here of a knob of the lease, or -1. */
static int own_index(const struct jm_guard *g, int of_lease)
{
	const struct jm_knob *k = &g->moved->knobs.knob[of_lease];

	for (int i = 0; i < g->knobs.n; i++)
		if (!strcmp(g->knobs.knob[i].name, k->name) &&
			!strcmp(g->knobs.knob[i].device, k->device))
			return i;
	return -1;
}

/* Takes the rows of knobs that are here, too. */
static int take_own(const struct jm_guard *g, const struct jm_applied *rows, int n,
	struct jm_applied *out, bool by_index)
{
	int n_out = 0;

	for (int p = 0; p < n; p++) {
		int i = own_index(g, rows[p].knob);
		struct jm_applied *to = i < 0 ? NULL : &out[by_index ? i : n_out++];

		if (!to)
			continue;
		*to = rows[p];
		to->knob = i;
	}
	return n_out;
}

static int get_moved(struct jm_guard *g, struct jm_applied *out, struct jm_err *err)
{
	struct jm_applied *rows = calloc((size_t)g->moved->knobs.n + 1, sizeof(*rows));
	int rc = rows ? jm_guard_get(g->moved, rows, err)
		      : jm_err_set(err, JM_ENOMEM, "Out of memory for the knobs.");

	for (int i = 0; i < g->knobs.n && !rc; i++)
		out[i] = (struct jm_applied){.knob = i,
			.requested = jm_knob_value_of(NAN),
			.accepted = jm_knob_value_of(NAN),
			.enforced = jm_knob_value_of(NAN),
			.why = "joulemarkd has no such knob of this device."};
	if (!rc)
		take_own(g, rows, g->moved->knobs.n, out, true);
	free(rows);
	return rc;
}

static int set_moved(struct jm_guard *g, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err)
{
	struct jm_applied *rows = calloc((size_t)g->moved->knobs.n + 1, sizeof(*rows));
	struct jm_setting *named = NULL;
	int n_named = 0, n_rows = 0;
	int rc = rows ? name_devices(g, settings, n, &named, &n_named, err)
		      : jm_err_set(err, JM_ENOMEM, "Out of memory for the knobs.");

	if (!rc)
		rc = jm_guard_set(g->moved, named, n_named, rows, &n_rows, err);
	if (!rc)
		*ret_n = take_own(g, rows, n_rows, out, false);
	free(named);
	free(rows);
	return rc;
}

/* ---- requests ---- */

int jm_guard_get(struct jm_guard *g, struct jm_applied *out, struct jm_err *err)
{
	int rc = g->moved ? get_moved(g, out, err) : jm__guard_ask(g, JM_WIRE_GET, 0, err);

	if (!rc && !g->moved)
		memcpy(out, jm_wire_reply_payload(g->message), (size_t)g->knobs.n * sizeof(*out));
	return rc;
}

static int keep_stated(
	struct jm_guard *g, const struct jm_setting *one, bool probed, struct jm_err *err)
{
	size_t n = (size_t)g->n_stated + 1;
	struct jm_setting *stated = reallocarray(g->stated, n, sizeof(*stated));
	bool *by_probe = reallocarray(g->probed, n, sizeof(*by_probe));

	g->stated = stated ? stated : g->stated;
	g->probed = by_probe ? by_probe : g->probed;
	if (!stated || !by_probe)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for what is stated.");
	stated[n - 1] = *one;
	by_probe[n - 1] = probed;
	g->n_stated++;
	return 0;
}

#define PROBE "=probe"

bool jm_guard_is_probe(const char *text)
{
	size_t n = strlen(text), end = strlen(PROBE);

	return n > end && !strcmp(text + n - end, PROBE);
}

bool jm_guard_was_probed(const struct jm_guard *g, const struct jm_knob *knob)
{
	for (int i = g->n_stated; i-- > 0;)
		if (jm_setting_matches(&g->stated[i], knob))
			return g->probed[i];
	return false;
}

int jm_guard_parse_found(
	const char *given, const struct jm_knobs *knobs, struct jm_setting *ret, struct jm_err *err)
{
	char *unlocked = NULL;
	struct jm_axis axis;
	int rc;

	if (jm_guard_is_probe(given) && asprintf(&unlocked, "%.*s=" JM_UNLOCKED,
						(int)(strlen(given) - strlen(PROBE)), given) < 0)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for what is stated.");
	rc = jm_axis_parse(unlocked ? unlocked : given, knobs, &axis, err);
	free(unlocked);
	if (rc)
		return rc;
	*ret = jm_axis_setting(&axis, 0);
	if (axis.n != 1)
		rc = jm_err_set(err, JM_EUSAGE,
			"'%s' states %d values; a knob has one. Where devices differ, state each "
			"as KNOB@ID=VALUE.",
			given, axis.n);
	jm_axis_done(&axis);
	return rc;
}

/* A lease that takes the place of this guard is told the same. */
static int state_one(struct jm_guard *g, const char *given, bool probed, struct jm_err *err)
{
	struct jm_setting setting;
	int rc = jm_guard_parse_found(given, &g->knobs, &setting, err);

	if (!rc && !g->moved)
		rc = ask_about(g, JM_WIRE_STATE, &setting, 1, err);
	if (!rc)
		rc = keep_stated(g, &setting, probed && jm_guard_is_probe(given), err);
	return !rc && g->moved ? state_again(g, err) : rc;
}

int jm_guard_state(struct jm_guard *g, char *const *texts, bool probed, struct jm_err *err)
{
	int rc = 0;

	while (texts && *texts && !rc)
		rc = state_one(g, *texts++, probed, err);
	return rc;
}

/* Before anything is changed, the client learns the values that would have to be restored. */
static int hold(struct jm_guard *g, const struct jm_setting *settings, int n, struct jm_err *err)
{
	const struct jm_applied *held = jm_wire_reply_payload(g->message);
	int rc;

	pthread_mutex_lock(&g->lock);
	g->asked = true;
	pthread_mutex_unlock(&g->lock);
	rc = ask_about(g, JM_WIRE_HOLD, settings, n, err);
	pthread_mutex_lock(&g->lock);
	for (int i = 0; !rc && i < jm__guard_count(g); i++) {
		struct jm_applied one;

		memcpy(&one, &held[i], sizeof(one));
		g->found[one.knob] = one.accepted;
	}
	pthread_mutex_unlock(&g->lock);
	return rc;
}

static int set_here(struct jm_guard *g, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err)
{
	int rc;

	if ((size_t)n > (JM_WIRE_MAX - sizeof(struct jm_wire_request)) / sizeof(*settings))
		return jm_err_set(err, JM_EUSAGE, "%d settings at once are too many.", n);
	rc = hold(g, settings, n, err);
	if (!rc)
		rc = ask_about(g, JM_WIRE_SET, settings, n, err);
	if (rc)
		return rc;
	*ret_n = jm__guard_count(g);
	memcpy(out, jm_wire_reply_payload(g->message), (size_t)*ret_n * sizeof(*out));
	return 0;
}

int jm_guard_set(struct jm_guard *g, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	bool held = holds_some(g);
	int rc = g->moved ? 0 : set_here(g, settings, n, out, ret_n, &why);

	/* what an unreadable knob has, root's policy may state to those who cannot set it */
	if ((rc == JM_EPERM || (rc == JM_ENOSUP && geteuid() != 0)) && !g->service && !held)
		rc = move(g, &why, err);
	else if (rc)
		return jm_err_set(err, rc, "%s", why.text);
	return !rc && g->moved ? set_moved(g, settings, n, out, ret_n, err) : rc;
}

int jm_guard_restore(struct jm_guard *g, struct jm_err *err)
{
	return g->moved ? jm_guard_restore(g->moved, err)
			: jm__guard_ask(g, JM_WIRE_RESTORE, 0, err);
}

int jm_guard_keep(struct jm_guard *g, struct jm_err *err)
{
	int rc;

	if (g->moved)
		return jm_guard_keep(g->moved, err);
	rc = jm__guard_ask(g, JM_WIRE_KEEP, 0, err);
	if (!rc)
		jm__guard_forget_found(g);
	return rc;
}
