/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters, moments and means of ranks with a sharded update: what is written as wholes lies
 * where the update looks for it, also of filters that have channels last, and rank 0 reads the same
 * values again. Threads act as ranks.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/graph/shard_update.h"
#include "engine/graph/tensor.h"
#include "kit/engine_kit.h"
#include "kit/test.h"
#include "workloads/parts/whole_tensor.h"

static const char *const model[] = {
	"resnet", "layers=10", "hidden=4", "image=32", "classes=5", NULL};
static const struct jm_layout last = {.rank = 4, .order = {0, 2, 3, 1}};

struct rank {
	struct jm_comm_place place;
	struct jm_device device;
	struct jm_program *p;
	struct jm_whole_item *item;
	int n, rc;
	struct jm_err err;
	int64_t wrong, compared;
};

/* Exact in bf16. */
static double value(int item, int64_t i)
{
	return (double)((item * 37 + i * 11) % 251) - 100;
}

static void list(struct rank *r)
{
	const struct jm_graph *g = r->p->graph;

	r->item = calloc((size_t)g->n_cells * JM_KEPT_COUNT, sizeof(*r->item));
	for (int i = 0; i < g->n_cells; i++)
		for (enum jm_kept k = 0; k < JM_KEPT_COUNT && jm_update_trains(g->cell[i]); k++)
			r->item[r->n++] = (struct jm_whole_item){
				.t = k ? jm_update_kept(g, g->cell[i], k) : g->cell[i]->t,
				.cell = g->cell[i],
				.kept = k};
}

static void turn_filters(const struct rank *r)
{
	const struct jm_graph *g = r->p->graph;

	for (int i = 0; i < g->n_cells; i++)
		if (jm_update_trains(g->cell[i]) && g->cell[i]->t.rank == 4) {
			g->cell[i]->t.layout = last;
			if (g->cell[i]->copy && g->cell[i]->copy->class == JM_CLASS_PARAM)
				g->cell[i]->copy->layout = last;
		}
}

/* In pieces of a prime number of elements where that is allowed. */
static int64_t piece_of(const struct jm_whole *w, int i)
{
	return w->item[i].t.layout.rank ? jm_whole_count(w, i) : 29;
}

static int write_all(const struct jm_whole *w, int n, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < n && !code; i++) {
		int64_t all = jm_whole_count(w, i), piece = piece_of(w, i);
		float *data = calloc((size_t)piece, sizeof(*data));

		for (int64_t at = 0; at < all && !code; at += piece) {
			int64_t count = all - at < piece ? all - at : piece;

			for (int64_t k = 0; k < count; k++)
				data[k] = (float)value(i, at + k);
			if (jm_whole_has(w, i, at, count))
				code = jm_whole_write(w, i, at, count, data, err);
		}
		free(data);
	}
	return code;
}

static int read_all(struct rank *r, const struct jm_whole *w)
{
	int code = 0;

	for (int i = 0; i < r->n && !code; i++) {
		int64_t all = jm_whole_count(w, i), piece = piece_of(w, i);
		float *data = calloc((size_t)piece, sizeof(*data));

		for (int64_t at = 0; at < all && !code; at += piece) {
			int64_t count = all - at < piece ? all - at : piece;

			code = jm_whole_read(w, i, at, count, data, &r->err);
			for (int64_t k = 0; k < count && !code; k++)
				r->wrong += data[k] != (float)value(i, at + k);
			r->compared += count;
		}
		free(data);
	}
	return code ? code : jm_whole_end(w, &r->err);
}

/* The place of element i in memory. */
static int64_t laid(const struct jm_tensor *t, int64_t i)
{
	int64_t inner = t->rank == 4 ? t->dim[2] * t->dim[3] : 1, channels = t->dim[1];

	if (t->rank != 4)
		return i;
	return i / (inner * channels) * inner * channels + i % inner * channels +
	       i / inner % channels;
}

/* Looks at each element of what the update keeps where the update has it. */
static void look(struct rank *r, int world)
{
	const struct jm_graph *g = r->p->graph;

	for (int i = 0; i < r->n; i++) {
		const struct jm_whole_item *item = &r->item[i];
		int64_t first = (int64_t)(item->cell->slab_offset / sizeof(float));

		for (int64_t k = 0; k < jm_tensor_count(&item->t); k++) {
			int64_t at = first + laid(&item->t, k), own;
			const float *data = item->cell->slab->data;
			int s = 0;

			while (at >= g->shard->segment[s].from + g->shard->segment[s].n)
				s++;
			own = at - g->shard->segment[s].from;
			if (item->kept) {
				own -= g->shard->segment[s].n / world * r->place.rank;
				if (own < 0 || own >= g->shard->segment[s].n / world)
					continue;
				data = g->shard->segment[s].kept[item->kept]->data;
			}
			r->wrong += data[item->kept ? own : at] != (float)value(i, k);
			r->compared++;
		}
		if (!item->kept && item->cell->copy && item->cell->copy->class == JM_CLASS_PARAM)
			for (int64_t k = 0; k < jm_tensor_count(&item->t); k++, r->compared++)
				r->wrong += jm_element_get(item->cell->copy->type,
						    item->cell->copy->data,
						    laid(&item->t, k)) != value(i, k);
	}
}

static void *be_rank(void *arg)
{
	struct rank *r = arg;
	struct jm_comm c = {0};
	struct jm_whole w = {.p = r->p, .comm = &c};

	r->rc = jm_comm_open("local", &r->place, &c, &r->err);
	turn_filters(r);
	list(r);
	w.item = r->item;
	if (!r->rc)
		r->rc = write_all(&w, r->n, &r->err);
	if (!r->rc)
		look(r, r->place.world);
	if (!r->rc)
		r->rc = r->place.rank ? jm_whole_answer(&w, &r->err) : read_all(r, &w);
	jm_comm_close(&c);
	free(r->item);
	return NULL;
}

static void start(struct rank *r, int rank, int world, enum jm_update kind, int fd)
{
	const struct jm_training how = {.batch = 2,
		.precision = JM_BF16,
		.ranks = world,
		.rank = rank,
		.shards_update = true,
		.bucket_bytes = 3000,
		.adamw = {.kind = kind, .average = 0.9}};

	*r = (struct rank){.place = {.rank = rank, .world = world, .fd = fd}, .err = JM_ERR_INIT};
	assert_ok(jm_device_open("ref", 1, &r->device, &r->err), r->err);
	r->p = kit_plan(model, &how, &r->device);
	assert_true(r->p->graph->shard->n > 3);
	assert_ok(jm_program_build(r->p, &r->err), r->err);
}

static void shares_lie_where_the_update_has_them(void **state)
{
	(void)state;
	for (int world = 2; world < 4; world++)
		for (enum jm_update kind = JM_UPDATE_ADAMW; kind <= JM_UPDATE_ADAM; kind++) {
			int fd = memfd_create("gang", MFD_CLOEXEC);
			struct rank rank[3];
			pthread_t thread[3];

			for (int i = 0; i < world; i++)
				start(&rank[i], i, world, kind, fd);
			for (int i = 0; i < world; i++)
				assert_int_equal(
					pthread_create(&thread[i], NULL, be_rank, &rank[i]), 0);
			for (int i = 0; i < world; i++) {
				pthread_join(thread[i], NULL);
				assert_ok(rank[i].rc, rank[i].err);
				assert_int_equal(rank[i].wrong, 0);
				assert_in_range(rank[i].compared, 10000, 10000000);
				kit_plan_free(rank[i].p);
				jm_device_close(&rank[i].device);
			}
			close(fd);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_lie_where_the_update_has_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
