/* SPDX-License-Identifier: Apache-2.0 */
/* Options that are not the command's own: whose are they? */
#include "work_options.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/value_list.h"

#define MAX_NAMES 200

const struct jm_workload *jm_work_find(const char *name, const struct jm_model **ret_model)
{
	const struct jm_preset *preset;
	const struct jm_model *model = NULL;
	bool is_model = !jm_model_find(name, &model, &preset, NULL);

	if (ret_model)
		*ret_model = is_model ? model : NULL;
	return jm_workload_find(is_model ? jm_model_workload(preset) : name, NULL);
}

int jm_work_options_choose(struct jm_work_options *o, const char *name,
	const struct jm_option *rows, struct jm_err *err)
{
	if (o->n_chosen == JM_CHOSEN_MOST)
		return jm_err_set(err, JM_ERANGE,
			"More than %d models are too many for one plan; sweep fewer.",
			JM_CHOSEN_MOST);
	snprintf(o->chosen[o->n_chosen].name, sizeof(o->chosen[0].name), "%s", name);
	o->chosen[o->n_chosen++].rows = rows;
	return 0;
}

int jm_work_options_give(struct jm_cli *cli, const char *name, const char *text)
{
	struct jm_extra *grown = reallocarray(cli->extra, (size_t)cli->n_extra + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for --%s.", name);
	cli->extra = grown;
	grown[cli->n_extra++] = (struct jm_extra){name, text};
	return 0;
}

const char *jm_work_options_text(const struct jm_cli *cli, const char *name)
{
	for (int i = cli->n_extra - 1; i >= 0; i--)
		if (!strcmp(cli->extra[i].name, name))
			return cli->extra[i].text;
	return NULL;
}

const struct jm_option *jm_work_options_find(const char *name)
{
	const struct jm_option *found = NULL;

	for (int i = 0; jm_workloads[i] && !found; i++)
		found = jm_option_find(jm_workloads[i]->options, name);
	for (int i = 0; jm_models[i] && !found; i++)
		found = jm_option_find(jm_models[i]->options, name);
	return found;
}

static size_t add_names(const struct jm_option *rows, const char **names, size_t n)
{
	for (; rows && rows->name && n < MAX_NAMES; rows++)
		names[n++] = rows->name;
	return n;
}

/* A misspelt option of the command or of the work; or one that does not exist at all. */
static int unknown(struct jm_cli *cli, const struct jm_work_options *o, const char *name)
{
	const char *names[MAX_NAMES], *near, *cmd = cli->cmd->name;
	size_t n = add_names(cli->cmd->options, names, add_names(o->own, names, 0));

	for (int i = 0; i < o->n_chosen; i++)
		n = add_names(o->chosen[i].rows, names, n);
	near = jm_did_you_mean(name, names, n);
	if (near)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"Neither '%s' nor %s has an option --%s; did you mean --%s?", cmd, o->who,
			name, near);
	return jm_err_set(&cli->err, JM_EUSAGE,
		"Neither '%s' nor %s has an option --%s; see 'joulemark %s --help' and 'joulemark "
		"list'.",
		cmd, o->who, name, cmd);
}

static int check(struct jm_cli *cli, const struct jm_work_options *o, const char *name)
{
	bool is_models = false;

	if (jm_option_find(o->own, name))
		return 0;
	for (int i = 0; i < o->n_chosen && !is_models; i++)
		is_models = jm_option_find(o->chosen[i].rows, name) || jm_model_option_exists(name);
	for (int i = 0; i < o->n_chosen && is_models; i++)
		if (!jm_option_find(o->chosen[i].rows, name))
			return jm_err_set(&cli->err, JM_EUSAGE,
				"Model %s has no option --%s; omit it, or use another model.",
				o->chosen[i].name, name);
	return is_models ? 0 : unknown(cli, o, name);
}

int jm_work_options_check(struct jm_cli *cli, const struct jm_work_options *o)
{
	int rc = 0;

	for (int i = 0; i < cli->n_extra && !rc; i++)
		rc = check(cli, o, cli->extra[i].name);
	return rc;
}

/* ---- into a request -------------------------------------------------------------------------- */

static int no_memory(struct jm_cli *cli)
{
	return jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the plan.");
}

/* What a value is in the case's parameters: numbers in the base unit without superfluous digits. */
static json_t *canonical(const struct jm_value *value)
{
	const struct jm_option *o = value->option;
	char text[64];

	if (!value->text)
		return NULL;
	if (o->type == JM_TEXT || o->type == JM_CHOICE || isnan(value->number))
		return json_string(value->text);
	snprintf(text, sizeof(text), "%.12g%s", value->number,
		o->unit && o->type != JM_FLAG ? o->unit : "");
	return json_string(text);
}

struct value_adder {
	const struct jm_option *row;
	json_t *values;
};

static int add_value(void *arg, const char *text, struct jm_err *err)
{
	const struct value_adder *a = arg;
	struct jm_option rows[] = {*a->row, {0}};
	struct jm_values one;
	int rc = jm_values_init(&one, rows, err);

	if (rc)
		return rc;
	rc = jm_values_set(&one, a->row->name, text, err);
	if (!rc && json_array_append_new(a->values, canonical(&one.value[0])))
		rc = jm_err_set(err, JM_EUSAGE,
			"--%s '%s' is not UTF-8 text and cannot be stored in a record.",
			a->row->name, text);
	jm_values_done(&one);
	return rc;
}

/* "4,8,16" or "4:16*2" of one option; each value is checked by its row. */
static int add_values(
	struct jm_cli *cli, const struct jm_option *row, const char *list, json_t *ret_values)
{
	struct value_adder a = {row, ret_values};
	bool number = row->type == JM_INT || row->type == JM_REAL || row->type == JM_DURATION;

	if (row->use & JM_OPTION_COMMAS)
		return add_value(&a, list, &cli->err);
	return jm_value_list(list, number, add_value, &a, &cli->err);
}

int jm_work_options_add(
	struct jm_cli *cli, const struct jm_option *row, const char *text, json_t *options)
{
	json_t *values = json_array();
	int rc = add_values(cli, row, text, values);

	if (!rc && json_object_set(options, row->name, values))
		rc = no_memory(cli);
	json_decref(values);
	return rc;
}

/* The workload's own. */
static int add_options(struct jm_cli *cli, const struct jm_option *rows, json_t *options)
{
	int rc = 0;

	for (const struct jm_option *row = rows; row && row->name && !rc; row++) {
		const char *text = jm_work_options_text(cli, row->name);

		if (!text)
			text = row->fallback;
		if (text)
			rc = jm_work_options_add(cli, row, text, options);
	}
	return rc;
}

/* Of what was chosen: each value is checked by the row of every choice. What is not given is left
 * to each. */
static int add_chosen(struct jm_cli *cli, const struct jm_work_options *o, json_t *options)
{
	int rc = 0;

	for (int i = 0; i < o->n_chosen; i++)
		for (const struct jm_option *row = o->chosen[i].rows; row && row->name && !rc;
			row++) {
			const char *text = jm_work_options_text(cli, row->name);

			if (text)
				rc = jm_work_options_add(cli, row, text, options);
		}
	return rc;
}

/* The rows that each value of the workload's chooser brings in. */
static int choose(struct jm_cli *cli, const struct jm_workload *w, struct jm_work_options *ret)
{
	const char *list = w->chooser ? jm_work_options_text(cli, w->chooser) : NULL;
	char *copy, *rest, *part;
	int rc = 0;

	if (w->chooser && !list)
		list = jm_option_find(w->options, w->chooser)->fallback;
	if (!list)
		return 0;
	copy = rest = strdup(list);
	if (!copy)
		return no_memory(cli);
	while (!rc && (part = strsep(&rest, ","))) {
		const struct jm_option *rows;

		rc = w->chosen_options(part, &rows, &cli->err);
		if (!rc)
			rc = jm_work_options_choose(ret, part, rows, &cli->err);
	}
	free(copy);
	return rc;
}

/* An option that would be ignored is more likely a mistake than meant. */
static int check_needs(struct jm_cli *cli, const struct jm_option *rows)
{
	for (; rows && rows->name; rows++)
		if (rows->needs && jm_work_options_text(cli, rows->name) &&
			!jm_work_options_text(cli, rows->needs))
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--%s has no effect without --%s; give both, or omit --%s.",
				rows->name, rows->needs, rows->name);
	return 0;
}

int jm_work_options_request(
	struct jm_cli *cli, const struct jm_workload *w, const char *who, json_t *what)
{
	struct jm_work_options o = {.who = who, .own = w->options};
	json_t *options = json_object();
	int rc = json_object_set_new(what, "options", options) ? no_memory(cli) : 0;

	if (!rc)
		rc = choose(cli, w, &o);
	if (!rc)
		rc = jm_work_options_check(cli, &o);
	if (!rc)
		rc = check_needs(cli, w->options);
	if (!rc)
		rc = add_options(cli, w->options, options);
	return rc ? rc : add_chosen(cli, &o, options);
}
