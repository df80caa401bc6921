/* SPDX-License-Identifier: Apache-2.0 */
#include "energy/residue.h"

#include <math.h>

static bool is_part(const struct jm_meters *set, int part, int of)
{
	return set->meter[part].covered_by == of &&
	       set->meter[part].origin == set->meter[of].origin;
}

void jm_residue_of(const struct jm_meters *set, const struct jm_energy *energy, int meter,
	struct jm_residue *ret)
{
	double joules = energy[meter].joules, sampling = energy[meter].error_sampling;
	double calibration = energy[meter].error_calibration;

	*ret = (struct jm_residue){.joules = NAN, .error = NAN};
	for (int i = 0; i < set->n; i++) {
		int other = set->meter[i].overlaps;

		if (!is_part(set, i, meter))
			continue;
		ret->parts++;
		joules -= other >= 0 && is_part(set, other, meter) ? NAN : energy[i].joules;
		sampling = hypot(sampling, energy[i].error_sampling);
		calibration += energy[i].error_calibration;
	}
	if (!ret->parts)
		return;
	ret->joules = joules;
	ret->error = isnan(joules) ? NAN : jm_energy_error(sampling, calibration);
}
