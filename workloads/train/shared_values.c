/* SPDX-License-Identifier: Apache-2.0 */
#include "shared_values.h"

#include <stdlib.h>
#include <string.h>

#include "engine/graph/tensor.h"
#include "engine/run/reduce.h"

/* Not cut, so that all ranks which have it have all of it; other stages have no memory for it. Of
 * one model in stages two ranks have only tables that are embedding and output in one. */
static bool is_shared(const struct train *s, const struct jm_cell *c)
{
	bool once = s->training.tp < 2 && s->work->world == s->training.pp;

	return c->t.class == JM_CLASS_PARAM && !c->origin && (c->needs_grad || c->frozen) &&
	       !c->cut.n && (!once || c->tied);
}

/* Never 0. */
static uint64_t digest(const char *data, size_t bytes)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325), word;

	for (size_t i = 0; i < bytes; i += sizeof(word)) {
		size_t n = bytes - i < sizeof(word) ? bytes - i : sizeof(word);

		word = 0;
		memcpy(&word, data + i, n);
		sum = (sum ^ word) * UINT64_C(0x100000001b3);
		sum ^= sum >> 29;
	}
	return sum | 1;
}

/* Of the own values; 0 = another stage has them. */
static int own_digest(struct train *s, const struct jm_tensor *t, uint64_t *ret, struct jm_err *err)
{
	size_t bytes = (size_t)jm_tensor_count(t) * jm_dtype_bytes(t->type);
	void *data;
	int code;

	*ret = 0;
	if (!t->data)
		return 0;
	data = malloc(bytes + 1);
	if (!data)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", t->name);
	code = jm_program_read(s->program, t, data, err);
	if (!code)
		*ret = digest(data, bytes);
	free(data);
	return code;
}

static int compare(struct train *s, const struct jm_tensor *t, struct jm_err *err)
{
	uint64_t own, all[JM_RANKS_MOST];
	const struct jm_transfer gather = {.kind = JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = &own,
		.to = all,
		.count = sizeof(own)};
	int code = own_digest(s, t, &own, err), first = -1;

	if (!code)
		code = jm_comm_run(&s->gang.control, &gather, err);
	for (int r = 0; r < s->work->world && !code; r++) {
		if (all[r] && first < 0)
			first = r;
		if (all[r] && all[r] != all[first])
			code = jm_err_set(err, JM_ERANGE,
				"Ranks %d and %d have other values of %s after step %ld, although "
				"both compute them alike: a device or a transfer is faulty, or "
				"they "
				"run other kernels (set JM_PLANS to one folder for all); run "
				"'joulemark selftest --device ...' on both.",
				first, r, t->name, s->begun);
	}
	return code;
}

int jm_shared_values_check(struct train *s, struct jm_err *err)
{
	int code;

	if (s->training.tp * s->training.pp < 2)
		return 0;
	code = s->graph->shard ? jm_reduce_gather(s->program, err) : 0;
	for (int i = 0; i < s->graph->n_cells && !code; i++)
		if (is_shared(s, s->graph->cell[i]))
			code = compare(s, &s->graph->cell[i]->t, err);
	return code;
}
