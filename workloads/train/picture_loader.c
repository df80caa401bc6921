/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "sample_order.h"

#define DEPTH_FIRST 2  /* batches that are prepared */
#define DEPTH_MOST  64 /* at most, if memory allows */
/* pixels of a side: threads take several pictures of at most this size at a time */
#define SMALL	64
#define SEVERAL 8

struct slot {
	char *part[JM_INPUTS_MAX]; /* [batch] of each */
	int64_t done, fillers;	   /* samples */
};

struct jm_picture_loader {
	struct jm_loader_way way;
	size_t bytes; /* of a sample */
	int share;    /* samples that a thread takes at a time */
	pthread_mutex_t lock;
	pthread_cond_t more, ready; /* work for threads; a batch for the taker */
	pthread_t *thread;
	int threads; /* that run */
	/* below: guarded by the lock */
	struct slot slot[DEPTH_MOST];	  /* `depth` of them are there */
	int unused[DEPTH_MOST], n_unused; /* of those */
	int place[DEPTH_MOST];		  /* of batch k, at k % DEPTH_MOST: its slot */
	int depth, most;
	bool idle;	/* a thread had no work since the taker waited last */
	int64_t start;	/* number of the batch that taken == 0 stands for */
	int64_t taken;	/* batches since then */
	int64_t issued; /* samples since then that a thread has begun */
	int under_way;
	bool stops;
	struct jm_err err; /* the first one */
	struct jm_loader_cost cost;
	atomic_uchar *bad; /* [pictures]: known to be damaged, and counted */
	int64_t first;	   /* evaluation: the first picture that can be read */
};

/* ---- which picture --------------------------------------------------------------------------- */

int64_t jm_loader_batches(const struct jm_data_set *set, int64_t batch)
{
	return (set->n + batch - 1) / batch + 1;
}

/* Of batch k since the start. */
static int64_t number_of(const struct jm_picture_loader *l, int64_t k)
{
	int64_t number = l->start + k * l->way.world;

	return l->way.batches ? number % l->way.batches : number;
}

/* ---- a sample -------------------------------------------------------------------------------- */

struct done {
	int64_t pictures, by[JM_PICTURE_BY_COUNT], engine_failed, bytes, corrupt, fillers, ns,
		cpu_ns;
};

/* What a thread keeps from picture to picture. */
struct maker {
	const struct jm_crop *crop;
	uint64_t seed; /* of the picture */
	struct jm_crop_taken taken;
	struct jm_picture_decoder decoder;
	struct jm_picture picture;
	struct jm_resize_room room;
	float *values; /* of a sample of a grid: inputs, then outputs */
	struct jm_length_groups groups;
};

static void maker_done(struct maker *m)
{
	jm_picture_decoder_done(&m->decoder);
	jm_resize_room_done(&m->room);
	jm_length_groups_done(&m->groups);
	free(m->values);
}

/* Inputs and outputs of sample i. */
static int read_values(const struct jm_data_set *set, int64_t i, struct maker *m,
	int64_t *ret_bytes, struct jm_err *err)
{
	size_t n = (size_t)(jm_data_set_points(set) * set->channels);
	int code;

	if (!m->values)
		m->values = calloc(n, 2 * sizeof(*m->values));
	if (!m->values)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a sample of %s.", set->path);
	code = jm_data_set_values(set, i, JM_DATA_INPUTS, m->values, err);
	if (!code)
		code = jm_data_set_values(set, i, JM_DATA_OUTPUTS, m->values + n, err);
	*ret_bytes = code ? 0 : (int64_t)(2 * n * sizeof(*m->values));
	return code;
}

/* Others may be read after such an error. */
static bool is_of_one_file(int code)
{
	return code == JM_EFORMAT || code == JM_ENOENT || code == JM_EIO;
}

/* Reads picture i. 1: it is damaged and was counted. It is read again the next time: the part that
 * is wanted then may be whole. */
static int read_one(struct jm_picture_loader *l, int64_t i, struct maker *m, struct done *done,
	struct jm_err *err)
{
	const struct jm_data_set *set = l->way.set;
	struct jm_err why = JM_ERR_INIT;
	int64_t bytes = 0;
	int code = set->axes ? read_values(set, i, m, &bytes, &why)
			     : jm_data_set_read(set, i, &m->decoder, &m->picture, &bytes, &why);

	done->bytes += bytes;
	done->pictures += !code;
	done->by[m->picture.by] += !code && !set->axes;
	if (!code)
		return 0;
	if (l->way.strict || !is_of_one_file(code)) {
		*err = why;
		return code;
	}
	done->corrupt += !atomic_exchange(&l->bad[i], 1);
	return 1;
}

/* Picture i, or the one that takes its place; *i becomes its number. */
static int read_or_next(struct jm_picture_loader *l, int64_t *i, struct maker *m, struct done *done,
	struct jm_err *err)
{
	int64_t n = l->way.set->n;

	for (int64_t tries = 0; tries < n; tries++) {
		int code = read_one(l, *i, m, done, err);

		if (code <= 0)
			return code;
		*i = l->way.batches && tries == 0 ? l->first : (*i + 1) % n;
	}
	return jm_err_set(err, JM_EFORMAT,
		"Data set %s has no %s that can be read; 'joulemark data' names what is "
		"wrong.",
		l->way.set->path, l->way.set->axes ? "sample" : "picture");
}

/* The picture of a sample; m->seed becomes that of what is random about it. */
static int picture_of(const struct jm_picture_loader *l, int64_t sample, struct maker *m,
	int64_t *ret, struct jm_err *err)
{
	int64_t n = l->way.set->n, epoch = sample / n;

	m->seed = jm_rng(~l->way.seed, (uint64_t)sample);
	if (l->way.batches)
		*ret = sample < n ? sample : l->first;
	else if (l->way.sorted)
		return jm_length_groups_order(&m->groups, epoch, sample % n, ret, err);
	else
		*ret = jm_sample_order(l->way.seed, epoch, sample % n, n);
	return 0;
}

static void choose(void *arg, int width, int height, struct jm_picture_part *ret)
{
	struct maker *m = arg;

	jm_crop_choose(m->crop, m->seed, width, height, &m->taken, ret);
}

/* Inputs or outputs, which were read; their channels come last on the device. */
static void make_values(const struct jm_picture_loader *l, const struct jm_loader_part *part,
	const struct maker *m, void *to)
{
	const struct jm_data_set *set = l->way.set;
	int64_t points = jm_data_set_points(set);
	const float *from = m->values;

	if (part->type == JM_DATA_OUTPUTS)
		from += points * set->channels;
	for (int64_t c = 0; c < set->channels; c++)
		for (int64_t p = 0; p < points; p++)
			jm_element_set(part->value, to, p * set->channels + c,
				(double)from[c * points + p]);
}

/* The part of sample i, whose picture was read. */
static int make_part(const struct jm_picture_loader *l, const struct jm_loader_part *part,
	int64_t i, struct maker *m, void *to, struct jm_err *err)
{
	if (part->type == JM_DATA_PICTURE)
		return jm_crop_apply(m->crop, &m->taken, &m->picture, &m->room, to, err);
	if (l->way.set->axes)
		make_values(l, part, m, to);
	else if (part->type == JM_DATA_TEXT)
		jm_token_rows_write(part->tokens, i, l->way.batches ? 0 : m->seed, to);
	else if (part->type == JM_DATA_CLASS)
		memcpy(to, &l->way.set->label[i], part->bytes);
	else
		jm_talk_rows_write(part->talks, part->type, i, to);
	return 0;
}

/* Place b of a batch. */
static int make(struct jm_picture_loader *l, int64_t sample, struct maker *m, int64_t b,
	const struct slot *slot, struct done *done, struct jm_err *err)
{
	int64_t i, wanted;
	int code = picture_of(l, sample, m, &i, err);

	if (code)
		return code;
	wanted = i;
	code = read_or_next(l, &i, m, done, err);
	for (int k = 0; k < l->way.parts && !code; k++) {
		const struct jm_loader_part *part = &l->way.part[k];

		code = make_part(l, part, i, m, slot->part[k] + (size_t)b * part->bytes, err);
	}
	if (code)
		return code;
	done->fillers += i != wanted || (l->way.batches && sample >= l->way.set->n);
	return 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

static bool has_work(const struct jm_picture_loader *l)
{
	return !l->err.code && l->issued < (l->taken + l->depth) * l->way.batch;
}

static void add_cost(struct jm_picture_loader *l, const struct done *done)
{
	l->cost.pictures += done->pictures;
	for (int k = 0; k < JM_PICTURE_BY_COUNT; k++)
		l->cost.by[k] += done->by[k];
	l->cost.engine_failed += done->engine_failed;
	l->cost.bytes += done->bytes;
	l->cost.corrupt += done->corrupt;
	l->cost.decode_s += 1e-9 * (double)done->ns;
	l->cost.decode_cpu_s += 1e-9 * (double)done->cpu_ns;
}

/* The slot of batch k, which is begun with its first sample. */
static struct slot *slot_of(struct jm_picture_loader *l, int64_t k, bool begins)
{
	int *place = &l->place[k % DEPTH_MOST];

	if (begins)
		*place = l->unused[--l->n_unused];
	return &l->slot[*place];
}

/* Samples b to end - 1 of batch k. */
static int make_some(struct jm_picture_loader *l, int64_t k, int64_t b, int64_t end,
	struct maker *m, struct slot *slot, struct done *done, struct jm_err *err)
{
	int64_t begun = jm_clock_now(jm_clock_real()), first = number_of(l, k) * l->way.batch;
	int64_t failed = jm_picture_engine_failed(&m->decoder), cpu = jm_clock_thread();
	int code = 0;

	for (; b < end && !code; b++)
		code = make(l, first + b, m, b, slot, done, err);
	done->cpu_ns = jm_clock_thread() - cpu;
	done->ns = jm_clock_now(jm_clock_real()) - begun;
	done->engine_failed = jm_picture_engine_failed(&m->decoder) - failed;
	return code;
}

/* Makes the next samples of a batch. Called with the lock, which is released meanwhile. */
static void work(struct jm_picture_loader *l, struct maker *m)
{
	int64_t at = l->issued, k = at / l->way.batch, b = at % l->way.batch;
	int64_t end = b + l->share < l->way.batch ? b + l->share : l->way.batch;
	struct slot *slot = slot_of(l, k, !b);
	struct jm_err err = JM_ERR_INIT;
	struct done done = {0};
	int code;

	l->issued += end - b;
	l->under_way++;
	pthread_mutex_unlock(&l->lock);
	code = make_some(l, k, b, end, m, slot, &done, &err);
	pthread_mutex_lock(&l->lock);
	l->under_way--;
	if (code && !l->err.code)
		l->err = err;
	add_cost(l, &done);
	slot->done += end - b;
	slot->fillers += done.fillers;
	if (slot->done == l->way.batch || l->err.code || !l->under_way)
		pthread_cond_broadcast(&l->ready);
}

static void *run(void *arg)
{
	struct jm_picture_loader *l = arg;
	struct maker m = {.crop = &l->way.crop,
		.decoder = {.choose = choose, .arg = &m, .gpu = l->way.gpu},
		.groups = {.start = l->way.sorted ? l->way.sorted->start : NULL,
			.n = l->way.set->n,
			.size = l->way.group,
			.seed = l->way.seed}};

	pthread_mutex_lock(&l->lock);
	while (!l->stops) {
		if (has_work(l)) {
			work(l, &m);
		} else {
			l->idle = true;
			pthread_cond_wait(&l->more, &l->lock);
		}
	}
	pthread_cond_broadcast(&l->ready);
	pthread_mutex_unlock(&l->lock);
	maker_done(&m);
	return NULL;
}

static void free_slot(struct slot *slot)
{
	for (int k = 0; k < JM_INPUTS_MAX; k++)
		free(slot->part[k]);
	*slot = (struct slot){0};
}

/* One more batch may be prepared. False: there is no memory for it. */
static bool deepen(struct jm_picture_loader *l)
{
	struct slot *slot = &l->slot[l->depth];
	bool all = true;

	for (int k = 0; k < l->way.parts; k++) {
		slot->part[k] = malloc((size_t)l->way.batch * l->way.part[k].bytes);
		all = all && slot->part[k];
	}
	if (!all) {
		free_slot(slot);
		return false;
	}
	l->unused[l->n_unused++] = l->depth++;
	return true;
}

/* ---- the taker ------------------------------------------------------------------------------- */

/* Discards what was prepared. Called with the lock. */
static void restart(struct jm_picture_loader *l, int64_t number)
{
	l->issued = INT64_MAX / 2; /* nothing more begins */
	while (l->under_way)
		pthread_cond_wait(&l->ready, &l->lock);
	l->n_unused = 0;
	for (int i = 0; i < l->depth; i++) {
		l->slot[i].done = l->slot[i].fillers = 0;
		l->unused[l->n_unused++] = i;
	}
	l->start = number;
	l->taken = l->issued = 0;
	l->idle = false;
	pthread_cond_broadcast(&l->more);
}

static bool is_ready(const struct jm_picture_loader *l)
{
	int64_t begun = (l->issued + l->way.batch - 1) / l->way.batch;

	return begun > l->taken && l->slot[l->place[l->taken % DEPTH_MOST]].done == l->way.batch;
}

/*
 * Waits for the next batch. Threads that had been idle are fast enough on average; if it waits
 * nevertheless, more is to be ready the next time.
 */
static void wait_for(struct jm_picture_loader *l)
{
	int64_t begun = jm_clock_now(jm_clock_real());

	if (!is_ready(l) && l->idle && l->depth < l->most && !deepen(l))
		l->most = l->depth;
	if (!is_ready(l)) {
		l->idle = false;
		pthread_cond_broadcast(&l->more);
	}
	while (!is_ready(l) && !l->err.code)
		pthread_cond_wait(&l->ready, &l->lock);
	l->cost.wait_s += 1e-9 * (double)(jm_clock_now(jm_clock_real()) - begun);
}

static void give_back(struct jm_picture_loader *l, struct slot *slot)
{
	l->cost.fillers += slot->fillers;
	slot->done = slot->fillers = 0;
	l->unused[l->n_unused++] = (int)(slot - l->slot);
	l->taken++;
	pthread_cond_broadcast(&l->more);
}

int jm_picture_loader_take(
	struct jm_picture_loader *l, int64_t number, void *const to[], struct jm_err *err)
{
	struct slot *slot;
	int code;

	pthread_mutex_lock(&l->lock);
	if (l->start < 0 || number != number_of(l, l->taken))
		restart(l, number);
	wait_for(l);
	code = l->err.code;
	if (code)
		*err = l->err;
	slot = &l->slot[l->place[l->taken % DEPTH_MOST]];
	pthread_mutex_unlock(&l->lock);
	if (code)
		return code;
	for (int k = 0; k < l->way.parts; k++)
		memcpy(to[k], slot->part[k], (size_t)l->way.batch * l->way.part[k].bytes);
	pthread_mutex_lock(&l->lock);
	give_back(l, slot);
	pthread_mutex_unlock(&l->lock);
	return 0;
}

struct jm_loader_cost jm_picture_loader_cost(struct jm_picture_loader *l)
{
	struct jm_loader_cost cost;

	pthread_mutex_lock(&l->lock);
	cost = l->cost;
	cost.depth = l->depth;
	pthread_mutex_unlock(&l->lock);
	return cost;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* An evaluation needs a picture that can be read before it begins. */
static int find_first(struct jm_picture_loader *l, struct jm_err *err)
{
	struct maker m = {0};
	struct done done = {0};
	int64_t first = 0, batches = l->way.batches;
	int code;

	l->way.batches = 0; /* the next one takes the place of a damaged one */
	code = read_or_next(l, &first, &m, &done, err);
	l->way.batches = batches;
	maker_done(&m);
	if (code)
		return code;
	l->first = first;
	l->cost.corrupt += done.corrupt;
	return 0;
}

static int make_room(struct jm_picture_loader *l, struct jm_err *err)
{
	size_t fit = l->way.memory / ((size_t)l->way.batch * l->bytes);
	bool all = (l->bad = calloc((size_t)l->way.set->n, sizeof(*l->bad))) &&
		   (l->thread = calloc((size_t)l->way.threads, sizeof(*l->thread)));

	l->most = (int)(fit < DEPTH_MOST ? fit : DEPTH_MOST);
	while (all && l->depth < DEPTH_FIRST)
		all = deepen(l);
	return all ? 0
		   : jm_err_set(err, JM_ENOMEM, "Out of memory for %d batches of pictures.",
			     DEPTH_FIRST);
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
	for (int k = 0; k < way->parts; k++)
		l->bytes += way->part[k].bytes;
	l->share = way->set->width && way->set->width <= SMALL && way->set->height <= SMALL
			   ? SEVERAL
			   : 1;
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
	for (int i = 0; i < l->depth; i++)
		free_slot(&l->slot[i]);
	free(l->bad);
	free(l->thread);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->more);
	pthread_cond_destroy(&l->ready);
	free(l);
}
