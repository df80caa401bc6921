/* SPDX-License-Identifier: Apache-2.0 */
#include "describe_ranks.h"
#include "describe_several.h"
#include "engine/run/reduce.h"

/* Bytes that a rank sends in a step, if each exchange goes round a ring of its ranks. */
struct sent {
	double tp, dp; /* between ranks of a model; between models */
};

static struct sent sent(const struct describe_plan *plan)
{
	struct jm_reduce_cost cost = jm_reduce_cost(plan->program);
	double tp = jm_graph_tp(plan->graph), dp = jm_graph_ranks(plan->graph);
	double sums = plan->graph->shard ? 1 : 2; /* a reduce-scatter is half of an all-reduce */

	return (struct sent){.tp = 2 * (tp - 1) / tp * cost.shared,
		.dp = (dp - 1) / dp * (sums * cost.bytes + cost.gathered)};
}

static bool is_several(const struct describe_plan *plan)
{
	return plan->training.tp > 1 || plan->training.ranks > 1;
}

int describe_ranks_check(const struct describe_plan *plan, struct jm_err *err)
{
	if (plan->training.sp && plan->training.dropout > 0)
		return jm_err_set(err, JM_EUSAGE,
			"--sequence-parallel does not go with --dropout; omit one of them.");
	if (!is_several(plan) || (!plan->serve.on && !plan->power.store))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--tp and --dp plan a training by several ranks, which --%s does not know; omit "
		"one of them.",
		plan->serve.on ? "serve" : "power");
}

void describe_ranks_print(const struct describe_plan *plan, FILE *out)
{
	const struct jm_training *t = &plan->training;
	struct sent s = sent(plan);

	if (!is_several(plan))
		return;
	fprintf(out, "one of %d ranks (tp %d, dp %d): memory above; sent in a step, round rings:\n",
		t->tp * t->ranks, t->tp, t->ranks);
	if (t->tp > 1)
		describe_print(out, "between ranks of a model", s.tp, "B");
	if (t->ranks > 1)
		describe_print(out, "between models", s.dp, "B");
}

void describe_ranks_json(const struct describe_plan *plan, json_t *o)
{
	const struct jm_training *t = &plan->training;
	struct sent s = sent(plan);

	if (!is_several(plan))
		return;
	json_object_set_new(o, "ranks",
		json_pack("{s:i, s:i, s:i, s:f, s:f}", "n", t->tp * t->ranks, "tp", t->tp, "dp",
			t->ranks, "tp_sent_bytes_per_step", s.tp, "dp_sent_bytes_per_step", s.dp));
}
