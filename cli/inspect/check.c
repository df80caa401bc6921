/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark check: how far the energy of each record can be trusted, and an exit status by that. */
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
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

static void name_of(const json_t *record, char *out, size_t size)
{
	const json_t *of_case = json_object_get(record, "case"), *word;
	const char *id = jm_json_text(of_case, "id"), *workload = jm_json_text(record, "workload");
	char name[160] = "";
	size_t i;

	*out = '\0';
	jm_text_append(name, sizeof(name), "", workload);
	if (!*workload)
		json_array_foreach(json_object_get(record, "command"), i, word) jm_text_append(name,
			sizeof(name), " ", json_is_string(word) ? json_string_value(word) : "?");
	jm_text_append(name, sizeof(name), " on ", jm_json_text(record, "device"));
	if (*id)
		snprintf(out, size, "%.8s repeat %lld: ", id,
			(long long)json_integer_value(json_object_get(of_case, "repeat")));
	jm_text_append(out, size, "", name);
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

struct check {
	struct jm_cli *cli;
	const struct call *call;
	const json_t *quality; /* of the record before; NULL = of none */
};

static const char *grade_of(const json_t *record)
{
	const char *grade = jm_json_text(json_object_get(record, "quality"), "grade");

	return *grade ? grade : "none";
}

static bool is_good(const struct check *c, const json_t *record)
{
	return !jm_metric_failed(record) && rank_of(grade_of(record)) <= c->call->least;
}

static bool has_reason(const json_t *quality, const json_t *reason)
{
	const json_t *other;
	size_t i;

	json_array_foreach(json_object_get(quality, "reasons"), i,
		other) if (json_equal(other, reason)) return true;
	return false;
}

/* Reasons that the record before has too are not repeated. */
static void print_reasons(struct check *c, const json_t *quality)
{
	bool more = false;
	const json_t *reason;
	size_t i;

	json_array_foreach(json_object_get(quality, "reasons"), i, reason)
	{
		bool again = has_reason(c->quality, reason);

		more = more || again;
		if (!again && json_is_string(reason))
			jm_text_wrap(c->cli->out, json_string_value(reason), 6, 8, c->cli->width);
	}
	if (more)
		jm_text_wrap(c->cli->out, "The other reasons are those of the record before.", 6, 8,
			c->cli->width);
	c->quality = quality;
}

static void print_record(struct check *c, const json_t *record)
{
	bool failed = jm_metric_failed(record);
	FILE *f = c->cli->out;
	char name[240];

	name_of(record, name, sizeof(name));
	fprintf(f, "%s  ", is_good(c, record) ? "pass" : "FAIL");
	jm_text_wrap_on(f, name, 6, 8, c->cli->width);
	fprintf(f, "      grade %s%s\n", grade_of(record), failed ? ", the run failed" : "");
	if (failed && *jm_json_text(record, "reason"))
		jm_text_wrap(f, jm_json_text(record, "reason"), 6, 8, c->cli->width);
	print_reasons(c, json_object_get(record, "quality"));
	if (c->call->rules)
		print_rules(record, f, c->cli->width);
}

static json_t *record_json(const struct check *c, const json_t *record)
{
	const json_t *of_case = json_object_get(record, "case");
	const json_t *quality = json_object_get(record, "quality");
	json_t *json = json_object();

	jm_json_set(&json, "id", json_incref(json_object_get(of_case, "id")));
	jm_json_set(&json, "repeat", json_incref(json_object_get(of_case, "repeat")));
	jm_json_set_bool(&json, "passed", is_good(c, record));
	jm_json_set_bool(&json, "failed", jm_metric_failed(record));
	jm_json_set_text(&json, "grade", grade_of(record));
	jm_json_set(&json, "reasons", json_incref(json_object_get(quality, "reasons")));
	if (c->call->rules)
		jm_json_set(&json, "rules", jm_power_rules(record));
	return json;
}

static size_t count_good(const struct check *c, const json_t *records)
{
	const json_t *record;
	size_t n = 0, i;

	json_array_foreach(records, i, record) n += is_good(c, record);
	return n;
}

static int put_json(const struct check *c, const json_t *records)
{
	json_t *all = json_array(), *record;
	size_t i;

	json_array_foreach(records, i, record) json_array_append_new(all, record_json(c, record));
	return jm_json_put(c->cli, all);
}

static void print_all(struct check *c, const json_t *records)
{
	size_t n = json_array_size(records), i;
	const json_t *record;
	char text[120];

	json_array_foreach(records, i, record) print_record(c, record);
	if (c->call->rules)
		print_not_judged(c->cli->out, c->cli->width);
	snprintf(text, sizeof(text), "%zu of %zu records have grade %s or better and did not fail.",
		count_good(c, records), n, grades[c->call->least]);
	fputs(n ? "\n" : "", c->cli->out);
	jm_text_wrap(c->cli->out, text, 0, 2, c->cli->width);
}

static int check_all(struct jm_cli *cli, const struct call *call, const struct jm_record_input *in)
{
	struct check c = {.cli = cli, .call = call};

	if (!jm_json_wanted(cli))
		print_all(&c, in->records);
	else if (put_json(&c, in->records))
		return jm_cli_fail(cli);
	return count_good(&c, in->records) < json_array_size(in->records) || in->n_damaged ? 1 : 0;
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
	JM_JSON_OPTION,
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
		   "joulemark check --rules --at-least B record.json\n"
		   "joulemark check --json sweep.db | jq '.[] | select(.passed | not) | .id'",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = run,
};
