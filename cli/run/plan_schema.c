/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema is for editors: it describes names, types, ranges and choices. Errors that depend on
 * the work or on other keys are found when the plan is read.
 */
#include "plan_schema.h"
#include "engine/graph/model.h"
#include "base/text/json.h"
#include "run/plan/plan_file.h"
#include "run/plan/plan_lookup.h"
#include "run/workload.h"
#include "run_options.h"
#include "run_parts.h"

#include <jansson.h>
#include <string.h>

/* Text as YAML's readers type it, before the row reads it. */
static json_t *any_scalar(void)
{
	return json_pack("{s:[s,s,s]}", "type", "string", "number", "boolean");
}

/* A text in place of a number or a choice: with a unit, a range, a list or a {name}. */
static json_t *number_of(const struct jm_option *row)
{
	json_t *number = json_pack("{s:s}", "type", row->type == JM_INT ? "integer" : "number");

	if (row->min < row->max) {
		json_object_set_new(number, "minimum", json_real(row->min));
		json_object_set_new(number, "maximum", json_real(row->max));
	}
	return json_pack("{s:[o,{s:s}]}", "anyOf", number, "type", "string");
}

static json_t *choice_of(const struct jm_option *row)
{
	json_t *words = json_array();

	for (int i = 0; row->choices[i]; i++)
		json_array_append_new(words, json_string(row->choices[i]));
	return json_pack("{s:[{s:o},{s:s,s:s}]}", "anyOf", "enum", words, "type", "string",
		"pattern", "[{,]");
}

static json_t *scalar_of(const struct jm_option *row)
{
	switch (row->type) {
	case JM_INT:
	case JM_REAL:
	case JM_DURATION:
		return number_of(row);
	case JM_CHOICE:
		return choice_of(row);
	case JM_FLAG:
		return json_pack("{s:[{s:s},{s:[s,s,s,s,i,i]}]}", "anyOf", "type", "boolean",
			"enum", "yes", "no", "true", "false", 0, 1);
	case JM_TEXT:
		break;
	}
	return any_scalar();
}

/* Steals one. least: how many there are at least */
static json_t *list_of(json_t *one, int least)
{
	return json_pack("{s:s, s:i, s:o}", "type", "array", "minItems", least, "items", one);
}

/* Steals one. */
static json_t *or_list(json_t *one)
{
	return json_pack("{s:[O, o]}", "anyOf", one, list_of(one, 1));
}

static json_t *mapping_of(json_t *one)
{
	return json_pack("{s:s,s:o}", "type", "object", "additionalProperties", one);
}

static json_t *schema_of_row(const struct jm_option *row, bool swept)
{
	json_t *one = scalar_of(row), *schema;

	if (row->repeat) {
		schema = or_list(one);
		json_array_append_new(
			json_object_get(schema, "anyOf"), mapping_of(or_list(any_scalar())));
	} else {
		schema = swept ? or_list(one) : one;
	}
	json_object_set_new(schema, "description", json_string(row->help));
	return schema;
}

/* An option of the same name that another work has may be of another type: both are right. */
static void add_row(json_t *properties, const struct jm_option *row, bool swept)
{
	json_t *before = json_object_get(properties, row->name),
	       *schema = schema_of_row(row, swept);

	if (!before || json_equal(before, schema))
		json_object_set_new(properties, row->name, schema);
	else
		json_object_set_new(
			properties, row->name, json_pack("{s:[O,o]}", "anyOf", before, schema));
}

static void add_rows(json_t *properties, const struct jm_option *rows)
{
	for (; rows && rows->name; rows++)
		add_row(properties, rows, true);
}

static json_t *schema_of_word(const struct jm_plan_word *word)
{
	switch (word->shape) {
	case JM_PLAN_TEXT:
		return any_scalar();
	case JM_PLAN_TEXTS:
		return or_list(any_scalar());
	case JM_PLAN_VALUES:
		return mapping_of(or_list(any_scalar()));
	case JM_PLAN_RUNS_SHAPE:
		return list_of(json_pack("{s:s}", "$ref", "#/definitions/run"), 1);
	case JM_PLAN_ZIP:
		return list_of(json_pack("{s:[{s:s}, o]}", "anyOf", "type", "string",
				       list_of(json_pack("{s:s}", "type", "string"), 2)),
			1);
	case JM_PLAN_EXCLUDE:
		return or_list(mapping_of(or_list(any_scalar())));
	}
	return json_object();
}

static void add_words(json_t *properties, bool of_file)
{
	for (const struct jm_plan_word *w = jm_plan_words; w->name; w++) {
		json_t *schema;

		if (w->of_file && !of_file)
			continue;
		schema = schema_of_word(w);
		json_object_set_new(schema, "description", json_string(w->help));
		json_object_set_new(properties, w->name, schema);
	}
}

/* of_file: keys for all runs, or for a file that describes one run. */
static json_t *properties_of(bool of_file)
{
	json_t *properties = json_object();

	add_words(properties, of_file);
	for (const struct jm_option *o = jm_run_options; o->name; o++)
		if (!(o->use & JM_OPTION_OF_CALL))
			add_row(properties, o, o->use & JM_OPTION_SWEPT);
	for (int i = 0; jm_workloads[i]; i++)
		add_rows(properties, jm_workloads[i]->options);
	for (int i = 0; jm_models[i]; i++)
		add_rows(properties, jm_models[i]->options);
	return properties;
}

/* An object of these keys alone. of_file: as of properties_of */
static void set_object(json_t **schema, bool of_file)
{
	jm_json_set_text(schema, "type", "object");
	jm_json_set(schema, "properties", properties_of(of_file));
	jm_json_set_bool(schema, "additionalProperties", false);
}

int jm_plan_schema_print(struct jm_cli *cli)
{
	json_t *schema = json_object(), *run = json_object();

	set_object(&run, false);
	jm_json_set(&run, "oneOf",
		json_pack("[{s:[s]}, {s:[s]}]", "required", "work", "required", "command"));
	jm_json_set_text(&schema, "$schema", "http://json-schema.org/draft-07/schema#");
	jm_json_set_text(&schema, "title", "a plan of joulemark");
	set_object(&schema, true);
	jm_json_set(&schema, "definitions", json_pack("{s:o}", "run", run));
	if (!schema) {
		jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the schema.");
		return jm_cli_fail(cli);
	}
	json_dumpf(schema, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
	fputc('\n', cli->out);
	json_decref(schema);
	return 0;
}
