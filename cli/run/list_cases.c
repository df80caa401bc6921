/* SPDX-License-Identifier: Apache-2.0 */
#include "list_cases.h"
#include "report/format/text.h"
#include "run_show.h"
#include "run_affinity.h"

#include <stdlib.h>
#include <string.h>

static void print_case(const struct jm_run_call *r, const struct jm_plan *plan,
	const json_t *varying, const struct jm_plan_case *c)
{
	char label[512], line[600];

	jm_run_case_label(varying, c, label, sizeof(label));
	if (!*label)
		jm_run_case_work(c, label, sizeof(label));
	snprintf(line, sizeof(line), "%.*s%s%s", plan->prefix, c->id, *label ? "  " : "", label);
	jm_text_wrap(r->cli->out, line, 2, 4 + plan->prefix, r->cli->width);
}

static int print_plan(const struct jm_run_call *r, const struct jm_planned *p)
{
	int *order = calloc((size_t)p->plan.n + 1, sizeof(*order));
	const char *launcher = r->given.launcher; /* NULL: the command 'plan' */
	char name[JM_PLAN_NAME + 1];
	json_t *varying;

	if (!order)
		return jm_err_set(&r->cli->err, JM_ENOMEM, "Out of memory for the list of cases.");
	jm_text_format(name, sizeof(name), "%s", p->run ? p->run->name : "");
	fprintf(r->cli->out, "%s%s%d case%s, %s%d time%s\n", name, p->run ? ": " : "", p->plan.n,
		p->plan.n == 1 ? "" : "s", p->plan.until > 0 ? "up to " : "", p->plan.repeat,
		p->plan.repeat == 1 ? "" : "s");
	jm_plan_order(&p->plan, 0, order);
	varying = jm_run_varying(&p->plan);
	for (int i = 0; i < p->plan.n; i++)
		print_case(r, &p->plan, varying, &p->plan.cases[order[i]]);
	json_decref(varying);
	free(order);
	if (launcher && strcmp(launcher, "local") != 0)
		return 0; /* each host decides */
	return jm_run_affinity_show(r->cli, &p->plan);
}

int jm_list_cases(struct jm_run_call *r)
{
	int rc = 0;

	for (int i = 0; i < r->n && !rc; i++)
		rc = print_plan(r, &r->planned[i]);
	return rc;
}
