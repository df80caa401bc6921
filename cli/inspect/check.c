/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark check: how far the energy of each record can be trusted, and an exit status by that. */
#include "cli/frame/cli.h"
#include "base/text/json.h"
#include "base/printable.h"
#include "record_input.h"
#include "result/metric.h"
#include "result/power_rules.h"
#include "report/format/text.h"

#include <string.h>

static const char *const grades[] = {"A", "B", "C", "D", "none", NULL};

static int rank_of(const char *grade)
{
	int i = 0;

	while (grades[i] && strcmp(grades[i], grade) != 0)
		i++;
	return i;
}

struct call {
	int least; /* index in grades */
	bool rules;
};

static void print_name(const json_t *record, FILE *f)
{
	const json_t *of_case = json_object_get(record, "case"), *word;
	const char *id = jm_json_text(of_case, "id"), *workload = jm_json_text(record, "workload");
	char name[160] = "";
	size_t i;

	jm_text_append(name, sizeof(name), "", workload);
	if (!*workload)
		json_array_foreach(json_object_get(record, "command"), i, word) jm_text_append(name,
			sizeof(name), " ", json_is_string(word) ? json_string_value(word) : "?");
	jm_text_append(name, sizeof(name), " on ", jm_json_text(record, "device"));
	if (*id)
		fprintf(f, "%.8s repeat %lld: ", id,
			(long long)json_integer_value(json_object_get(of_case, "repeat")));
	fprintf(f, "%s", name);
}

static void print_list(const json_t *list, FILE *f, int width)
{
	const json_t *line;
	size_t i;

	json_array_foreach(list, i, line)
	{
		fprintf(f, "        - ");
		jm_text_wrap_on(f, json_string_value(line), 10, 10, width);
	}
}

/* The published rules that the meters satisfy; requirements that no meter can show are listed once,
 * after the last record. */
static void print_rules(const json_t *record, FILE *f, int width)
{
	json_t *all = jm_power_rules(record), *set;
	size_t i;

	json_array_foreach(all, i, set)
	{
		bool met = json_is_true(json_object_get(set, "met"));

		fprintf(f, "      %s: %s\n", jm_json_text(set, "rules"),
			met ? "what can be judged is satisfied" : "not satisfied");
		print_list(json_object_get(set, "missing"), f, width);
	}
	json_decref(all);
}

static void print_not_judged(FILE *f, int width)
{
	json_t *none = json_object(), *all = jm_power_rules(none), *set;
	size_t i;

	json_array_foreach(all, i, set)
	{
		fprintf(f, "\n%s, not judged from a record:\n", jm_json_text(set, "rules"));
		print_list(json_object_get(set, "not_judged"), f, width);
	}
	json_decref(all);
	json_decref(none);
}

/* Prints the record's grade and reasons; false = it is below the limit, or failed. */
static bool check_record(const json_t *record, int limit, FILE *f, int width)
{
	const json_t *quality = json_object_get(record, "quality"), *reason;
	const char *grade = jm_json_text(quality, "grade");
	bool failed = jm_metric_failed(record);
	bool good = !failed && rank_of(*grade ? grade : "none") <= limit;
	size_t i;

	fprintf(f, "%s  ", good ? "pass" : "FAIL");
	print_name(record, f);
	fprintf(f, "\n      grade %s%s\n", *grade ? grade : "none",
		failed ? ", the run failed" : "");
	if (failed && *jm_json_text(record, "reason"))
		jm_text_wrap(f, jm_json_text(record, "reason"), 6, 8, width);
	json_array_foreach(
		json_object_get(quality, "reasons"), i, reason) if (json_is_string(reason))
		jm_text_wrap(f, json_string_value(reason), 6, 8, width);
	return good;
}

static int check_all(struct jm_cli *cli, const struct call *call, const struct jm_record_input *in)
{
	size_t n = json_array_size(in->records), passed = 0, i;
	const json_t *record;

	json_array_foreach(in->records, i, record)
	{
		passed += check_record(record, call->least, cli->out, cli->width);
		if (call->rules)
			print_rules(record, cli->out, cli->width);
	}
	if (call->rules)
		print_not_judged(cli->out, cli->width);
	fprintf(cli->out, "%s%zu of %zu records have grade %s or better and did not fail.\n",
		n ? "\n" : "", passed, n, grades[call->least]);
	return passed < n || in->n_damaged ? 1 : 0;
}

static int run(struct jm_cli *cli)
{
	struct jm_record_input in;
	struct call call = {0};
	int rc, status;

	JM_FILL(&cli->values, &call);
	rc = jm_record_input_init(&in, call.rules, &cli->err);
	for (int i = 0; i < cli->n_args && !rc; i++)
		rc = jm_record_input_add(&in, cli->args[i], &cli->err);
	jm_record_input_warn(&in, "1");
	if (!rc && !json_array_size(in.records) && !in.n_damaged)
		rc = jm_err_set(&cli->err, JM_ENOENT,
			"There is no record to check in these files; 'joulemark run' and "
			"'joulemark measure' write records with --store and --json.");
	status = rc ? jm_cli_fail(cli) : check_all(cli, &call, &in);
	jm_record_input_done(&in);
	return status;
}

static const struct jm_option options[] = {
	{.name = "at-least",
		JM_BIND(JM_CHOICE, struct call, least),
		.choices = grades,
		.fallback = "C",
		.help = "the grade that every record must have: A is the best, none the worst "
			"(nothing was measured)"},
	{.name = "rules",
		JM_BIND(JM_FLAG, struct call, rules),
		.help = "also print whether the meters satisfy MLPerf's rules for power and the "
			"levels of the EE HPC WG (Green500), and what is missing"},
	{0},
};

const struct jm_command jm_command_check = {
	.name = "check",
	.summary = "list the quality of records, with an exit status by grade",
	.usage = "[options] STORE|RECORD.json...",
	.description = "Prints the grade of each record's energy and what prevents the next grade. "
		       "The exit status is 0 when every record has at least the wanted grade, else "
		       "1. It is also 1 for failed runs and damaged records.",
	.example = "joulemark check sweep.db\n"
		   "joulemark check --rules --at-least B record.json",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = run,
};
