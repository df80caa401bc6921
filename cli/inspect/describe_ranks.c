/* SPDX-License-Identifier: Apache-2.0 */
#include "describe_ranks.h"
#include "describe_several.h"
#include "base/process/cpu_list.h"
#include "base/text/json.h"
#include "engine/run/pipeline.h"
#include "engine/run/reduce_bytes.h"

#include <string.h>

/* Bytes that a rank sends in a step, if each exchange goes round a ring of its ranks. */
struct sent {
	/* between ranks of a model, or of a stage; between stages; between models */
	double tp, pp, dp;
};

static struct sent sent(const struct describe_plan *plan)
{
	struct jm_reduce_bytes bytes = jm_reduce_bytes(plan->program);
	double tp = jm_graph_tp(plan->graph), dp = jm_graph_ranks(plan->graph);
	double sums = plan->graph->shard ? 1 : 2; /* a reduce-scatter is half of an all-reduce */

	return (struct sent){.tp = 2 * (tp - 1) / tp * bytes.shared,
		.pp = jm_pipeline_sent(plan->program),
		.dp = (dp - 1) / dp * (sums * bytes.summed + bytes.gathered)};
}

static bool is_several(const struct describe_plan *plan)
{
	return describe_ranks_n(plan) > 1;
}

/* Plans a stage; it is kept if it needs more memory than those before it. */
static int plan_stage(struct describe_plan *plan, int stage, struct jm_err *err)
{
	struct jm_graph *graph = NULL;
	struct jm_program *program = NULL;
	bool most;
	int code;

	plan->training.stage = stage;
	code = jm_model_train(&plan->training, &graph, err);
	if (!code)
		code = jm_program_plan(graph, &plan->device, &program, err);
	if (!code) {
		plan->flops_model += program->flops_model;
		plan->flops_executed += program->flops_executed;
		plan->bytes += program->bytes;
	}
	most = !code && (!plan->program || program->peak_bytes > plan->program->peak_bytes);
	jm_program_free(most ? plan->program : program);
	jm_graph_free(most ? plan->graph : graph);
	if (most) {
		plan->program = program;
		plan->graph = graph;
	}
	return code;
}

int describe_ranks_threads(const struct describe_plan *plan)
{
	return is_several(plan) ? jm_cpus_share(describe_ranks_n(plan)) : 0;
}

int describe_ranks_plan(struct describe_plan *plan, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < plan->training.pp && !code; i++)
		code = plan_stage(plan, i, err);
	return code;
}

int describe_ranks_check(const struct describe_plan *plan, struct jm_err *err)
{
	if (plan->training.sp && plan->training.dropout > 0)
		return jm_err_set(err, JM_EUSAGE,
			"--sequence-parallel does not go with --dropout; omit one of them.");
	if (plan->training.chunks > 1 && plan->training.pp < 2)
		return jm_err_set(err, JM_EUSAGE,
			"--pp-chunks %d needs --pp of at least 2; give it, or omit --pp-chunks.",
			plan->training.chunks);
	if (plan->training.last_blocks && plan->training.pp < 2)
		return jm_err_set(err, JM_EUSAGE,
			"--pp-last %d needs --pp of at least 2; give it, or omit --pp-last.",
			plan->training.last_blocks);
	if (!is_several(plan) || (!plan->serve.on && !plan->power.store))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--tp, --pp and --dp plan a training by several ranks, which --%s does not know; "
		"omit "
		"one of them.",
		plan->serve.on ? "serve" : "power");
}

void describe_ranks_print(const struct describe_plan *plan, FILE *out)
{
	const struct jm_training *t = &plan->training;
	struct sent s = sent(plan);

	if (t->sp && t->tp < 2)
		fprintf(out, "--sequence-parallel has no effect with --tp 1\n");
	if (!is_several(plan))
		return;
	fprintf(out, "one of %d ranks (tp %d, pp %d, dp %d)", describe_ranks_n(plan), t->tp, t->pp,
		t->ranks);
	if (t->pp > 1)
		fprintf(out, ", of stage %d, which needs most", plan->graph->stage + 1);
	fprintf(out, ": memory above; sent in a step, round rings:\n");
	if (t->tp > 1)
		describe_print(out, "between ranks of a model", s.tp, "B");
	if (t->pp > 1)
		describe_print(out, "to other stages", s.pp, "B");
	if (t->ranks > 1)
		describe_print(out, "between models", s.dp, "B");
	if (t->pp > 1)
		fprintf(out,
			"blocks of the last part, which computes the loss, too: %d of %d\n"
			"bubble: %.3g of a step, if stages are equally fast\n",
			plan->graph->last_blocks, plan->graph->n_blocks,
			jm_pipe_bubble(&plan->program->stage.pipe));
}

void describe_ranks_json(const struct describe_plan *plan, json_t *o)
{
	const struct jm_training *t = &plan->training;
	struct sent s = sent(plan);
	json_t *ranks;

	if (!is_several(plan))
		return;
	ranks = json_object();
	jm_json_set_int(&ranks, "n", describe_ranks_n(plan));
	jm_json_set_int(&ranks, "tp", t->tp);
	jm_json_set_int(&ranks, "dp", t->ranks);
	jm_json_set_number(&ranks, "tp_sent_bytes_per_step", s.tp);
	jm_json_set_number(&ranks, "dp_sent_bytes_per_step", s.dp);
	jm_json_set_int(&ranks, "pp", t->pp);
	if (t->pp > 1) {
		jm_json_set_int(&ranks, "pp_chunks", t->chunks);
		jm_json_set_int(&ranks, "pp_last", plan->graph->last_blocks);
		jm_json_set_int(&ranks, "stage", plan->graph->stage);
		jm_json_set_number(&ranks, "pp_sent_bytes_per_step", s.pp);
		jm_json_set_number(&ranks, "bubble", jm_pipe_bubble(&plan->program->stage.pipe));
	}
	json_object_set_new(o, "ranks", ranks);
}
