/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step of several ranks goes: of each kind of transfer, how long it takes and
 * how long computation waits for it, by events of the device or, in host memory, its clock. */
#ifndef JM_ACCOUNT_H
#define JM_ACCOUNT_H

#include "waits.h"

/* Sums of gradients, and gathers of a sharded update; of ranks that share a model: sums, sums of
 * which each rank receives a part, and gathers. */
#define JM_ACCOUNT_KINDS(X)                                                                        \
	X(SUM, "sum")                                                                              \
	X(GATHER, "gather")                                                                        \
	X(TP_SUM, "tp-sum")                                                                        \
	X(TP_SCATTER, "tp-scatter")                                                                \
	X(TP_GATHER, "tp-gather")
enum jm_account_kind {
#define X(name, text) JM_ACCOUNT_##name,
	JM_ACCOUNT_KINDS(X)
#undef X
		JM_ACCOUNT_KINDS_N
};
const char *jm_account_name(enum jm_account_kind kind);

/* Of one kind. A transfer runs either beside computation, which waits for it later, or alone. */
struct jm_account {
	struct jm_waits *beside; /* it is busy, on the queue of transfers */
	struct jm_waits *waited; /* computation waits for one beside it */
	struct jm_waits *alone;	 /* it is busy, and computation waits */
};

/* At most, in a step. */
struct jm_account_counts {
	int beside, waited, alone;
};

/* Seconds of a step; NAN = no step has such transfers. */
struct jm_account_time {
	double busy, exposed;
};

int jm_account_new(const struct jm_device *d, const struct jm_account_counts *counts,
	struct jm_account *ret, struct jm_err *err);
void jm_account_free(struct jm_account *a);
void jm_account_count_by(struct jm_account *a, const struct jm_waits *clock); /* waits.h */
void jm_account_reset(struct jm_account *a); /* discards the steps so far */
/* Means over that many steps, which the device has finished. */
struct jm_account_time jm_account_time(struct jm_account *a, long steps);

#endif
