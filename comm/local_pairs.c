/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pair has two slots, and the numbers of pieces that the sender has posted and the receiver has
 * taken. Pieces go both ways in turns, so that ranks that send to each other in a circle do not
 * wait for one another.
 */
#include "local_pairs.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define SLOT_BYTES ((size_t)64 << 10) /* at most */
#define ALL_BYTES  ((size_t)1 << 30)  /* slots of all pairs, which may all be in use */
#define SLOTS	   2
#define SPINS	   2000
#define NAP_NS	   20000 /* between looks after so many spins */
/* so long for a rank that has left, in naps: its own error must reach the parent first, as in
 * local.c */
#define LEFT_NAPS 100000

struct jm__pair {
	_Alignas(64) _Atomic uint32_t posted;
	_Alignas(64) _Atomic uint32_t taken;
	_Alignas(64) char slot[]; /* SLOTS of slot_bytes */
};

/* One way of an exchange. */
struct way {
	struct jm__pair *pair;
	size_t slot_bytes;
	char *data;
	size_t bytes, done;
};

/* A multiple of a cache line. */
static size_t slot_bytes(int world)
{
	size_t share = ALL_BYTES / SLOTS / ((size_t)world * (size_t)world) / 64 * 64;

	return share < SLOT_BYTES ? share : SLOT_BYTES;
}

static size_t pair_bytes(int world)
{
	return sizeof(struct jm__pair) + SLOTS * slot_bytes(world);
}

size_t jm__pairs_bytes(int world)
{
	return (size_t)world * (size_t)world * pair_bytes(world);
}

static size_t piece_of(const struct way *w)
{
	size_t rest = w->bytes - w->done;

	return rest < w->slot_bytes ? rest : w->slot_bytes;
}

static char *slot_of(const struct way *w, uint32_t piece)
{
	return w->pair->slot + piece % SLOTS * w->slot_bytes;
}

static bool post(struct way *w)
{
	uint32_t n = atomic_load(&w->pair->posted);

	if (w->done == w->bytes || n - atomic_load(&w->pair->taken) == SLOTS)
		return false;
	memcpy(slot_of(w, n), w->data + w->done, piece_of(w));
	w->done += piece_of(w);
	atomic_store(&w->pair->posted, n + 1);
	return true;
}

static bool take(struct way *w)
{
	uint32_t n = atomic_load(&w->pair->taken);

	if (w->done == w->bytes || n == atomic_load(&w->pair->posted))
		return false;
	memcpy(w->data + w->done, slot_of(w, n), piece_of(w));
	w->done += piece_of(w);
	atomic_store(&w->pair->taken, n + 1);
	return true;
}

/* Waits a little: 0, or the rank that is missed has left long ago. */
static int pause_for(struct jm__pairs *p, int rank, long *looks, struct jm_err *err)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};

	if (++*looks < SPINS)
		return 0;
	nanosleep(&nap, NULL);
	if (!p->has_left(p->arg, rank) || *looks < SPINS + LEFT_NAPS)
		return 0;
	return jm_err_set(err, JM_EGONE, "Rank %d ended while rank %d was waiting for it.",
		p->member[rank], p->member[p->rank]);
}

static struct jm__pair *pair_of(const struct jm__pairs *p, int from, int to)
{
	size_t i = (size_t)p->member[from] * (size_t)p->all + (size_t)p->member[to];

	return (struct jm__pair *)(void *)(p->pair + i * pair_bytes(p->all));
}

int jm__pairs_exchange(struct jm__pairs *p, const struct jm_transfer *t, struct jm_err *err)
{
	size_t bytes = t->count * jm_comm_type_bytes(t->type);
	struct way out = {.data = (char *)(uintptr_t)t->from, .slot_bytes = slot_bytes(p->all)},
		   in = {.data = t->to, .slot_bytes = out.slot_bytes};
	long looks = 0;
	int code = 0;

	if (t->to_rank >= 0) {
		out.pair = pair_of(p, p->rank, t->to_rank);
		out.bytes = bytes;
	}
	if (t->from_rank >= 0) {
		in.pair = pair_of(p, t->from_rank, p->rank);
		in.bytes = bytes;
	}
	while (!code && (out.done < out.bytes || in.done < in.bytes)) {
		bool sent = out.pair && post(&out), got = in.pair && take(&in);

		if (sent || got)
			looks = 0;
		else
			code = pause_for(
				p, in.done < in.bytes ? t->from_rank : t->to_rank, &looks, err);
	}
	return code;
}
