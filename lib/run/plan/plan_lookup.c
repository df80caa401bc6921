/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of a plan file look up in a run, and the words that a plan has besides options. */
#include "plan_lookup.h"

#include <stdlib.h>
#include <string.h>

const struct jm_plan_key *jm_plan_key(const struct jm_plan_run *run, const char *name)
{
	for (int i = 0; i < run->n_keys; i++)
		if (!strcmp(run->key[i].name, name))
			return &run->key[i];
	return NULL;
}

int jm__plan_scalar(const struct jm_yaml *node, const char *what, struct jm_err *err)
{
	if (node->kind != JM_YAML_SCALAR)
		return jm_yaml_fail(node, JM_EUSAGE, err, "'%s' takes one text here, and not a %s.",
			what, node->kind == JM_YAML_MAP ? "mapping" : "list");
	if (jm_yaml_is_null(node) || !*node->text)
		return jm_yaml_fail(node, JM_EUSAGE, err, "'%s' has no value; give one.", what);
	return 0;
}

int jm__plan_at(const struct jm_plan_run *run, const struct jm_plan_point *point, int axis)
{
	return point->at[run->axis[axis].dial];
}

bool jm__plan_same(const char *a, const char *b)
{
	char *end_a, *end_b;
	double x = strtod(a, &end_a), y = strtod(b, &end_b);

	return !strcmp(a, b) || (end_a > a && end_b > b && !*end_a && !*end_b && x == y);
}

const struct jm_plan_word jm_plan_words[] = {
	{"title", JM_PLAN_TEXT, true, "what the plan is; its first line in tables"},
	{"include", JM_PLAN_TEXTS, true,
		"files whose keys and runs are added, with paths relative to this file; a key of "
		"this file replaces that of an included file, and a later file replaces an earlier "
		"one"},
	{"platform", JM_PLAN_TEXT, true,
		"file with the options of a machine (device, source, set), which every other file "
		"replaces; --platform names another one"},
	{"runs", JM_PLAN_RUNS_SHAPE, true, "list of runs; without it the file is one run"},
	{"name", JM_PLAN_TEXT, false, "name of the run, for 'after'"},
	{"after", JM_PLAN_TEXTS, false,
		"names of runs that must have succeeded before this one begins"},
	{"tags", JM_PLAN_TEXTS, false, "words by which --tag selects runs"},
	{"work", JM_PLAN_TEXTS, false, "workload or model of 'joulemark list'; a list is swept"},
	{"command", JM_PLAN_TEXTS, false,
		"outside command, as a text or as a list of its words; {name} is replaced by a "
		"value"},
	{"variables", JM_PLAN_VALUES, false,
		"values that replace {name}; a list or a range is swept"},
	{"derive", JM_PLAN_VALUES, false,
		"values computed from others, such as global: '{batch} * {micro}'; + - * / % and "
		"parentheses"},
	{"zip", JM_PLAN_ZIP, false,
		"names of lists that advance together instead of being combined; several groups "
		"are a list of lists"},
	{"exclude", JM_PLAN_EXCLUDE, false,
		"combinations that are omitted: mappings of names to a value or a list of values"},
	{0},
};
