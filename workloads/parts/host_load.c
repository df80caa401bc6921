/* SPDX-License-Identifier: Apache-2.0 */
#include "host_load.h"

#include <stdlib.h>
#include <string.h>

#include "engine/graph/rng.h"

#define SIDE JM_HOST_LOAD_SIDE
#define WALK 32768 /* words between two products: 256 kB */

static void multiply(const struct jm_host_load *load, float y[SIDE][SIDE])
{
	memset(y, 0, sizeof(load->first));
	for (int i = 0; i < SIDE; i++)
		for (int k = 0; k < SIDE; k++)
			for (int j = 0; j < SIDE; j++)
				y[i][j] += load->x[i][k] * load->w[k][j];
}

static bool same_bits(const void *a, const void *b, size_t size)
{
	return memcmp(a, b, size) == 0;
}

/* What word i of a thread's memory holds in every other pass; its complement in the others. */
static uint64_t word(size_t i)
{
	return i * UINT64_C(0x9e3779b97f4a7c15);
}

/* Writes the first words in pieces, so that it can be stopped. */
static void fill_memory(struct jm_host_load_thread *t)
{
	const struct jm_host_load *load = t->load;

	while (t->filled < load->n_words && !load->stop) {
		size_t left = load->n_words - t->filled,
		       end = t->filled + (left < WALK ? left : WALK);

		for (size_t i = t->filled; i < end; i++)
			t->words[i] = word(i);
		t->filled = end;
	}
}

/* Reads, checks and writes the words that follow. */
static void walk(struct jm_host_load_thread *t, size_t n_words)
{
	size_t end = t->at + WALK < n_words ? t->at + WALK : n_words;
	uint64_t apart = 0;

	for (size_t i = t->at; i < end; i++) {
		apart |= t->words[i] ^ word(i) ^ t->flip;
		t->words[i] = ~(word(i) ^ t->flip);
	}
	if (apart)
		t->changed = true;
	t->at = end;
	if (end < n_words)
		return;
	t->at = 0;
	t->flip = ~t->flip;
	t->passes++;
}

static void *serve(void *arg)
{
	struct jm_host_load_thread *t = arg;
	struct jm_host_load *load = t->load;

	fill_memory(t);
	while (!load->stop) {
		if (t->words)
			walk(t, load->n_words);
		multiply(load, t->y);
		if (!same_bits(t->y, load->first, sizeof(load->first)))
			t->wrong = true;
		t->products++;
	}
	return NULL;
}

static void fill(struct jm_host_load *load, uint64_t seed)
{
	uint64_t counter = 0;

	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			float pair[2];

			jm_rng_normal_pair(seed, counter++, pair);
			load->x[i][j] = pair[0];
			load->w[i][j] = pair[1];
		}
	multiply(load, load->first);
}

static int take_memory(struct jm_host_load *load, struct jm_err *err)
{
	for (int i = 0; load->n_words && i < load->n; i++) {
		load->thread[i].words = calloc(load->n_words, sizeof(uint64_t));
		if (!load->thread[i].words)
			return jm_err_set(err, JM_ENOMEM,
				"Out of memory for the load on the host's memory; give a smaller "
				"--host-memory.");
	}
	return 0;
}

int jm_host_load_new(
	int threads, size_t bytes, uint64_t seed, struct jm_host_load **ret, struct jm_err *err)
{
	struct jm_host_load *load =
		calloc(1, sizeof(*load) + (size_t)threads * sizeof(load->thread[0]));

	if (!load)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the load on processors.");
	load->n = threads;
	load->n_words = bytes / sizeof(uint64_t) / (size_t)threads;
	fill(load, seed);
	*ret = load;
	return take_memory(load, err);
}

int jm_host_load_start(struct jm_host_load *load, struct jm_err *err)
{
	for (; load->running < load->n; load->running++) {
		struct jm_host_load_thread *t = &load->thread[load->running];

		t->load = load;
		if (pthread_create(&t->id, NULL, serve, t))
			return jm_err_set(err, JM_ENOMEM,
				"Only %d of %d threads of the load on processors can be started; "
				"use fewer.",
				load->running, load->n);
	}
	return 0;
}

bool jm_host_load_is_filled(const struct jm_host_load *load)
{
	for (int i = 0; i < load->n; i++)
		if (load->thread[i].filled < load->n_words)
			return false;
	return true;
}

int jm_host_load_check(const struct jm_host_load *load, struct jm_err *err)
{
	for (int i = 0; load && i < load->n; i++) {
		if (load->thread[i].changed)
			return jm_err_set(err, JM_ERANGE,
				"The host's memory does not hold what a processor wrote to it "
				"beside the device: the memory or the processor is faulty; do not "
				"trust its results.");
		if (load->thread[i].wrong)
			return jm_err_set(err, JM_ERANGE,
				"A product that a processor computed beside the device differs "
				"from the first one, though its operands are the same: the "
				"processor or its memory computes wrongly; do not trust its "
				"results.");
	}
	return 0;
}

void jm_host_load_free(struct jm_host_load *load)
{
	if (!load)
		return;
	load->stop = true;
	for (int i = 0; i < load->running; i++)
		pthread_join(load->thread[i].id, NULL);
	for (int i = 0; i < load->n; i++)
		free(load->thread[i].words);
	free(load);
}
