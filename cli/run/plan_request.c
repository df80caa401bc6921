/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each point of a run becomes a command line of `run`, which its rows read: no value of a plan has
 * a separate parser.
 */
#include "plan_request.h"
#include "cli/frame/work_options.h"
#include "run/plan/plan_points.h"
#include "run/plan/plan_lookup.h"
#include "run/plan/plan_text.h"
#include "run_options.h"
#include "run_parts.h"
#include "run_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For sentences: whatever command reads the plan, its values are options of `run`. */
static const struct jm_command run_row = {.name = "run", .options = jm_run_options};

static int no_memory(struct jm_cli *cli)
{
	return jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the plan.");
}

/* ---- which options there are ---- */

/* A workload that chooses a model takes the options of any model, which its own check narrows
 * down. */
static bool has_option(void *arg, const char *work, const char *option)
{
	const struct jm_model *model;
	const struct jm_workload *w = work ? jm_work_find(work, &model) : NULL;

	(void)arg;
	if (!w)
		return false;
	if (jm_option_find(w->options, option))
		return true;
	return model ? jm_option_find(model->options, option) != NULL
		     : w->chooser && jm_model_option_exists(option);
}

/* ---- what the command line replaces ---- */

static int add_over(struct jm_cli *cli, const struct jm_value *value, json_t *over)
{
	json_t *texts;

	if (!value->given || value->option->use & JM_OPTION_OF_CALL)
		return 0;
	if (!value->option->repeat)
		return json_object_set_new(over, value->option->name, json_string(value->text))
			       ? no_memory(cli)
			       : 0;
	texts = json_array();
	for (int i = 0; i < value->n_texts; i++)
		json_array_append_new(texts, json_string(value->texts[i]));
	return json_object_set_new(over, value->option->name, texts) ? no_memory(cli) : 0;
}

static json_t *over_of(struct jm_cli *cli)
{
	json_t *over = json_object();
	int rc = over ? 0 : no_memory(cli);

	for (int i = 0; i < cli->values.n && !rc; i++)
		rc = add_over(cli, &cli->values.value[i], over);
	for (int i = 0; i < cli->n_extra && !rc; i++)
		if (json_object_set_new(over, cli->extra[i].name, json_string(cli->extra[i].text)))
			rc = no_memory(cli);
	if (!rc)
		return over;
	json_decref(over);
	return NULL;
}

int jm_plan_request_load(struct jm_cli *cli, const struct jm_plan_selection *selection,
	const char *path, struct jm_plan_file *ret)
{
	struct jm_plan_file_options o = {
		.rows = jm_run_options, .platform = selection->platform, .applies = has_option};
	json_t *over = over_of(cli);
	int rc;

	if (!over)
		return cli->err.code;
	o.over = over;
	rc = jm_plan_file_load(path, &o, ret, &cli->err);
	json_decref(over);
	return rc;
}

bool jm_plan_request_selected(
	const struct jm_plan_selection *selection, const struct jm_plan_run *run)
{
	const char *list = selection->tag;
	const json_t *tag;
	size_t i;

	if (!list)
		return true;
	json_array_foreach(run->tags, i, tag)
	{
		size_t n = strlen(json_string_value(tag));

		for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
			if (strcspn(at, ",") == n && !strncmp(at, json_string_value(tag), n))
				return true;
	}
	return false;
}

/* ---- one point ---- */

struct point {
	struct jm_cli *cli; /* of the call */
	struct jm_cli own;  /* the command line that the point is */
	const struct jm_plan_run *run;
	const struct jm_plan_point *at;
	json_t *texts; /* that own points into */
	char *work[1];
	char **words;
};

/* "FILE:LINE: " before the sentence of an option's row. */
static int placed(struct point *p, const struct jm_yaml *where, int rc)
{
	if (!rc)
		return 0;
	if (!strncmp(p->own.err.text, where->file, strlen(where->file)))
		return jm_err_set(&p->cli->err, rc, "%s", p->own.err.text);
	return jm_yaml_fail(where, rc, &p->cli->err, "%s", p->own.err.text);
}

static int set_text(struct point *p, const struct jm_plan_key *key, const char *text)
{
	if (!strcmp(key->name, "work")) {
		p->work[0] = (char *)(uintptr_t)text;
		p->own.args = p->work;
		p->own.n_args = 1;
		return 0;
	}
	return placed(p, key->value,
		jm_option_find(jm_run_options, key->name)
			? jm_values_set(&p->own.values, key->name, text, &p->own.err)
			: jm_work_options_give(&p->own, key->name, text));
}

/* A stronger key of the same name holds, unless both are mappings. */
static bool is_hidden(const struct point *p, const struct jm_plan_key *key)
{
	const struct jm_plan_key *first = jm_plan_key(p->run, key->name);

	return first != key &&
	       (first->value->kind != JM_YAML_MAP || key->value->kind != JM_YAML_MAP);
}

static int set_key(struct point *p, const struct jm_plan_key *key)
{
	json_t *texts, *text;
	size_t i;
	int rc;

	if (key->kind != JM_PLAN_OPTION || !strcmp(key->name, "command") || is_hidden(p, key))
		return 0;
	texts = json_array();
	if (json_array_append_new(p->texts, texts))
		return no_memory(p->cli);
	rc = jm_plan_texts(p->run, p->at, key, texts, &p->cli->err);
	json_array_foreach(texts, i, text)
	{
		if (!rc)
			rc = set_text(p, key, json_string_value(text));
	}
	return rc;
}

static int set_command(struct point *p)
{
	json_t *words = json_array();
	int rc = json_array_append_new(p->texts, words) ? no_memory(p->cli) : 0;

	if (!rc)
		rc = jm_plan_command(p->run, p->at, words, &p->cli->err);
	if (rc)
		return rc;
	if (!json_array_size(words))
		return jm_yaml_fail(jm_plan_key(p->run, "command")->value, JM_EUSAGE, &p->cli->err,
			"The command is empty.");
	p->words = calloc(json_array_size(words) + 1, sizeof(*p->words));
	if (!p->words)
		return no_memory(p->cli);
	for (size_t i = 0; i < json_array_size(words); i++)
		p->words[i] = (char *)(uintptr_t)json_string_value(json_array_get(words, i));
	p->own.command = p->words;
	return 0;
}

static int set_all(struct point *p)
{
	int rc = placed(
		p, p->run->where, jm_values_init(&p->own.values, jm_run_options, &p->own.err));

	for (int i = 0; i < p->run->n_keys && !rc; i++)
		rc = set_key(p, &p->run->key[i]);
	return !rc && p->run->command ? set_command(p) : rc;
}

/* For a command: the variables that are swept, so that tables show different cases. */
static int add_variables(struct point *p, json_t *what)
{
	json_t *options = json_object(), *texts;
	int rc = json_object_set_new(what, "options", options) ? no_memory(p->cli) : 0;

	for (int i = 0; i < p->run->n_keys && !rc; i++) {
		const struct jm_plan_key *key = &p->run->key[i];

		if (key->kind == JM_PLAN_OPTION || jm_plan_key(p->run, key->name) != key ||
			(key->kind == JM_PLAN_VARIABLE && key->axis < 0))
			continue;
		texts = json_array();
		if (json_object_set_new(options, key->name, texts))
			return no_memory(p->cli);
		rc = jm_plan_texts(p->run, p->at, key, texts, &p->cli->err);
	}
	return rc;
}

/* Where the option is that the sentence names, else the run. */
static const struct jm_yaml *place_of(const struct point *p)
{
	const char *at = strstr(p->own.err.text, "--");
	size_t n = at ? strspn(at, "-abcdefghijklmnopqrstuvwxyz0123456789") : 0;

	for (int i = 0; i < p->run->n_keys && n > 2; i++)
		if (strlen(p->run->key[i].name) == n - 2 &&
			!strncmp(p->run->key[i].name, at + 2, n - 2))
			return p->run->key[i].value;
	return p->run->where;
}

static int make_request(struct point *p, json_t **ret)
{
	json_t *what, *exclude;
	int rc = set_all(p);

	if (rc)
		return rc;
	*ret = jm_run_request(&p->own);
	if (!*ret)
		return placed(p, place_of(p), p->own.err.code);
	what = json_object_get(*ret, "what");
	if (p->run->command)
		rc = add_variables(p, what);
	exclude = json_array();
	if (!rc)
		rc = jm_plan_excluded_settings(p->run, p->at, exclude, &p->cli->err);
	if (!rc && json_array_size(exclude))
		json_object_set(what, "exclude", exclude);
	json_decref(exclude);
	return rc;
}

static int request_of_point(struct jm_cli *cli, const struct jm_plan_run *run,
	const struct jm_plan_point *at, json_t **ret)
{
	struct point p = {.cli = cli,
		.own = {.cmd = &run_row, .commands = cli->commands, .lacks = cli->lacks},
		.run = run,
		.at = at,
		.texts = json_array()};
	int rc;

	*ret = NULL;
	rc = p.texts ? make_request(&p, ret) : no_memory(cli);
	jm_values_done(&p.own.values);
	free(p.own.extra);
	free((void *)p.words);
	json_decref(p.texts);
	if (rc) {
		json_decref(*ret);
		*ret = NULL;
	}
	return rc;
}

/* ---- all points ---- */

static int too_many(struct jm_cli *cli, const struct jm_plan_run *run, double n, bool exact)
{
	char axes[256];

	jm_plan_axes_text(run, axes, sizeof(axes));
	return jm_yaml_fail(run->where, JM_ERANGE, &cli->err,
		"The run '%s' has %s%.0f cases, which is more than %d: %s. Sweep fewer values, let "
		"lists advance together ('zip'), or make several plans.",
		run->name, exact ? "" : "up to ", n, JM_PLAN_CASES_MOST, axes);
}

/* What holds for all cases of a run must not depend on its lists. */
static int check_same(
	struct jm_cli *cli, const struct jm_plan_run *run, const json_t *first, const json_t *other)
{
	static const char *const keys[] = {"how", "repeat", "seed"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!json_equal(json_object_get(first, keys[i]), json_object_get(other, keys[i])))
			return jm_yaml_fail(run->where, JM_EUSAGE, &cli->err,
				"How the run '%s' is measured (source, interval, timeout, repeat, "
				"seed) must be the same in all of its cases; make several runs.",
				run->name);
	return 0;
}

static int add_point(struct jm_cli *cli, const struct jm_plan_run *run,
	const struct jm_plan_point *at, json_t **request, json_t *parts)
{
	json_t *one;
	int rc = request_of_point(cli, run, at, &one);

	if (rc)
		return rc;
	if (json_array_append(parts, json_object_get(one, "what")))
		rc = no_memory(cli);
	if (!rc && *request)
		rc = check_same(cli, run, *request, one);
	if (!*request)
		*request = json_incref(one);
	json_decref(one);
	return rc;
}

/* One part is a request as the command line makes it, with the same key in the store. */
static int join_parts(struct jm_cli *cli, json_t *request, json_t *parts)
{
	if (json_array_size(parts) == 1)
		return 0;
	return json_object_set_new(request, "what", json_pack("{s:O}", "parts", parts))
		       ? no_memory(cli)
		       : 0;
}

static int add_points(
	struct jm_cli *cli, const struct jm_plan_run *run, json_t **request, json_t *parts)
{
	struct jm_plan_point at;
	int rc = 0;

	if (!jm_plan_first(run, &at))
		return jm_yaml_fail(run->where, JM_EUSAGE, &cli->err,
			"The run '%s' has no case, because 'exclude' removes all of them.",
			run->name);
	do {
		rc = add_point(cli, run, &at, request, parts);
	} while (!rc && jm_plan_next(run, &at));
	return rc ? rc : join_parts(cli, *request, parts);
}

int jm_plan_request_make(struct jm_cli *cli, const struct jm_plan_run *run, json_t **ret_request)
{
	json_t *parts, *request = NULL;
	bool exact;
	double n = jm_plan_count(run, &exact);
	int rc;

	if (n > JM_PLAN_CASES_MOST)
		return too_many(cli, run, n, exact);
	parts = json_array();
	rc = parts ? add_points(cli, run, &request, parts) : no_memory(cli);
	json_decref(parts);
	if (rc)
		json_decref(request);
	else
		*ret_request = request;
	return rc;
}
