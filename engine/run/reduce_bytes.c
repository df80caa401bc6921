/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_bytes.h"
#include "engine/plan/bucket.h"

/* A gather, a broadcast, or a sum of which each rank receives a part, is half of a sum. */
static double shared_bytes(const struct jm_node *n)
{
	if (n->op == JM_OP_SUM_RANKS)
		return (double)n->in[0]->bytes;
	if (!jm_reduce_is_shared(n) || n->op == JM_OP_OWN_ROWS)
		return 0;
	return 0.5 * (double)(n->op == JM_OP_SUM_ROWS ? n->in[0]->bytes : n->out[0]->bytes);
}

struct jm_reduce_bytes jm_reduce_bytes(const struct jm_program *p)
{
	struct jm_reduce_bytes sum = {0};

	for (int i = 0; i < p->n_units; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		if (jm_reduce_is_start(p->unit[i])) {
			sum.buckets++;
			sum.summed += (double)n->in[0]->bytes;
		} else if (jm_reduce_is_gather(p->unit[i])) {
			sum.gathered += (double)n->out[0]->bytes;
		} else {
			sum.shared += shared_bytes(n) * jm_program_times(p, i);
		}
	}
	return sum;
}
