/* SPDX-License-Identifier: Apache-2.0 */
/* The optional part of a backend (backend.h) for memory of devices that other processes of the host have open. */
#ifndef JM_BACKEND_SHARE_H
#define JM_BACKEND_SHARE_H

#include "backend.h"

/* Names an allocation to another process. */
struct jm_shared {
	unsigned char handle[64];
};

struct jm_backend_share {
	/* memory: what `alloc` returned. */
	int (*offer)(void *dev, void *memory, struct jm_shared *ret, struct jm_err *err);
	/* The first byte of another process's allocation, for `copy` on the device, until unmap. */
	int (*map)(void *dev, const struct jm_shared *from, void **ret, struct jm_err *err);
	void (*unmap)(void *dev, void *memory);
	/* Adds n elements of f32 to `to`, on a queue. */
	int (*add)(void *dev, enum jm_queue queue, void *to, const void *from, size_t n,
		struct jm_err *err);
};

#endif
