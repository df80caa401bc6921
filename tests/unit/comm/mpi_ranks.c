/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_ranks: one rank of those that mpirun has started, of the contract of transport mpi, which a
 * process can open once. Ends with 0 if all results are right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/f16.h"
#include "kit/transfers.h"

#define MOST 600

static int of_mpirun(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : -1;
}

static bool transfers_of(struct transfer_rank *r, struct jm_comm *c, size_t n)
{
	bool right;

	r->n = n;
	transfers_make_room(r);
	right = !transfers_run(r, c) && transfers_are_right(r);
	if (!right)
		fprintf(stderr, "rank %d of %d, %zu elements: %s\n", c->rank, c->world, n,
			r->err.code ? r->err.text : "a result is wrong");
	free(r->sum);
	return right;
}

/* Small whole numbers, which all types hold. */
static double whole(int rank, int i)
{
	return i % 40 + rank;
}

static size_t put(enum jm_comm_type type, void *to, int i, double x)
{
	if (type == JM_COMM_F64)
		((double *)to)[i] = x;
	else if (type == JM_COMM_F32)
		((float *)to)[i] = (float)x;
	else
		((uint16_t *)to)[i] =
			type == JM_COMM_BF16 ? jm_bf16_set((float)x) : jm_f16_set((float)x);
	return jm_comm_type_bytes(type);
}

static bool sum_is_right(struct jm_comm *c, enum jm_comm_type type)
{
	double own[MOST], wanted[MOST];
	struct jm_err err = JM_ERR_INIT;
	const struct jm_transfer t = {
		.kind = JM_ALL_REDUCE, .type = type, .from = own, .to = own, .count = MOST};
	size_t size = 0;

	for (int i = 0; i < MOST; i++) {
		double sum = 0;

		for (int r = 0; r < c->world; r++)
			sum += whole(r, i);
		put(type, own, i, whole(c->rank, i));
		size = put(type, wanted, i, sum);
	}
	if (!jm_comm_run(c, &t, &err) && !memcmp(own, wanted, MOST * size))
		return true;
	fprintf(stderr, "rank %d: sum of type %d: %s\n", c->rank, (int)type,
		err.code ? err.text : "wrong");
	return false;
}

static bool bytes_are_not_added(struct jm_comm *c)
{
	char byte = 1;
	struct jm_err err = JM_ERR_INIT;
	const struct jm_transfer t = {.kind = JM_ALL_REDUCE,
		.type = JM_COMM_BYTE,
		.from = &byte,
		.to = &byte,
		.count = 1};

	return jm_comm_run(c, &t, &err) == JM_ENOSUP;
}

static bool all_is_right(struct transfer_rank *r, struct jm_comm *c)
{
	/* a piece has 1048576 elements */
	static const size_t counts[] = {0, 1, 9, 65537, 1048577};
	static const enum jm_comm_type types[] = {
		JM_COMM_F32, JM_COMM_F64, JM_COMM_BF16, JM_COMM_F16};
	bool right = true;

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts) && right; i++)
		right = transfers_of(r, c, counts[i]);
	for (size_t i = 0; i < sizeof(types) / sizeof(*types) && right; i++)
		right = sum_is_right(c, types[i]);
	return right && bytes_are_not_added(c);
}

int main(void)
{
	struct transfer_rank r = {.place = {.rank = of_mpirun("OMPI_COMM_WORLD_RANK"),
					  .world = of_mpirun("OMPI_COMM_WORLD_SIZE"),
					  .join_s = 60}};
	struct jm_comm c = {0};
	bool right = false;

	if (jm_comm_open("mpi", &r.place, &c, &r.err))
		fprintf(stderr, "%s\n", r.err.text);
	else
		right = all_is_right(&r, &c);
	jm_comm_close(&c);
	if (right && !r.place.rank)
		printf("%d ranks: all results are right\n", r.place.world);
	return !right;
}
