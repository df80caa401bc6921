/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark compare: two sets of runs, and an exit status by what changed. */
#include "cli.h"
#include "base/json.h"
#include "base/number.h"
#include "base/output.h"
#include "record_input.h"
#include "report/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_MET       1
#define EXIT_UNDECIDED 3
#define FILTERS_MAX    16
#define CONDITIONS_MAX 8

/* FILE:NAME=VALUE,... */
struct filter {
	char *name[FILTERS_MAX + 1], *value[FILTERS_MAX];
	int n;
};

struct given {
	char *text; /* owned, cut into pieces */
	struct filter filter;
	struct jm_record_input in;
	json_t *kept;
};

/* "energy>+2%" */
struct condition {
	const char *text;
	enum jm_compared metric;
	bool above;
	double ratio;
};

/* ---- sides ----------------------------------------------------------------------------------------------- */

static int parse_filter(char *text, struct filter *f, struct jm_err *err)
{
	char *rest = text, *one;

	while ((one = strsep(&rest, ","))) {
		char *equals = strchr(one, '=');

		if (!equals || equals == one || !equals[1])
			return jm_err_set(err, JM_EUSAGE,
				"A filter is NAME=VALUE, such as gpu.power=300W or id=4f2a; '%s' "
				"is not one.",
				one);
		if (f->n == FILTERS_MAX)
			return jm_err_set(
				err, JM_EUSAGE, "A filter takes at most %d names.", FILTERS_MAX);
		*equals = '\0';
		f->name[f->n] = one;
		f->value[f->n++] = equals + 1;
	}
	return 0;
}

/* A file of that very name is meant as it is. The filter begins behind the last colon before the first '='. */
static int parse_side(const char *text, struct given *g, struct jm_err *err)
{
	char *equals, *colon;

	g->text = strdup(text);
	if (!g->text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the name of a file.");
	equals = strchr(g->text, '=');
	colon = equals ? memrchr(g->text, ':', (size_t)(equals - g->text)) : NULL;
	if (!colon || !access(text, F_OK))
		return 0;
	*colon = '\0';
	return parse_filter(colon + 1, &g->filter, err);
}

/* The first value of that name at any depth; NULL = there is none. */
static const json_t *find(const json_t *object, const char *name)
{
	const json_t *value, *found;
	size_t n = strlen(name);
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		if (!json_is_object(value) && !strncmp(key, name, n) && (!key[n] || key[n] == '@'))
			return value;
		found = json_is_object(value) ? find(value, name) : NULL;
		if (found)
			return found;
	}
	return NULL;
}

static bool has_value(const json_t *is, const char *wanted)
{
	double number;

	if (json_is_string(is))
		return !strcmp(json_string_value(is), wanted);
	if (json_is_number(is))
		return jm_number_real(wanted, &number) && number == json_number_value(is);
	return json_is_boolean(is) && !strcmp(json_is_true(is) ? "yes" : "no", wanted);
}

static bool passes(const json_t *record, const struct filter *f)
{
	const json_t *of_case = json_object_get(record, "case");

	for (int i = 0; i < f->n; i++) {
		const char *id = jm_json_text(record, "id");
		const json_t *value = json_object_get(of_case, f->name[i]);

		if (!strcmp(f->name[i], "id")) {
			if (!*id || strncmp(id, f->value[i], strlen(f->value[i])) != 0)
				return false;
			continue;
		}
		if (!value)
			value = find(json_object_get(of_case, "parameters"), f->name[i]);
		if (!value)
			value = json_object_get(record, f->name[i]);
		if (!has_value(value, f->value[i]))
			return false;
	}
	return true;
}

static int read_side(const char *text, struct given *g, struct jm_err *err)
{
	const json_t *record;
	size_t i;
	int rc = parse_side(text, g, err);

	if (!rc)
		rc = jm_record_input_init(&g->in, false, err);
	if (!rc)
		rc = jm_record_input_add(&g->in, g->text, err);
	if (rc)
		return rc;
	jm_record_input_warn(&g->in);
	g->kept = json_array();
	json_array_foreach(g->in.records, i, record) if (passes(record, &g->filter))
		json_array_append(g->kept, (json_t *)record);
	if (!json_array_size(g->kept))
		return jm_err_set(err, JM_ENOENT, "%s selects no record of %zu.", text,
			json_array_size(g->in.records));
	return 0;
}

static void given_done(struct given *g)
{
	json_decref(g->kept);
	if (g->in.records)
		jm_record_input_done(&g->in);
	free(g->text);
}

/* Names that the filters select by; with an id or a reference the settings differ, too. */
static void list_ignored(const struct given *g, const char **ret)
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

/* ---- conditions ------------------------------------------------------------------------------------------ */

static int parse_condition(const char *text, struct condition *ret, struct jm_err *err)
{
	size_t n = strcspn(text, "<>"), digits;
	char number[32];
	double percent;
	int metric = 0;

	while (jm_compared_names[metric] &&
		(strlen(jm_compared_names[metric]) != n ||
			strncmp(jm_compared_names[metric], text, n) != 0))
		metric++;
	if (text[n])
		snprintf(number, sizeof(number), "%s", text + n + 1 + (text[n + 1] == '+'));
	digits = text[n] ? strlen(number) : 0;
	if (!jm_compared_names[metric] || !digits || number[digits - 1] != '%')
		goto wrong;
	number[digits - 1] = '\0';
	if (!jm_number_real(number, &percent) || !(percent > -100) || !(percent < 1e6))
		goto wrong;
	*ret = (struct condition){
		text, (enum jm_compared)metric, text[n] == '>', 1 + percent / 100};
	return 0;
wrong:
	return jm_err_set(err, JM_EUSAGE,
		"--fail-if takes time, power or energy, > or <, and a change of B against A in "
		"percent, such as 'energy>+2%%'; '%s' is not that.",
		text);
}

static int parse_conditions(char *text, struct condition *c, int *ret_n, struct jm_err *err)
{
	char *one, *rest = text;
	int rc = 0;

	*ret_n = 0;
	while (!rc && rest && (one = strsep(&rest, ","))) {
		if (*ret_n == CONDITIONS_MAX)
			return jm_err_set(err, JM_EUSAGE, "--fail-if takes at most %d conditions.",
				CONDITIONS_MAX);
		rc = parse_condition(one, &c[(*ret_n)++], err);
	}
	return rc;
}

/* 1 = met, 0 = not, -1 = cannot be told. */
static int judge(const struct condition *c, const struct jm_compare_line *l, bool by_estimate)
{
	double edge = c->above ? l->c.low : l->c.high;

	if (by_estimate)
		edge = l->c.ratio;
	/* by the estimate one run is enough, but nothing else that hinders a verdict is waived */
	if (isnan(edge) || l->hard)
		return -1;
	return c->above ? edge > c->ratio : edge < c->ratio;
}

/* The exit status; what is met or unknown is named on stderr. */
static int judge_all(
	const struct jm_compare *compare, const struct condition *c, int n, bool by_estimate)
{
	int status = 0;

	for (int i = 0; i < n; i++)
		for (int k = 0; k < compare->n; k++) {
			const struct jm_compare_row *row = &compare->row[k];
			int met = judge(&c[i], &row->line[c[i].metric], by_estimate);

			if (!met)
				continue;
			fprintf(stderr, "joulemark: %s: '%s' %s.\n", row->title, c[i].text,
				met > 0 ? "is met" : "cannot be decided");
			if (met > 0)
				status = EXIT_MET;
			else if (!status)
				status = EXIT_UNDECIDED;
		}
	return status;
}

/* ---- the command ----------------------------------------------------------------------------------------- */

static int show(struct jm_cli *cli, const struct jm_compare *c)
{
	const char *path = jm_values_text(&cli->values, "json");
	json_t *json;
	int rc;

	if (!path || strcmp(path, "-") != 0)
		jm_compare_print(c, cli->out);
	if (!path)
		return 0;
	json = jm_compare_json(c);
	rc = json ? jm_output_json(path, json, &cli->err)
		  : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the comparison.");
	json_decref(json);
	return rc;
}

static int compare(struct jm_cli *cli, struct given *g, const struct condition *condition, int n)
{
	const char *ignored[4 * FILTERS_MAX + 1];
	struct jm_compare_side side[2];
	struct jm_compare c;
	int rc = 0, status;

	for (int i = 0; i < 2 && !rc; i++) {
		rc = read_side(cli->args[i], &g[i], &cli->err);
		side[i] = (struct jm_compare_side){g[i].kept, g[i].text, cli->args[i]};
	}
	if (rc)
		return jm_cli_fail(cli);
	list_ignored(g, ignored);
	rc = jm_compare_make(side, ignored, &c, &cli->err);
	if (rc)
		return jm_cli_fail(cli);
	rc = show(cli, &c);
	status = judge_all(&c, condition, n, jm_values_number(&cli->values, "by-estimate") > 0);
	jm_compare_done(&c);
	if (!status && g[0].in.n_damaged + g[1].in.n_damaged)
		status = EXIT_MET;
	return rc ? jm_cli_fail(cli) : status;
}

static int run(struct jm_cli *cli)
{
	const char *text = jm_values_text(&cli->values, "fail-if");
	char *conditions = text ? strdup(text) : NULL;
	struct condition condition[CONDITIONS_MAX];
	struct given g[2] = {0};
	int n, rc = 0, status;

	rc = parse_conditions(conditions, condition, &n, &cli->err);
	if (!rc && jm_values_number(&cli->values, "by-estimate") > 0 && !n)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"--by-estimate changes how --fail-if decides; give --fail-if, too.");
	status = rc ? jm_cli_fail(cli) : compare(cli, g, condition, n);
	given_done(&g[0]);
	given_done(&g[1]);
	free(conditions);
	return status;
}

static const struct jm_option options[] = {
	{.name = "fail-if",
		.type = JM_TEXT,
		.argument = "CONDITION,...",
		.help = "exit status 1 when B differs from A so: 'energy>+2%', 'time>0%', "
			"'power<-5%'. It is met only where the whole 95 % interval lies beyond the "
			"limit; status 3 when that cannot be decided"},
	{.name = "by-estimate",
		.type = JM_FLAG,
		.help = "--fail-if looks at the ratio alone and not at its interval, so that one "
			"run of each is enough; noise then fails a check now and then"},
	{.name = "json",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "write the comparison as JSON; - is standard output, in place of the "
			"table"},
	{0},
};

const struct jm_command jm_command_compare = {
	.name = "compare",
	.summary = "compare two sets of runs in time, power and energy, with an exit status for CI",
	.usage = "[options] A B",
	.description =
		"Compares B with A: time per item, mean power and energy per item as ratios of "
		"geometric means with their 95 % interval and a test. A and B are stores or files "
		"of records. FILE:NAME=VALUE,... selects from a file by a setting, an option, id "
		"(its first digits are enough), repeat, block or reference.\n\nCases with equal "
		"work, options and settings are compared, but for what the filters select. Runs of "
		"one file that share their blocks are compared block by block (paired t test), "
		"others as independent ones (Welch's test). Simulated and measured runs, or "
		"energy of different origin, yield no verdict.\n\nThe exit status is 0; with "
		"--fail-if 1 when a condition is met and 3 when one cannot be decided.",
	.example = "joulemark compare before.db after.db --fail-if 'energy>+2%,time>+1%'\n"
		   "joulemark compare sweep.db:reference=yes sweep.db:gpu.power=300W",
	.options = options,
	.min_args = 2,
	.max_args = 2,
	.run = run,
};
