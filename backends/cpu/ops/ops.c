/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the row of the tables of ops that runs a group of nodes. */
#include "backends/cpu/ops/ops.h"

static const struct cpu_op *const by_onednn[] = {&cpu_op_linear, &cpu_op_linear_dgrad,
	&cpu_op_linear_wgrad, &cpu_op_conv, &cpu_op_conv_dgrad, &cpu_op_conv_wgrad, &cpu_op_cast};

static bool covers(const struct cpu_op *op, const struct jm_node *const *node, int n)
{
	if (op->n_nodes != n)
		return false;
	for (int i = 0; i < n; i++) {
		if (op->cover[i] != node[i]->op)
			return false;
	}
	return true;
}

static const struct cpu_op *find_in(
	const struct cpu_op *table, const struct jm_node *const *node, int n)
{
	for (; table->n_nodes; table++)
		if (covers(table, node, n))
			return table;
	return NULL;
}

const struct cpu_op *cpu_op_find(const struct jm_node *const *node, int n)
{
	const struct cpu_op *const tables[] = {cpu_ops_image, cpu_ops_act, cpu_ops_norm,
		cpu_ops_quantize, cpu_ops_tokens, cpu_ops_update, cpu_ops_embed, cpu_ops_attention,
		cpu_ops_loss, cpu_ops_pages, cpu_ops_concat, cpu_ops_spectral, cpu_ops_noise};
	const struct cpu_op *found = NULL;

	for (size_t i = 0; i < sizeof by_onednn / sizeof *by_onednn; i++) {
		if (covers(by_onednn[i], node, n))
			return by_onednn[i];
	}
	for (size_t i = 0; !found && i < sizeof tables / sizeof *tables; i++)
		found = find_in(tables[i], node, n);
	return found;
}
