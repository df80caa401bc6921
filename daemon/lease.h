/* SPDX-License-Identifier: Apache-2.0 */
/* One lease: a process of its own, which serves one client as its guard under root's policy. */
#ifndef JM_LEASE_H
#define JM_LEASE_H

#include "base/ctx.h"
#include "peer.h"

/* In the new process. Returns its exit status: 0 = all was put back. */
int jm_lease_serve(
	struct jm_ctx *ctx, int fd, const struct jm_peer *peer, const struct jm_policy *policy);

#endif
