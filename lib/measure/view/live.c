/* SPDX-License-Identifier: Apache-2.0 */
/* Watts now and joules so far: the energy of one short stretch after the other. */
#include "live.h"
#include "measure/session/session_private.h"

#include <math.h>
#include <stdlib.h>

#define BLIND (100 * JM_MILLISECOND) /* of a sensor whose refresh is unknown */
#define SLACK 4			     /* a reading may be late by 1/4 of a refresh */

/* Up to a gap, or up to the last step. */
struct known {
	double joules; /* NAN = a gap that no counter bridges */
	int64_t until_ns;
};

struct jm_live {
	struct jm_session *session;
	int n;
	struct jm_live_meter *meter;
	int64_t *refresh_ns; /* of each meter, or the time between readings where that is longer */
	struct known *known;
};

/* How often something new of this meter can be known. */
static int64_t refresh_of(const struct jm_session *s, int meter)
{
	int64_t longest = 0;

	for (int i = 0; i < s->set.n_signals; i++) {
		const struct jm_signal *signal = &s->set.signal[i];
		bool energy = signal->quantity == JM_Q_ENERGY || signal->quantity == JM_Q_POWER ||
			      signal->quantity == JM_Q_POWER_AVERAGE;

		if (energy && signal->meter == meter && signal->refresh_ns > longest)
			longest = signal->refresh_ns;
	}
	if (!longest)
		longest = BLIND;
	return longest > s->options.interval_ns ? longest : s->options.interval_ns;
}

int jm_live_new(struct jm_session *s, int64_t t0_ns, struct jm_live **ret, struct jm_err *err)
{
	struct jm_live *l = calloc(1, sizeof(*l));

	if (l) {
		l->session = s;
		l->n = s->set.n;
		l->meter = calloc((size_t)l->n + 1, sizeof(*l->meter));
		l->refresh_ns = calloc((size_t)l->n + 1, sizeof(*l->refresh_ns));
		l->known = calloc((size_t)l->n + 1, sizeof(*l->known));
	}
	if (!l || !l->meter || !l->refresh_ns || !l->known) {
		jm_live_free(l);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a view of a session.");
	}
	for (int i = 0; i < l->n; i++) {
		l->refresh_ns[i] = refresh_of(s, i);
		l->known[i] = (struct known){0, t0_ns};
		l->meter[i] = (struct jm_live_meter){.watts = NAN,
			.error_watts = NAN,
			.joules = 0,
			.t0_ns = t0_ns,
			.t1_ns = t0_ns};
	}
	*ret = l;
	return 0;
}

/* Adds a step from t0 to t1. One that is unknown is made up for by the first known step after it,
 * because an energy counter bridges a gap: the energy of both is that since before the gap. */
static int add_joules(
	struct jm_live *l, int i, int64_t t0, int64_t t1, double joules, struct jm_err *err)
{
	struct known *known = &l->known[i];
	struct jm_energy e = {.joules = joules};
	int rc = 0;

	if (isnan(joules)) {
		l->meter[i].joules = NAN;
		return 0;
	}
	if (t0 > known->until_ns && !isnan(known->joules))
		rc = jm_session_energy_now(l->session, i, known->until_ns, t1, &e, err);
	known->joules += e.joules;
	known->until_ns = t1;
	l->meter[i].joules = known->joules;
	return rc;
}

static int step_meter(struct jm_live *l, int i, int64_t now, struct jm_err *err)
{
	struct jm_live_meter *m = &l->meter[i];
	int64_t refresh = l->refresh_ns[i], t0 = m->t1_ns, t1 = now - refresh - refresh / SLACK;
	double length = (double)(t1 - t0) * 1e-9;
	struct jm_energy e;
	int rc;

	if (t1 - t0 < refresh)
		return 0;
	rc = jm_session_energy_now(l->session, i, t0, t1, &e, err);
	if (rc)
		return rc;
	m->watts = e.joules / length;
	m->error_watts = e.error / length;
	m->t0_ns = t0;
	m->t1_ns = t1;
	return add_joules(l, i, t0, t1, e.joules, err);
}

int jm_live_step(struct jm_live *l, struct jm_err *err)
{
	int64_t now = jm_ctx_now(l->session->ctx);
	int rc = 0;

	for (int i = 0; !rc && i < l->n; i++)
		rc = step_meter(l, i, now, err);
	return rc;
}

const struct jm_live_meter *jm_live_meter(const struct jm_live *l, int meter)
{
	return &l->meter[meter];
}

struct jm_live_total jm_live_total(const struct jm_live *l, enum jm_origin origin)
{
	const struct jm_meters *set = &l->session->set;
	struct jm_live_total total = {0, 0};
	int n = 0;

	for (int i = 0; i < l->n; i++) {
		const struct jm_live_meter *m = &l->meter[i];
		double factor = jm__overlaps_its_kind(set, i) ? NAN : 1;

		if (!jm__counts_in_total(set, i, origin))
			continue;
		total.watts += factor * m->watts;
		total.joules += m->t1_ns == m->t0_ns ? NAN : factor * m->joules;
		n++;
	}
	return n ? total : (struct jm_live_total){NAN, NAN};
}

void jm_live_free(struct jm_live *l)
{
	if (!l)
		return;
	free(l->meter);
	free(l->refresh_ns);
	free(l->known);
	free(l);
}
