/* SPDX-License-Identifier: Apache-2.0 */
/* How often a source is read, from what its sensors declare. */
#ifndef JM_SAMPLER_PACE_H
#define JM_SAMPLER_PACE_H

#include "meter/meter.h"

/* ns. Between readings; between those at an edge, which is awaited for `patience`; without a
 * reading, what makes a gap. */
struct jm_reader_pace {
	int64_t interval, fast, patience, blind;
};

/* Of n signals from `first` on; interval_ns: that is wanted, 0 = from the sensors' refresh. */
struct jm_reader_pace jm__reader_pace(
	const struct jm_meters *set, int first, int n, int64_t interval_ns);

#endif
