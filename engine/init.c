/* SPDX-License-Identifier: Apache-2.0 */
/* Start values of parameters: counters, not state, so that they depend on seed and place alone. */
#include "program.h"

#include <math.h>
#include <stdlib.h>

#include "rng.h"
#include "tensor.h"

/* Two normal values from one counter (Box and Muller, 1958). */
static void normal_pair(uint64_t seed, uint64_t counter, float std, float *ret)
{
	uint64_t bits = jm_rng(seed, counter);
	float u = ((float)(bits >> 40) + 1) * 0x1p-24f; /* (0, 1] */
	float angle = (float)(bits & 0xffffff) * (0x1p-24f * 6.28318530718f);
	float radius = std * sqrtf(-2 * logf(u)), sine, cosine;

	sincosf(angle, &sine, &cosine);
	ret[0] = radius * cosine;
	ret[1] = radius * sine;
}

static void fill(const struct jm_cell *c, uint64_t seed, void *data)
{
	int64_t n = jm_tensor_count(&c->t);
	float pair[2] = {0, 0};

	if (c->init == JM_INIT_ONE)
		pair[0] = pair[1] = 1;
	for (int64_t i = 0; i < n; i++) {
		if (c->init == JM_INIT_NORMAL && !(i & 1))
			normal_pair(seed, (uint64_t)i / 2, (float)c->init_std, pair);
		jm_element_set(c->t.type, data, i, (double)pair[i & 1]);
	}
}

int jm_program_init(struct jm_program *p, uint64_t seed, struct jm_err *err)
{
	uint64_t n = 0; /* parameters so far: other tensors must not shift the values */
	int code = 0;

	for (int i = 0; i < p->graph->n_cells && !code; i++) {
		struct jm_cell *c = p->graph->cell[i];
		void *data;

		if (!c->t.data || (c->t.class != JM_CLASS_STATE &&
					  (c->t.class != JM_CLASS_PARAM || !c->needs_grad)))
			continue;
		data = malloc(c->t.bytes);
		if (!data)
			return jm_err_set(
				err, JM_ENOMEM, "Out of memory for start values of %s.", c->t.name);
		fill(c, jm_rng(seed, n), data);
		n += c->t.class == JM_CLASS_PARAM;
		code = jm_program_write(p, &c->t, data, err);
		free(data);
	}
	return code;
}
