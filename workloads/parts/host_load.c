/* SPDX-License-Identifier: Apache-2.0 */
#include "host_load.h"

#include <stdlib.h>
#include <string.h>

#include "engine/graph/rng.h"

#define SIDE JM_HOST_LOAD_SIDE

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

static void *serve(void *arg)
{
	struct jm_host_load_thread *t = arg;
	struct jm_host_load *load = t->load;

	while (!load->stop) {
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

int jm_host_load_new(int threads, uint64_t seed, struct jm_host_load **ret, struct jm_err *err)
{
	struct jm_host_load *load =
		calloc(1, sizeof(*load) + (size_t)threads * sizeof(load->thread[0]));

	if (!load)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the load on processors.");
	load->n = threads;
	fill(load, seed);
	*ret = load;
	return 0;
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

int jm_host_load_check(const struct jm_host_load *load, struct jm_err *err)
{
	for (int i = 0; load && i < load->n; i++)
		if (load->thread[i].wrong)
			return jm_err_set(err, JM_ERANGE,
				"A product that a processor computed beside the device differs "
				"from the first one, though its operands are the same: the "
				"processor or its memory computes wrongly; do not trust its "
				"results.");
	return 0;
}

void jm_host_load_free(struct jm_host_load *load)
{
	if (!load)
		return;
	load->stop = true;
	for (int i = 0; i < load->running; i++)
		pthread_join(load->thread[i].id, NULL);
	free(load);
}
