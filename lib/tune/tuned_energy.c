/* SPDX-License-Identifier: Apache-2.0 */
#include "tuned_energy.h"

#include <math.h>

static bool counts(const struct jm_tuned_energy *e, int meter)
{
	const struct jm_meters *set = jm_session_meters(e->session);

	return jm_meter_counts(set, meter) && set->meter[meter].origin == e->origin;
}

int jm_tuned_energy_open(struct jm_tuned_energy *e, struct jm_session *session, struct jm_err *err)
{
	static const enum jm_origin order[] = {JM_MEASURED, JM_SIMULATED};
	const struct jm_meters *set = jm_session_meters(session);
	int n = 0;

	*e = (struct jm_tuned_energy){.session = session};
	for (size_t k = 0; !n && k < sizeof(order) / sizeof(order[0]); k++) {
		e->origin = order[k];
		for (int i = 0; i < set->n; i++) {
			int index = counts(e, i) ? jm_meter_energy_signal(set, i) : -1;
			const struct jm_signal *signal = &set->signal[index < 0 ? 0 : index];

			if (index < 0)
				continue;
			n++;
			if (signal->refresh_ns > e->refresh_ns)
				e->refresh_ns = signal->refresh_ns;
			if (signal->window_ns > e->window_ns)
				e->window_ns = signal->window_ns;
		}
	}
	if (n)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"No meter measures energy here, and an estimate knows nothing of a setting, so "
		"there is nothing to tune by; 'joulemark doctor' shows the reason.");
}

void jm_tuned_energy_of(const struct jm_tuned_energy *e, int64_t t0_ns, int64_t t1_ns,
	double *ret_joules, double *ret_error)
{
	const struct jm_meters *set = jm_session_meters(e->session);

	*ret_joules = 0;
	*ret_error = 0;
	for (int i = 0; i < set->n; i++) {
		struct jm_energy one = jm_energy_unknown;

		if (!counts(e, i) || jm_meter_energy_signal(set, i) < 0)
			continue;
		jm_session_energy_now(e->session, i, t0_ns, t1_ns, &one, NULL);
		*ret_joules += one.joules;
		*ret_error = hypot(*ret_error, one.error_sampling);
	}
}
