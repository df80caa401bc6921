/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark compare: two sets of runs, and an exit status by what changed. */
#include "base/text/json.h"
#include "base/text/number.h"
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "compare_judge.h"
#include "compare_parts.h"
#include "compare_side.h"
#include "compare_systems.h"
#include "report/systems/compare_show.h"
#include "report/systems/systems.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that the filters select by; with an id or a reference the settings differ, too. */
static void list_ignored(const struct jm_given *g, const char **ret)
{
	int n = 0;

	for (int side = 0; side < 2; side++)
		for (int i = 0; i < g[side].filter.n; i++) {
			const char *name = g[side].filter.name[i];

			ret[n++] = name;
			if (!strcmp(name, "id") || !strcmp(name, "reference"))
				ret[n++] = "settings";
		}
	ret[n] = NULL;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int show(struct jm_cli *cli, const char *path, const struct jm_compare *c,
	const struct jm_compare_names *names)
{
	int rc = 0;

	if (!path || strcmp(path, "-") != 0)
		rc = jm_compare_print(c, names, cli->width, cli->out, &cli->err);
	return !path || rc ? rc : jm_json_put(cli, jm_compare_json(c, names));
}

static int compare(struct jm_cli *cli, struct jm_given *g, const struct jm_compare_call *call)
{
	const char *ignored[4 * JM_FILTERS_MAX + 1];
	struct jm_compare_side side[2];
	struct jm_compare_names names;
	struct jm_compare c;
	int rc = 0, status = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		rc = jm_given_read(cli->args[i], &g[i], &cli->err);
		side[i] = (struct jm_compare_side){g[i].kept, g[i].text, cli->args[i]};
	}
	if (rc)
		return jm_cli_fail(cli);
	list_ignored(g, ignored);
	rc = jm_compare_name_sides(side, &names, &cli->err);
	if (!rc)
		rc = jm_compare_make(side, ignored, &call->costs, &c, &cli->err);
	if (rc)
		return jm_cli_fail(cli);
	rc = show(cli, call->json, &c, &names);
	for (int i = 0; i < c.n; i++)
		status = jm_compare_worse(status,
			jm_conditions_judge(&call->conditions, c.row[i].title, c.row[i].line));
	jm_compare_done(&c);
	if (g[0].in.n_damaged + g[1].in.n_damaged)
		status = jm_compare_worse(status, JM_COMPARE_DAMAGED);
	return rc ? jm_cli_fail(cli) : status;
}

static int compare_two(struct jm_cli *cli, const struct jm_compare_call *call)
{
	struct jm_given g[2] = {0};
	int status = compare(cli, g, call);

	jm_given_done(&g[0]);
	jm_given_done(&g[1]);
	return status;
}

/* --purchase A,B */
static int parse_purchase(struct jm_cli *cli, struct jm_compare_call *call)
{
	struct jm_compare_costs *costs = &call->costs;
	char a[32];
	size_t n = call->purchase ? strcspn(call->purchase, ",") : 0;

	if (!call->purchase)
		return 0;
	snprintf(a, sizeof(a), "%.*s", (int)n, call->purchase);
	if (!call->purchase[n] || !jm_number_real(a, &costs->purchase[0]) ||
		!jm_number_real(call->purchase + n + 1, &costs->purchase[1]) ||
		!(costs->purchase[0] > 0) || !(costs->purchase[1] > 0))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--purchase takes two costs above 0, of the machines of A and B, such as "
			"250000,310000; not '%s'.",
			call->purchase);
	if (!costs->source)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--purchase needs --figures-from with the date and source of the costs, "
			"such "
			"as 'offers of 2026-01'.");
	return 0;
}

static int check_options(struct jm_cli *cli, const struct jm_compare_call *call)
{
	const struct jm_conditions *conditions = &call->conditions;

	if (conditions->by_estimate && !conditions->n)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--by-estimate changes how --fail-if decides; give --fail-if, too.");
	if (!call->systems && cli->n_args != 2)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"'compare' takes two sides, A and B; --systems and --published take any "
			"number "
			"of files.");
	for (int i = 0; i < conditions->n; i++)
		if (conditions->c[i].metric == JM_COMPARED_COST && !call->purchase)
			return jm_err_set(&cli->err, JM_EUSAGE,
				"'%s' needs the costs of the machines: give --purchase, too.",
				conditions->c[i].text);
	if (call->systems && call->purchase)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--purchase applies to two sides, A and B; omit it with --systems and "
			"--published.");
	if (!call->systems && call->sort_given)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--sort orders the table of --systems or --published; give one of these, "
			"too.");
	if (conditions->n && call->systems && !call->published)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--fail-if needs something to compare with: two sides, A and B, or "
			"--published.");
	return 0;
}

static int run(struct jm_cli *cli)
{
	struct jm_compare_call call = {0};
	char *copy;
	int rc, status;

	JM_FILL(&cli->values, &call);
	call.systems = call.systems || call.published;
	copy = call.fail_if ? strdup(call.fail_if) : NULL;
	rc = jm_conditions_parse(copy, &call.conditions, &cli->err);
	if (!rc)
		rc = check_options(cli, &call);
	if (!rc)
		rc = parse_purchase(cli, &call);
	if (rc)
		status = jm_cli_fail(cli);
	else if (call.systems)
		status = jm_compare_systems(cli, &call);
	else
		status = compare_two(cli, &call);
	free(copy);
	return status;
}

static const struct jm_option options[] = {
	{.name = "fail-if",
		JM_BIND(JM_TEXT, struct jm_compare_call, fail_if),
		.argument = "CONDITION,...",
		.help = "exit status 1 when B differs from A by more than this: 'energy>+2%', "
			"'time>0%', 'power<-5%'. A condition is met only when the whole 95 % "
			"interval is beyond the limit; the status is 3 when that cannot be "
			"decided"},
	{.name = "systems",
		JM_BIND(JM_FLAG, struct jm_compare_call, systems),
		.help = "one table for each work, with all systems and settings that the files "
			"hold, "
			"per device, with any number of files"},
	{.name = "published",
		JM_BIND(JM_FLAG, struct jm_compare_call, published),
		.help = "also the ratio of each system to the figures that papers report for the "
			"same network; --fail-if then uses these figures as A. Implies --systems"},
	{.name = "sort",
		JM_BIND(JM_CHOICE, struct jm_compare_call, sort),
		JM_GIVEN(struct jm_compare_call, sort_given),
		.choices = jm_system_metric_names,
		.fallback = "throughput",
		.help = "order of the rows of --systems and --published, the best first"},
	{.name = "by-estimate",
		JM_BIND(JM_FLAG, struct jm_compare_call, conditions.by_estimate),
		.help = "--fail-if uses the ratio and not its interval, so that one run of each "
			"side is enough; noise then sometimes fails a check"},
	{.name = "purchase",
		.heading = "Cost",
		JM_BIND(JM_TEXT, struct jm_compare_call, purchase),
		.argument = "A,B",
		.help = "what the machines of A and B cost, such as 250000,310000: compares the "
			"cost "
			"of a million items, each with its share of the purchase by time; "
			"--fail-if knows it as cost"},
	{.name = "years",
		JM_BIND(JM_REAL, struct jm_compare_call, costs.years),
		.needs = "purchase",
		.min = 0.1,
		.max = 100,
		.fallback = "5",
		.help = "for how long the machines are used, without a pause"},
	{.name = "price",
		JM_BIND(JM_REAL, struct jm_compare_call, costs.price),
		.needs = "purchase",
		.min = 0,
		.max = 1e6,
		.fallback = "0",
		.help = "price of a kWh, in the currency of the purchase: the cost includes "
			"electricity"},
	{.name = "pue",
		JM_BIND(JM_REAL, struct jm_compare_call, costs.pue),
		.needs = "price",
		.min = 1,
		.max = 10,
		.fallback = "1",
		.help = "power usage effectiveness, by which electricity is multiplied"},
	{.name = "currency",
		JM_BIND(JM_TEXT, struct jm_compare_call, costs.currency),
		.needs = "purchase",
		.help = "currency of the costs, such as EUR"},
	{.name = "figures-from",
		JM_BIND(JM_TEXT, struct jm_compare_call, costs.source),
		.needs = "purchase",
		.help = "date and source of the costs, which the comparison repeats"},
	{JM_JSON_ROW("write the comparison as JSON; without a file to standard output, in place of "
		     "the table"),
		.heading = "Output", JM_BIND(JM_TEXT, struct jm_compare_call, json),
		.takes_next = jm_json_next},
	{0},
};

const struct jm_command jm_command_compare = {
	.name = "compare",
	.summary =
		"compare runs, stores, machines or published figures, with an exit status for CI",
	.usage = "[options] A B|FILE...",
	.description =
		"Compares B with A: time per item, mean power and energy per item as ratios of "
		"geometric means with their 95 % interval and a test. A and B are stores or files "
		"of records. FILE:NAME=VALUE,... selects from a file by a setting, an option, id "
		"(its first digits are enough), repeat, block, reference, tags, or by the machine "
		"that the record describes: host, cpu, the version of a driver.\n\nCases are "
		"compared when their work, options and settings are equal; those that a filter "
		"selects may differ. Runs of one file that share their blocks are compared block "
		"by block (paired t test), others as independent ones (Welch's test). Simulated "
		"and measured runs, or energy of different origin, allow no "
		"conclusion. The head of each column names its side by what distinguishes the two: "
		"host, devices, file or filter. The drawing below a table shows the intervals of "
		"the changes on one scale.\n\n--purchase adds the cost per item: purchase and, "
		"with "
		"--price, electricity.\n\n--systems "
		"shows in one table all systems that did the same work. --published also divides "
		"them by what papers report: for each device in the papers it uses the row with "
		"the same power cap or batch, else the row with the highest cap.\n\nThe exit "
		"status is 0; with --fail-if 1 when a condition is met, else 3 when one cannot be "
		"decided. It is 4 when a damaged record was omitted and no condition is met.",
	.example = "joulemark compare before.db after.db --fail-if 'energy>+2%,time>+1%'\n"
		   "joulemark compare sweep.db:reference=yes sweep.db:gpu.power=300W\n"
		   "joulemark compare all.db:host=node1 all.db:host=node2\n"
		   "joulemark compare node1.db node2.db --purchase 250000,310000 \\\n"
		   "    --price 0.25 --currency EUR --figures-from 'offers, 2026-01'\n"
		   "joulemark compare --published --sort efficiency node1.db node2.db",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = run,
};
