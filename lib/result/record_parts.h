/* SPDX-License-Identifier: Apache-2.0 */
/* What several processes measured of one machine at the same time, as one record. */
#ifndef JM_RECORD_PARTS_H
#define JM_RECORD_PARTS_H

#include <jansson.h>

/* The record of one process of a job. Texts point into it. */
struct jm_part {
	const json_t *record;
	size_t at; /* index among all records */
	const char *job, *step;
	const char *machine, *host; /* machine: its boot, or else its name */
	json_int_t process;
	double t0, t1;	     /* s of the machine's clock, of the phase that the figures describe */
	double wall0, wall1; /* the same, s since 1970 */
	int group;	     /* the run that it is a part of; -1 = none yet */
	int before;	     /* index of the part that came into its group before it; -1 = none */
};

/* Of the machine of part `first`: the record of that part, with the energy of all parts on that
 * machine. span: s, of the whole run. */
json_t *jm__machine_record(const struct jm_part *part, int n, int first, double span);

#endif
