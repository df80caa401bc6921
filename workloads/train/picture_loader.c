/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"

#define DEPTH  4 /* batches that are prepared */
#define ROUNDS 4

struct slot {
	char *pixels;
	int32_t *target;
	int64_t done, fillers; /* samples */
};

struct jm_picture_loader {
	struct jm_loader_way way;
	struct slot slot[DEPTH];
	size_t bytes; /* of a sample's pixels */
	pthread_mutex_t lock;
	pthread_cond_t more, ready; /* work for threads; a batch for the taker */
	pthread_t *thread;
	int threads; /* that run */
	/* below: guarded by the lock */
	int64_t start;	/* number of the batch that taken == 0 stands for */
	int64_t taken;	/* batches since then */
	int64_t issued; /* samples since then that a thread has begun */
	int under_way;
	bool stops;
	struct jm_err err; /* the first one */
	struct jm_loader_cost cost;
	atomic_uchar *bad; /* [pictures]: known to be damaged */
	int64_t first;	   /* evaluation: the first picture that can be read */
};

/* ---- which picture -------------------------------------------------------------------------------------- */

/* A network of Feistel over the next even number of bits; values beyond n go through it again. */
int64_t jm_loader_order(uint64_t seed, int64_t epoch, int64_t i, int64_t n)
{
	uint64_t stream = jm_rng(seed, (uint64_t)epoch), x = (uint64_t)i, mask;
	int half = 1;

	while ((uint64_t)n > UINT64_C(1) << 2 * half)
		half++;
	mask = (UINT64_C(1) << half) - 1;
	do {
		for (uint64_t round = 0; round < ROUNDS; round++) {
			uint64_t left = x >> half, right = x & mask;

			x = right << half |
			    (left ^ (jm_rng(stream, right * ROUNDS + round) & mask));
		}
	} while (x >= (uint64_t)n);
	return (int64_t)x;
}

int64_t jm_loader_batches(const struct jm_data_set *set, int64_t batch)
{
	return (set->n + batch - 1) / batch + 1;
}

/* Of batch k since the start. */
static int64_t number_of(const struct jm_picture_loader *l, int64_t k)
{
	int64_t number = l->start + k * l->way.world;

	return l->way.evaluates ? number % jm_loader_batches(l->way.set, l->way.batch) : number;
}

/* ---- a sample ------------------------------------------------------------------------------------------- */

struct done {
	int64_t pictures, bytes, corrupt, fillers, ns;
};

/* Reads picture i. 1: it is damaged and was counted. */
static int read_one(struct jm_picture_loader *l, int64_t i, struct jm_picture *ret,
	struct done *done, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int64_t bytes = 0;
	int code;

	if (atomic_load(&l->bad[i]))
		return 1;
	code = jm_data_set_read(l->way.set, i, ret, &bytes, &why);
	done->bytes += bytes;
	done->pictures += !code;
	if (!code)
		return 0;
	if (l->way.strict || code == JM_ENOMEM) {
		*err = why;
		return code;
	}
	done->corrupt += !atomic_exchange(&l->bad[i], 1);
	return 1;
}

/* Picture i, or the one that takes its place; *i becomes its number. */
static int read_or_next(struct jm_picture_loader *l, int64_t *i, struct jm_picture *ret,
	struct done *done, struct jm_err *err)
{
	int64_t n = l->way.set->n;

	for (int64_t tries = 0; tries < n; tries++) {
		int code = read_one(l, *i, ret, done, err);

		if (code <= 0)
			return code;
		*i = l->way.evaluates && tries == 0 ? l->first : (*i + 1) % n;
	}
	return jm_err_set(err, JM_EFORMAT,
		"Data set %s has no picture that can be read; 'joulemark data show' names what is "
		"wrong.",
		l->way.set->path);
}

/* The picture of a sample, and the seed of what is random about it. */
static int64_t picture_of(const struct jm_picture_loader *l, int64_t sample, uint64_t *ret_seed)
{
	int64_t n = l->way.set->n, epoch = sample / n;

	*ret_seed = jm_rng(~l->way.seed, (uint64_t)sample);
	if (l->way.evaluates)
		return sample < n ? sample : l->first;
	return jm_loader_order(l->way.seed, epoch, sample % n, n);
}

static void store(const struct jm_picture_loader *l, const float *from, char *to)
{
	int64_t n = (int64_t)(l->bytes / jm_dtype_bytes(l->way.type));

	if (l->way.type == JM_F32)
		memcpy(to, from, l->bytes);
	else
		for (int64_t i = 0; i < n; i++)
			jm_element_set(l->way.type, to, i, (double)from[i]);
}

/* room: values of a sample, then scratch */
static int make(struct jm_picture_loader *l, int64_t sample, float *room, char *pixels,
	int32_t *target, struct done *done, struct jm_err *err)
{
	size_t values = l->bytes / jm_dtype_bytes(l->way.type);
	struct jm_picture p;
	uint64_t seed;
	int64_t i = picture_of(l, sample, &seed), wanted = i;
	int code = read_or_next(l, &i, &p, done, err);

	if (code)
		return code;
	jm_crop_apply(&l->way.crop, &p, seed, room + values, room);
	jm_picture_done(&p);
	store(l, room, pixels);
	*target = l->way.set->label[i];
	done->fillers = i != wanted || (l->way.evaluates && sample >= l->way.set->n);
	return 0;
}

/* ---- threads -------------------------------------------------------------------------------------------- */

static bool has_work(const struct jm_picture_loader *l)
{
	return !l->err.code && l->issued < (l->taken + DEPTH) * l->way.batch;
}

static void add_cost(struct jm_picture_loader *l, const struct done *done)
{
	l->cost.pictures += done->pictures;
	l->cost.bytes += done->bytes;
	l->cost.corrupt += done->corrupt;
	l->cost.decode_s += 1e-9 * (double)done->ns;
}

/* Makes one sample. Called with the lock, which is released meanwhile. */
static void work(struct jm_picture_loader *l, float *room)
{
	int64_t at = l->issued++, k = at / l->way.batch, b = at % l->way.batch, begun;
	int64_t sample = number_of(l, k) * l->way.batch + b;
	struct slot *slot = &l->slot[k % DEPTH];
	struct jm_err err = JM_ERR_INIT;
	struct done done = {0};
	int code;

	l->under_way++;
	pthread_mutex_unlock(&l->lock);
	begun = jm_clock_now(jm_clock_real());
	code = make(l, sample, room, slot->pixels + (size_t)b * l->bytes, slot->target + b, &done,
		&err);
	done.ns = jm_clock_now(jm_clock_real()) - begun;
	pthread_mutex_lock(&l->lock);
	l->under_way--;
	if (code && !l->err.code)
		l->err = err;
	add_cost(l, &done);
	slot->done++;
	slot->fillers += done.fillers;
	if (slot->done == l->way.batch || l->err.code || !l->under_way)
		pthread_cond_broadcast(&l->ready);
}

static void *run(void *arg)
{
	struct jm_picture_loader *l = arg;
	size_t values = l->bytes / jm_dtype_bytes(l->way.type);
	float *room = malloc((values + jm_crop_scratch(&l->way.crop)) * sizeof(*room));

	pthread_mutex_lock(&l->lock);
	if (!room && !l->err.code)
		jm_err_set(&l->err, JM_ENOMEM, "Out of memory for a thread that reads pictures.");
	while (room && !l->stops) {
		if (has_work(l))
			work(l, room);
		else
			pthread_cond_wait(&l->more, &l->lock);
	}
	pthread_cond_broadcast(&l->ready);
	pthread_mutex_unlock(&l->lock);
	free(room);
	return NULL;
}

/* ---- the taker ------------------------------------------------------------------------------------------ */

/* Discards what was prepared. Called with the lock. */
static void restart(struct jm_picture_loader *l, int64_t number)
{
	l->issued = INT64_MAX / 2; /* nothing more begins */
	while (l->under_way)
		pthread_cond_wait(&l->ready, &l->lock);
	for (int i = 0; i < DEPTH; i++)
		l->slot[i].done = l->slot[i].fillers = 0;
	l->start = number;
	l->taken = l->issued = 0;
	pthread_cond_broadcast(&l->more);
}

static void wait_for(struct jm_picture_loader *l, const struct slot *slot)
{
	int64_t begun = jm_clock_now(jm_clock_real());

	while (slot->done < l->way.batch && !l->err.code)
		pthread_cond_wait(&l->ready, &l->lock);
	l->cost.wait_s += 1e-9 * (double)(jm_clock_now(jm_clock_real()) - begun);
}

int jm_picture_loader_take(struct jm_picture_loader *l, int64_t number, void *pixels,
	int32_t *target, struct jm_err *err)
{
	struct slot *slot;
	int code;

	pthread_mutex_lock(&l->lock);
	if (number != number_of(l, l->taken))
		restart(l, number);
	slot = &l->slot[l->taken % DEPTH];
	wait_for(l, slot);
	code = l->err.code;
	if (code)
		*err = l->err;
	pthread_mutex_unlock(&l->lock);
	if (code)
		return code;
	memcpy(pixels, slot->pixels, (size_t)l->way.batch * l->bytes);
	memcpy(target, slot->target, (size_t)l->way.batch * sizeof(*target));
	pthread_mutex_lock(&l->lock);
	l->cost.fillers += slot->fillers;
	slot->done = slot->fillers = 0;
	l->taken++;
	pthread_cond_broadcast(&l->more);
	pthread_mutex_unlock(&l->lock);
	return 0;
}

struct jm_loader_cost jm_picture_loader_cost(struct jm_picture_loader *l)
{
	struct jm_loader_cost cost;

	pthread_mutex_lock(&l->lock);
	cost = l->cost;
	pthread_mutex_unlock(&l->lock);
	return cost;
}

/* ---- open and close --------------------------------------------------------------------------------------- */

/* An evaluation needs a picture that can be read before it begins. */
static int find_first(struct jm_picture_loader *l, struct jm_err *err)
{
	struct done done = {0};
	struct jm_picture p;
	int64_t first = 0;
	bool evaluates = l->way.evaluates;
	int code;

	l->way.evaluates = false; /* the next one takes the place of a damaged one */
	code = read_or_next(l, &first, &p, &done, err);
	l->way.evaluates = evaluates;
	if (code)
		return code;
	jm_picture_done(&p);
	l->first = first;
	done.bytes = done.pictures = 0;
	add_cost(l, &done);
	return 0;
}

static int make_room(struct jm_picture_loader *l, struct jm_err *err)
{
	size_t n = (size_t)l->way.batch;
	bool all = (l->bad = calloc((size_t)l->way.set->n, sizeof(*l->bad))) &&
		   (l->thread = calloc((size_t)l->way.threads, sizeof(*l->thread)));

	for (int i = 0; i < DEPTH && all; i++) {
		l->slot[i].pixels = malloc(n * l->bytes);
		l->slot[i].target = malloc(n * sizeof(*l->slot[i].target));
		all = l->slot[i].pixels && l->slot[i].target;
	}
	return all ? 0
		   : jm_err_set(err, JM_ENOMEM, "Out of memory for %d batches of pictures.", DEPTH);
}

static int begin_threads(struct jm_picture_loader *l, struct jm_err *err)
{
	while (l->threads < l->way.threads) {
		if (pthread_create(&l->thread[l->threads], NULL, run, l))
			return jm_err_set(
				err, JM_ENOMEM, "A thread that reads pictures cannot be started.");
		l->threads++;
	}
	return 0;
}

int jm_picture_loader_open(
	const struct jm_loader_way *way, struct jm_picture_loader **ret, struct jm_err *err)
{
	struct jm_picture_loader *l = calloc(1, sizeof(*l));
	int code;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a loader of pictures.");
	l->way = *way;
	l->bytes = 3 * (size_t)way->crop.size * (size_t)way->crop.size * jm_dtype_bytes(way->type);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->more, NULL);
	pthread_cond_init(&l->ready, NULL);
	code = make_room(l, err);
	if (!code)
		code = find_first(l, err);
	l->issued = INT64_MAX / 2; /* the first batch that is taken says where to begin */
	l->start = -1;
	if (!code)
		code = begin_threads(l, err);
	if (code) {
		jm_picture_loader_close(l);
		return code;
	}
	*ret = l;
	return 0;
}

void jm_picture_loader_close(struct jm_picture_loader *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stops = true;
	pthread_cond_broadcast(&l->more);
	pthread_mutex_unlock(&l->lock);
	for (int i = 0; i < l->threads; i++)
		pthread_join(l->thread[i], NULL);
	for (int i = 0; i < DEPTH; i++) {
		free(l->slot[i].pixels);
		free(l->slot[i].target);
	}
	free(l->bad);
	free(l->thread);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->more);
	pthread_cond_destroy(&l->ready);
	free(l);
}
