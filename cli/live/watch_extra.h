/* SPDX-License-Identifier: Apache-2.0 */
/* What `watch --with` shows beside the watts of a meter: the newest readings of other signals. */
#ifndef JM_WATCH_EXTRA_H
#define JM_WATCH_EXTRA_H

#include "measure/session/session.h"

struct jm_watch_extra {
	const char *name;  /* in --with, and the key in JSON without its unit */
	const char *key;   /* in CSV and JSON: in SI units */
	const char *title; /* of the text's column */
	enum jm_quantity quantity;
	double scale; /* of the text */
	int decimals;
};

#define JM_WATCH_EXTRAS 6
#define JM_WATCH_EXTRA_HELP                                                                        \
	"show the newest reading of these beside the watts, separated by commas: memory (of the "  \
	"device, used), temperature, clock, memory-clock, utilisation, limit (of the power)"

/* The rows that a list names, in its order; JM_EUSAGE for another name. Returns how many, or an
 * error code. */
int jm_watch_extra_parse(
	const char *list, const struct jm_watch_extra *ret[JM_WATCH_EXTRAS], struct jm_err *err);
/* In SI units; NAN = the meter has no such signal, or nothing was read. */
double jm_watch_extra_value(
	const struct jm_watch_extra *extra, struct jm_session *session, int meter);

#endif
