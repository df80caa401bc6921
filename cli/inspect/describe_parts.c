/* SPDX-License-Identifier: Apache-2.0 */
#include "describe_parts.h"
#include "describe_several.h"

#include <stdio.h>
#include <string.h>

#include "report/format/text.h"

struct part {
	char name[32];
	int64_t parameters, trained;
	size_t bytes; /* of the parameters */
};

/* A part's names begin with its prefix, such as "vae.". */
static struct part count(const struct describe_plan *plan, const char *prefix)
{
	struct part part = {.parameters = 0};
	size_t n = strlen(prefix);

	snprintf(part.name, sizeof(part.name), "%.*s", (int)n - 1, prefix);
	for (int i = 0; i < plan->graph->n_cells; i++) {
		const struct jm_cell *c = plan->graph->cell[i];
		int64_t own = jm_cell_parameters(plan->graph, c);

		/* what is neither trained nor frozen is a copy of a parameter */
		if (c->t.class != JM_CLASS_PARAM || (!c->needs_grad && !c->frozen) ||
			strncmp(c->t.name, prefix, n) != 0)
			continue;
		part.parameters += own;
		part.trained += c->needs_grad ? own : 0;
		part.bytes += c->t.bytes;
	}
	return part;
}

static const struct jm_weight_group *parts_of(const struct describe_plan *plan)
{
	static const struct jm_weight_group none[] = {{0}};
	const struct jm_weight_names *names = plan->training.model->weights;

	return names && names->group ? names->group : none;
}

void describe_parts_print(const struct describe_plan *plan, FILE *out)
{
	const struct jm_weight_group *g = parts_of(plan);

	if (g->own)
		fprintf(out, "parts:\n");
	for (; g->own; g++) {
		const struct part part = count(plan, g->own);
		char number[40], suffix[DESCRIBE_SUFFIX];
		double size = describe_scale((double)part.bytes, "B", suffix);

		snprintf(number, sizeof(number), "%lld", (long long)part.parameters);
		jm_text_apart(number, sizeof(number));
		fprintf(out, "  %-22s %14s parameters in %.4g %s, %s\n", part.name, number, size,
			suffix,
			!part.trained			  ? "frozen"
			: part.trained == part.parameters ? "trained"
							  : "trained in part");
	}
}

json_t *describe_parts_json(const struct describe_plan *plan)
{
	json_t *list = json_array();

	for (const struct jm_weight_group *g = parts_of(plan); g->own; g++) {
		const struct part part = count(plan, g->own);

		json_array_append_new(
			list, json_pack("{s:s, s:I, s:I, s:I}", "part", part.name, "parameters",
				      (json_int_t)part.parameters, "trained",
				      (json_int_t)part.trained, "bytes", (json_int_t)part.bytes));
	}
	return list;
}
