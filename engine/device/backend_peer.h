/* SPDX-License-Identifier: Apache-2.0 */
/* The optional part of a backend (backend.h) for copies between two devices that one process has
 * open. */
#ifndef JM_BACKEND_PEER_H
#define JM_BACKEND_PEER_H

#include "backend.h"

struct jm_backend_peer {
	/*
	 * Lets two different devices of this backend access each other's memory. Called once per
	 * pair, before its first copy. *ret_direct: false = the driver does not allow access, and
	 * copies go over the host.
	 */
	int (*open)(void *dev, void *peer, bool *ret_direct, struct jm_err *err);
	/* From memory of dev to memory of peer, on a queue of dev; otherwise as `copy`. */
	int (*copy)(void *dev, enum jm_queue queue, void *peer, void *to, const void *from,
		size_t bytes, struct jm_err *err);
};

#endif
