/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: which keys hold for a run, and what is wrong with them. */
#include "plan_file.h"
#include "plan_axes.h"
#include "plan_layers.h"
#include "plan_order.h"
#include "plan_lookup.h"
#include "result/case_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 128

static int no_memory(struct jm__plan_loader *l)
{
	return jm_err_set(l->err, JM_ENOMEM, "Out of memory for the plan.");
}

static const struct jm_plan_word *find_word(const char *name)
{
	for (const struct jm_plan_word *w = jm_plan_words; w->name; w++)
		if (!strcmp(w->name, name))
			return w;
	return NULL;
}

/* ---- the keys of a run ---- */

/* A text, a list of texts, or a mapping of names to these; nothing deeper, because aliases could
 * multiply the nodes to be visited. */
static bool is_flat(const struct jm_yaml *value, int levels)
{
	if (value->kind == JM_YAML_SCALAR)
		return true;
	if (!levels || (value->kind == JM_YAML_MAP && levels < 2))
		return false;
	for (int i = 0; i < value->n; i++)
		if (!is_flat(value->item[i], value->kind == JM_YAML_MAP ? 1 : 0))
			return false;
	return true;
}

static int add_key(struct jm__plan_loader *l, struct jm_plan_run *run, const char *name,
	const struct jm_yaml *value, enum jm_plan_kind kind, bool own)
{
	struct jm_plan_key *grown;

	if (jm_yaml_is_null(value))
		return jm_yaml_fail(value, JM_EUSAGE, l->err,
			"'%.80s' has no value; give one, or remove the key (a text 'null' is "
			"written in quotes).",
			name);
	if (!is_flat(value, 2))
		return jm_yaml_fail(value, JM_EUSAGE, l->err,
			"'%.80s' is nested too deeply: it takes a text, a list of texts, or a "
			"mapping of names to these.",
			name);
	grown = reallocarray(run->key, (size_t)run->n_keys + 1, sizeof(*grown));
	if (!grown)
		return no_memory(l);
	run->key = grown;
	grown[run->n_keys++] = (struct jm_plan_key){name, value, kind, own, -1};
	return 0;
}

/* {name} reads letters, digits and - _ only. */
static int check_name(struct jm__plan_loader *l, const struct jm_yaml *key)
{
	size_t n = strspn(
		key->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");

	if (n && !key->text[n] && n < JM_PLAN_NAME && !strchr("0123456789-_", key->text[0]))
		return 0;
	return jm_yaml_fail(key, JM_EUSAGE, l->err,
		"'%.80s' cannot be the name of a variable: a name begins with a letter and "
		"consists of at most %d letters, digits, - and _.",
		key->text, JM_PLAN_NAME - 1);
}

static int add_variables(struct jm__plan_loader *l, struct jm_plan_run *run,
	const struct jm_yaml *map, enum jm_plan_kind kind, bool own)
{
	int rc = 0;

	if (map->kind != JM_YAML_MAP)
		return jm_yaml_fail(map, JM_EUSAGE, l->err,
			"'%s' is a mapping of names to values, such as {micro: [1, 2]}.",
			kind == JM_PLAN_DERIVED ? "derive" : "variables");
	for (int i = 0; i < map->n && !rc; i++) {
		rc = check_name(l, map->key[i]);
		if (!rc && find_word(map->key[i]->text))
			rc = jm_yaml_fail(map->key[i], JM_EUSAGE, l->err,
				"'%s' is a key of plans; give the variable another name.",
				map->key[i]->text);
		if (!rc && !jm_plan_key(run, map->key[i]->text))
			rc = add_key(l, run, map->key[i]->text, map->item[i], kind, own);
	}
	return rc;
}

static bool applies_to_one(struct jm__plan_loader *l, const struct jm_yaml *work, const char *name)
{
	if (work->kind == JM_YAML_SCALAR)
		return strchr(work->text, '{') || l->o->applies(l->o->arg, work->text, name);
	for (int i = 0; i < work->n; i++)
		if (work->item[i]->kind == JM_YAML_SCALAR && applies_to_one(l, work->item[i], name))
			return true;
	return false;
}

/* Has the work of this run, or the command, such an option? */
static bool applies(struct jm__plan_loader *l, const struct jm_plan_run *run, const char *name)
{
	const struct jm_option *row = jm_option_find(l->o->rows, name);

	if (row)
		return !(row->use & (run->command ? JM_OPTION_OF_WORK : JM_OPTION_OF_COMMAND));
	return run->command ? l->o->applies(l->o->arg, NULL, name)
			    : applies_to_one(l, jm_plan_key(run, "work")->value, name);
}

/* A misspelt word of the plan; a misspelt option is found where its row is looked for. */
static int check_known(
	struct jm__plan_loader *l, const struct jm_plan_run *run, const struct jm_yaml *key)
{
	const struct jm_option *row = jm_option_find(l->o->rows, key->text);
	const char *names[MAX_NAMES], *near;
	size_t n = 0;

	if (row && row->use & JM_OPTION_OF_CALL)
		return jm_yaml_fail(key, JM_EUSAGE, l->err,
			"'%s' concerns one call and not the plan; give it on the command line: "
			"--%s.",
			key->text, key->text);
	if (row || (run && applies(l, run, key->text)))
		return 0;
	for (const struct jm_plan_word *w = jm_plan_words; w->name; w++)
		names[n++] = w->name;
	for (const struct jm_option *o = l->o->rows; o->name && n < MAX_NAMES; o++)
		if (!(o->use & JM_OPTION_OF_CALL))
			names[n++] = o->name;
	near = jm_did_you_mean(key->text, names, n);
	if (near)
		return jm_yaml_fail(key, JM_EUSAGE, l->err,
			"There is no key '%.80s'; did you mean '%s'?", key->text, near);
	if (run && run->command)
		return jm_yaml_fail(key, JM_EUSAGE, l->err,
			"A command has no option '%.80s'; put it under 'variables' and write "
			"{%.80s} in the command.",
			key->text, key->text);
	return 0;
}

static int add_pair(struct jm__plan_loader *l, struct jm_plan_run *run,
	struct jm__plan_layer *layer, int i, bool own)
{
	const struct jm_yaml *key = layer->map->key[i], *value = layer->map->item[i];
	const struct jm_plan_word *word = find_word(key->text);
	int rc;

	if (!strcmp(key->text, "variables"))
		return add_variables(l, run, value, JM_PLAN_VARIABLE, own);
	if (!strcmp(key->text, "derive"))
		return add_variables(l, run, value, JM_PLAN_DERIVED, own);
	if (word)
		return 0;
	rc = own ? check_known(l, run, key) : 0;
	if (rc || (!own && !applies(l, run, key->text)))
		return rc;
	if (!own)
		layer->used[i] = true;
	/* mappings are merged, the stronger name first; anything else is replaced */
	if (jm_plan_key(run, key->text) &&
		(value->kind != JM_YAML_MAP ||
			jm_plan_key(run, key->text)->value->kind != JM_YAML_MAP))
		return 0;
	return add_key(l, run, key->text, value, JM_PLAN_OPTION, own);
}

static int add_layer_keys(
	struct jm__plan_loader *l, struct jm_plan_run *run, struct jm__plan_layer *layer, bool own)
{
	int rc = 0;

	for (int i = 0; i < layer->map->n && !rc; i++)
		rc = add_pair(l, run, layer, i, own);
	return rc;
}

/* ---- runs ---- */

static int check_words(
	struct jm__plan_loader *l, const struct jm_yaml *map, bool is_run, bool is_file)
{
	for (int i = 0; i < map->n; i++) {
		const struct jm_plan_word *word = find_word(map->key[i]->text);

		if (word && word->of_file && !is_file)
			return jm_yaml_fail(map->key[i], JM_EUSAGE, l->err,
				"'%s' belongs to the file and not to one run.", word->name);
		if (word && !word->of_file && !is_run && strcmp(word->name, "variables") != 0 &&
			strcmp(word->name, "derive") != 0)
			return jm_yaml_fail(map->key[i], JM_EUSAGE, l->err,
				"'%s' belongs to one run; move it into an element of 'runs'.",
				word->name);
	}
	return 0;
}

/* Neither 'work' nor 'command': the first key that is known of no run is more likely a mistake than
 * a missing line. */
static int no_work(struct jm__plan_loader *l, const struct jm_yaml *map)
{
	static const char *const either[] = {"work", "command"};

	for (int i = 0; i < map->n; i++) {
		const struct jm_yaml *key = map->key[i];
		const char *near = jm_did_you_mean(key->text, either, 2);

		if (near)
			return jm_yaml_fail(key, JM_EUSAGE, l->err,
				"There is no key '%.80s'; did you mean '%s'?", key->text, near);
		if (!find_word(key->text) && !jm_option_find(l->o->rows, key->text))
			return jm_yaml_fail(key, JM_EUSAGE, l->err,
				"'%.80s' is no key of a run that has neither 'work' (a workload or "
				"model of 'joulemark list') nor 'command'; give one of these.",
				key->text);
	}
	return jm_yaml_fail(map, JM_EUSAGE, l->err,
		"A run has either 'work' (a workload or model of 'joulemark list') or 'command'.");
}

static int take_work(struct jm__plan_loader *l, struct jm_plan_run *run, const struct jm_yaml *map)
{
	const struct jm_yaml *work = jm_yaml_get(map, "work"),
			     *command = jm_yaml_get(map, "command");

	if (!work && !command)
		return no_work(l, map);
	if (work && command)
		return jm_yaml_fail(command, JM_EUSAGE, l->err,
			"'work' and 'command' exclude each other; give one of them.");
	run->command = command != NULL;
	if (command && (command->kind == JM_YAML_MAP || jm_yaml_is_null(command) ||
			       (command->kind == JM_YAML_LIST && !command->n)))
		return jm_yaml_fail(command, JM_EUSAGE, l->err,
			"'command' is a text such as 'python3 train.py', or a list of its words.");
	return work ? add_key(l, run, "work", work, JM_PLAN_OPTION, true)
		    : add_key(l, run, "command", command, JM_PLAN_OPTION, true);
}

/* Texts that no placeholder belongs in: names and tags. */
static int take_texts(
	struct jm__plan_loader *l, const struct jm_yaml *node, const char *what, json_t *texts)
{
	int rc = 0;

	if (node->kind == JM_YAML_SCALAR) {
		rc = jm__plan_scalar(node, what, l->err);
		return rc || !json_array_append_new(texts, json_string(node->text)) ? rc
										    : no_memory(l);
	}
	if (node->kind == JM_YAML_MAP)
		return jm__plan_scalar(node, what, l->err);
	for (int i = 0; i < node->n && !rc; i++) {
		rc = jm__plan_scalar(node->item[i], what, l->err);
		if (!rc && json_array_append_new(texts, json_string(node->item[i]->text)))
			rc = no_memory(l);
	}
	return rc;
}

/* A run without a name has the name of its work. */
static int take_name(struct jm__plan_loader *l, struct jm_plan_run *run)
{
	const struct jm_yaml *name = jm_yaml_get(run->where, "name"), *from = name;
	const char *base;

	if (name && jm__plan_scalar(name, "name", l->err))
		return l->err->code;
	if (name && strlen(name->text) >= sizeof(run->name))
		return jm_yaml_fail(name, JM_ERANGE, l->err,
			"The name of a run has at most %d characters.", JM_PLAN_NAME - 1);
	if (!from)
		from = run->key[0].value;
	while (from->kind == JM_YAML_LIST && from->n)
		from = from->item[0];
	base = from->kind == JM_YAML_SCALAR ? from->text : "run";
	if (!name && run->command && strrchr(base, '/'))
		base = strrchr(base, '/') + 1;
	snprintf(run->name, sizeof(run->name), "%.*s",
		name ? JM_PLAN_NAME - 1 : (int)strcspn(base, " \t\n"), base);
	return 0;
}

static bool has_simulated(const struct jm_yaml *devices)
{
	bool some = devices->kind == JM_YAML_SCALAR &&
		    (jm_case_simulated(devices->text) || strstr(devices->text, ",sim:"));

	for (int i = 0; devices->kind == JM_YAML_LIST && i < devices->n; i++)
		some = some || has_simulated(devices->item[i]);
	return some;
}

/* What a command without a `device` of its own sets would be set on this machine. */
static int check_node(struct jm__plan_loader *l, const struct jm_plan_run *run)
{
	const struct jm_yaml *device = NULL;

	if (!run->command || !jm_plan_key(run, "set") || jm_plan_key(run, "control") ||
		jm_plan_key(run, "device"))
		return 0;
	for (int i = 0; i < l->n_layers && !device; i++)
		device = jm_yaml_get(l->layer[i].map, "device");
	if (!device || !has_simulated(device))
		return 0;
	return jm_yaml_fail(run->where, JM_EUSAGE, l->err,
		"This command sets knobs, but the simulated device of the plan does not hold for "
		"commands, so that the knobs of this machine would be set. Give this run a "
		"'device' of its own: the simulated node, or cpu for this machine.");
}

static int make_run(
	struct jm__plan_loader *l, const struct jm_yaml *map, bool is_file, struct jm_plan_run *run)
{
	const struct jm_yaml *tags = map->kind == JM_YAML_MAP ? jm_yaml_get(map, "tags") : NULL;
	struct jm__plan_layer own = {.map = map};
	int rc;

	run->where = map;
	run->tags = json_array();
	if (map->kind != JM_YAML_MAP)
		return jm_yaml_fail(map, JM_EUSAGE, l->err,
			"A run is a mapping of keys to values, such as '- work: resnet50'.");
	rc = check_words(l, map, true, is_file);
	if (!rc)
		rc = take_work(l, run, map);
	if (!rc)
		rc = take_name(l, run);
	if (!rc && tags)
		rc = take_texts(l, tags, "tags", run->tags);
	/* the command line first */
	for (int i = 0; i < l->first && !rc; i++)
		rc = add_layer_keys(l, run, &l->layer[i], false);
	if (!rc)
		rc = add_layer_keys(l, run, &own, true);
	for (int i = l->first + is_file; i < l->n_layers && !rc; i++)
		rc = add_layer_keys(l, run, &l->layer[i], false);
	if (!rc)
		rc = check_node(l, run);
	return rc ? rc : jm__plan_axes(run, l->o->rows, l->err);
}

static int add_run(struct jm__plan_loader *l, const struct jm_yaml *map, bool is_file)
{
	struct jm_plan_run *grown;

	if (l->file.n == JM_PLAN_RUNS)
		return jm_yaml_fail(
			map, JM_ERANGE, l->err, "A plan has more than %d runs.", JM_PLAN_RUNS);
	grown = reallocarray(l->file.run, (size_t)l->file.n + 1, sizeof(*grown));
	if (!grown)
		return no_memory(l);
	l->file.run = grown;
	grown[l->file.n] = (struct jm_plan_run){0};
	return make_run(l, map, is_file, &grown[l->file.n++]);
}

static int add_runs(struct jm__plan_loader *l, const struct jm_yaml *runs)
{
	int rc = 0;

	if (runs->kind != JM_YAML_LIST || !runs->n)
		return jm_yaml_fail(runs, JM_EUSAGE, l->err,
			"'runs' is a list; each element begins with '- ' and is one run.");
	for (int i = 0; i < runs->n && !rc; i++)
		rc = add_run(l, runs->item[i], false);
	return rc;
}

/* Without 'runs' in any file the plan itself is one run. */
static int make_runs(struct jm__plan_loader *l)
{
	bool several = false;
	int rc = 0;

	for (int i = l->first; i < l->n_layers; i++)
		several = several || jm_yaml_get(l->layer[i].map, "runs");
	if (!several)
		return add_run(l, l->layer[l->first].map, true);
	for (int i = l->first; i < l->n_layers && !rc; i++)
		rc = check_words(l, l->layer[i].map, false, true);
	for (int i = l->n_layers - 1; i >= l->first && !rc; i--) {
		const struct jm_yaml *runs = jm_yaml_get(l->layer[i].map, "runs");

		rc = runs ? add_runs(l, runs) : 0;
	}
	return rc;
}

/* A key for all runs must be valid for at least one of them; otherwise it is misspelt. */
static int check_used(struct jm__plan_loader *l)
{
	bool single = l->file.n == 1 && l->file.run[0].where == l->layer[l->first].map;
	int rc = 0;

	for (int i = 0; i < l->n_layers && !rc; i++) {
		const struct jm__plan_layer *layer = &l->layer[i];

		for (int k = 0; k < layer->map->n && !rc; k++) {
			const struct jm_yaml *key = layer->map->key[k];

			if (layer->used[k] || find_word(key->text) || (single && i == l->first))
				continue;
			rc = check_known(l, NULL, key);
			if (!rc)
				rc = jm_yaml_fail(key, JM_EUSAGE, l->err,
					"No run of the plan has an option '%.80s'.", key->text);
		}
	}
	return rc;
}

/* Has a run before the i-th its name? */
static bool has_same_name(const struct jm__plan_loader *l, int i)
{
	for (int k = 0; k < i; k++)
		if (!strcmp(l->file.run[k].name, l->file.run[i].name))
			return true;
	return false;
}

/* Names are for `after` and for people. */
static int check_names(struct jm__plan_loader *l)
{
	for (int i = 0; i < l->file.n; i++) {
		struct jm_plan_run *run = &l->file.run[i];
		size_t n = strnlen(run->name, JM_PLAN_NAME - 13);

		if (has_same_name(l, i) && jm_yaml_get(run->where, "name"))
			return jm_yaml_fail(run->where, JM_EUSAGE, l->err,
				"Two runs have the name '%s'; give each its own name.", run->name);
		for (int number = i + 1; has_same_name(l, i); number++)
			snprintf(run->name + n, 13, "-%d", number);
	}
	return 0;
}

static int load(struct jm__plan_loader *l, const char *path)
{
	const struct jm_yaml *title;
	int rc = jm__plan_layers(l, path);

	if (!rc)
		rc = make_runs(l);
	if (!rc)
		rc = check_used(l);
	if (!rc)
		rc = check_names(l);
	if (!rc)
		rc = jm__plan_order(&l->file, l->err);
	if (rc)
		return rc;
	title = jm_yaml_get(l->layer[l->first].map, "title");
	if (title && jm__plan_scalar(title, "title", l->err))
		return l->err->code;
	l->file.title = title ? title->text : NULL;
	return 0;
}

int jm_plan_file_load(const char *path, const struct jm_plan_file_options *o,
	struct jm_plan_file *ret, struct jm_err *err)
{
	struct jm__plan_loader *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the plan.");
	l->o = o;
	l->err = err;
	rc = load(l, path);
	jm__plan_layers_done(l);
	if (rc)
		jm_plan_file_done(&l->file);
	else
		*ret = l->file;
	free(l);
	return rc;
}

void jm_plan_file_done(struct jm_plan_file *file)
{
	for (int i = 0; i < file->n; i++) {
		jm__plan_axes_done(&file->run[i]);
		free(file->run[i].key);
		free(file->run[i].after);
		json_decref(file->run[i].tags);
	}
	free(file->run);
	for (int i = 0; i < file->n_documents; i++)
		jm_yaml_free(file->document[i]);
	free((void *)file->document);
	*file = (struct jm_plan_file){0};
}
