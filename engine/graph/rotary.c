/* SPDX-License-Identifier: Apache-2.0 */
#include "rotary.h"

#include <math.h>

#define PI 3.14159265358979323846

double jm_rotary_speed(const struct jm_rotary *r, int64_t i, int64_t depth)
{
	double w = pow(r->theta, -2.0 * (double)i / (double)depth), turns, share;

	if (!(r->factor > 1))
		return w;
	turns = w * r->context / (2 * PI);
	share = (turns - r->low) / (r->high - r->low); /* of the speed that is kept */
	share = share < 0 ? 0 : share > 1 ? 1 : share;
	return w * (share + (1 - share) / r->factor);
}
