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

/* What transfers take of the device. */
enum jm_exchange_buffers { JM_PLAIN, JM_REGISTERED, JM_COPY_ENGINES };
struct jm_exchange_way {
	const char *transport; /* one of jm_gang_transports */
	int min_ctas, max_ctas;
	int buffers; /* enum jm_exchange_buffers */
};

/* Rows of options for the field of a workload's struct that is such a way. */
extern const char *const jm_exchange_buffer_words[];
#define JM_EXCHANGE_OPTIONS(STRUCT, FIELD)                                                         \
	JM_GANG_TRANSPORT(STRUCT, FIELD.transport, "", "nccl"),                                    \
		{.name = "min-ctas",                                                               \
			JM_BIND(JM_INT, STRUCT, FIELD.min_ctas),                                   \
			.min = 1,                                                                  \
			.max = 1024,                                                               \
			.needs = "ranks",                                                          \
			.help = "with --transport nccl: blocks of threads (CTAs) that a transfer " \
				"takes at least; each takes a multiprocessor"},                    \
		{.name = "max-ctas",                                                               \
			JM_BIND(JM_INT, STRUCT, FIELD.max_ctas),                                   \
			.min = 1,                                                                  \
			.max = 1024,                                                               \
			.needs = "ranks",                                                          \
			.help = "with --transport nccl: blocks of threads (CTAs) that a transfer " \
				"takes at most"},                                                  \
	{                                                                                          \
		.name = "buffers", JM_BIND(JM_CHOICE, STRUCT, FIELD.buffers),                      \
		.choices = jm_exchange_buffer_words, .fallback = "plain", .needs = "ranks",        \
		.help = "memory of the transfers: registered = windows of NCCL (2.27), which "     \
			"each "                                                                    \
			"rank reads and writes on the others; copy-engines = such windows, and "   \
			"copy engines in place of multiprocessors where NCCL has them (2.28, "     \
			"allgather and alltoall)"                                                  \
	}

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
	bool windows;	     /* of the communicator */
};

/* d: the device of work, open; stays until close. */
int jm_exchange_open(struct jm_exchange *s, struct jm_work *work, struct jm_device *d,
	const struct jm_exchange_way *way, struct jm_err *err);
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
