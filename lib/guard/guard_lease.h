/* SPDX-License-Identifier: Apache-2.0 */
/* What a guard checks and logs when it serves a lease. Used inside the guard only. */
#ifndef JM_GUARD_LEASE_H
#define JM_GUARD_LEASE_H

#include "base/rate.h"
#include "guard/guard_apply.h"
#include "guard/guard_terms.h"
#include "guard/guard_wire.h"

struct jm_lease {
	const struct jm_guard_terms *terms;
	const struct jm_ctx *ctx;
	int64_t begin_ns; /* CLOCK_BOOTTIME */
	struct jm_rate requests, refusals;
	int n_requests, n_untold; /* refusals that were not logged, as there were too many */
};

int jm_lease_begin(struct jm_lease *ret, const struct jm_ctx *ctx, int fd,
	const struct jm_guard_terms *terms, struct jm_err *err);
/* States what the terms know of knobs that cannot be read. */
void jm_lease_state(const struct jm_lease *l, struct jm_knob_holder *k);
/* May the client hold, set or state this? What it states has to be what the terms state. */
int jm_lease_check(const struct jm_lease *l, const struct jm_knob_holder *k, uint32_t op,
	const struct jm_setting *settings, int n, struct jm_err *err);
/* Is the message the client's own? The first is, as it may have been sent before the socket was
 * watched. */
int jm_lease_check_sender(struct jm_lease *l, pid_t sender, struct jm_err *err);
int jm_lease_refuse_keep(struct jm_err *err);

/* Until the next request is read; 0 = now. */
int jm_lease_pause_ms(struct jm_lease *l);
/* Until something is to be done without a request; -1 = never. */
int jm_lease_wait_ms(struct jm_lease *l);
bool jm_lease_is_over(const struct jm_lease *l);
void jm_lease_over_text(const struct jm_lease *l, char *out, size_t size);

void jm_lease_tell_set(const struct jm_lease *l, const struct jm_knob_holder *k,
	const struct jm_applied *rows, int n);
void jm_lease_tell_refused(struct jm_lease *l, const char *why);
void jm_lease_tell_end(const struct jm_lease *l);

#endif
