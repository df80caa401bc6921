/* SPDX-License-Identifier: Apache-2.0 */
/* One record of a case that ran on several hosts, each of which measured for itself. */
#ifndef JM_RECORD_HOSTS_H
#define JM_RECORD_HOSTS_H

#include <jansson.h>

#include "joulemark.h"

/* What one host has measured. */
struct jm_host_part {
	const char *host;    /* its name */
	const char *machine; /* what its kernel was started as; "" = unknown */
	const json_t *
		record; /* of its first rank; NULL = it left none, so that the totals are unknown */
	json_t *ranks;	/* [its ranks], stolen */
	/* When its session began, in seconds after that of part 0, and the doubt of that; NAN =
	 * unknown. */
	double start_s, doubt_s;
};

/*
 * Adds the parts of the other hosts to the record, which is part 0's: their meters with the name of
 * the host before their ids, their energy to the totals of the record and of its phases. A meter of
 * a machine that an earlier part has as well counts once: two names of one machine see the same
 * sensors.
 */
int jm_record_join(json_t *record, struct jm_host_part *part, int n, struct jm_err *err);

#endif
