/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/hold_sum.h"

#include <math.h>

struct mean {
	struct jm_held held;
	double sum, seconds; /* of value x time */
	int mask;
};

static void hold(struct mean *m, int64_t t_ns)
{
	double seconds = jm_held_until(&m->held, t_ns);

	if (!(seconds > 0))
		return;
	m->sum += seconds * (!m->mask ? m->held.value : (int)m->held.value & m->mask ? 1 : 0);
	m->seconds += seconds;
}

static int take(void *arg, struct jm_reading r)
{
	struct mean *m = arg;

	hold(m, r.t_ns);
	m->held.value = r.value;
	return 0;
}

int jm_held_mean(const struct jm_trace *trace, int signal, int64_t t0_ns, int64_t t1_ns, int mask,
	double *ret, struct jm_err *err)
{
	struct mean m = {{t0_ns, t1_ns, t0_ns, NAN}, .mask = mask};
	int rc = jm_trace_each(trace, signal, t0_ns, t1_ns, take, &m, err);

	if (rc)
		return rc;
	hold(&m, t1_ns);
	*ret = m.seconds > 0 ? m.sum / m.seconds : NAN;
	return 0;
}
