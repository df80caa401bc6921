/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transfer of f32 between the devices of ranks, to be repeated: its memory, its values, which
 * are known, and its result compared with them.
 *
 *	open	the ranks find each other
 *	fill	memory and values
 *	start	as often as it is asked; the device may be at work when it returns
 */
#ifndef JM_EXCHANGE_H
#define JM_EXCHANGE_H

#include "comm/comm.h"
#include "gang.h"

/* One that is zeroed is not open. */
struct jm_exchange {
	struct jm_work *work;
	struct jm_device *device; /* as given to open */
	struct jm_gang gang;
	enum jm_transfer_kind kind;
	size_t n;	     /* elements of a part */
	size_t n_from, n_to; /* of the arrays */
	size_t bytes;	     /* of the larger one */
	float *from, *to;    /* of the device */
};

/* d: the device of work, open; stays until close. transport: one of jm_gang_transports. */
int jm_exchange_open(struct jm_exchange *s, struct jm_work *work, struct jm_device *d,
	const char *transport, struct jm_err *err);
/* size: GB of the larger array. */
int jm_exchange_fill(
	struct jm_exchange *s, enum jm_transfer_kind kind, double size, struct jm_err *err);
/* stream: of the device, for a transport of its memory; else NULL, and the transfers are done when
 * it returns. */
int jm_exchange_start(struct jm_exchange *s, int times, void *stream, struct jm_err *err);
/* What a ring of the ranks moves for each byte of the larger array. */
double jm_exchange_bus_factor(const struct jm_exchange *s);
/* After at least one transfer, of which none runs. */
int jm_exchange_verify(const struct jm_exchange *s, struct jm_err *err);
/* false: transfers have not ended; their memory, the device and *s must stay until the process
 * ends. */
bool jm_exchange_close(struct jm_exchange *s);

#endif
