/* SPDX-License-Identifier: Apache-2.0 */
/* list: what is built in. */
#include "cli.h"
#include "base/member.h"
#include "meter/source.h"
#include "guard/control.h"
#include "run/workload.h"
#include "engine/model.h"
#include "engine/device.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct jm_option options[] = {
	{.name = "json", .type = JM_FLAG, .help = "print JSON"},
	{0},
};

/* One line, or one object: kind, name, what may follow "name:", summary. */
static void show(json_t *array, const char *kind, const char *name, const char *argument,
	const char *summary)
{
	char full[80];

	snprintf(full, sizeof(full), "%s%s%s%s", name, argument ? "[:" : "",
		argument ? argument : "", argument ? "]" : "");
	if (!array) {
		printf("  %-20s %s\n", full, summary);
		return;
	}
	json_array_append_new(array, json_pack("{ss ss ss? ss}", "kind", kind, "name", name,
					     "argument", argument, "summary", summary));
}

static void title(const json_t *array, const char *text)
{
	if (!array)
		printf("%s\n", text);
}

static void show_absent(json_t *array, const struct jm_absent *absent)
{
	char summary[256];

	for (; absent->name; absent++) {
		snprintf(summary, sizeof(summary), "not built in: %s", absent->reason);
		show(array, absent->kind, absent->name, NULL, summary);
	}
}

static void show_presets(json_t *array, const struct jm_model *model)
{
	for (const struct jm_preset *p = model->presets; p && p->name; p++)
		show(array, "preset", p->name, NULL, p->summary);
}

/* A source's options: each as "name=VALUE", or its name alone where it is a yes or no. */
static void show_options(json_t *array, const struct jm_source *source)
{
	char text[80];

	for (const struct jm_option *o = source->options; o && o->name; o++) {
		snprintf(text, sizeof(text), "%s:%s%s%s", source->name, o->name,
			o->type == JM_FLAG ? "" : "=", o->type == JM_FLAG ? "" : o->argument);
		if (array)
			json_array_append_new(
				array, json_pack("{ss ss sn ss}", "kind", "option", "name", text,
					       "argument", "summary", o->help));
		else
			printf("    %-22s %s\n", text, o->help);
	}
}

/* Backends are loaded, so what there is can only be tried. */
static void show_backends(json_t *array)
{
	const char *name;

	for (size_t i = 0; (name = jm_backend_name(i)); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_device d;
		bool ok = !jm_device_open(name, 1, &d, &err);

		show(array, "backend", name, NULL, ok ? d.backend->summary : err.text);
		if (ok)
			jm_device_close(&d);
	}
}

static void show_members(json_t *array)
{
	title(array, "Sources (--source): what measures");
	for (int i = 0; jm_sources[i]; i++) {
		show(array, "source", jm_sources[i]->name, NULL, jm_sources[i]->summary);
		show_options(array, jm_sources[i]);
	}
	show_absent(array, jm_absent_sources);
	title(array, "Controls (--control): what can be set");
	for (int i = 0; jm_controls[i]; i++)
		show(array, "control", jm_controls[i]->name, jm_controls[i]->argument,
			jm_controls[i]->summary);
	show_absent(array, jm_absent_controls);
	title(array, "Workloads: what 'joulemark run' runs");
	for (int i = 0; jm_workloads[i]; i++)
		show(array, "workload", jm_workloads[i]->name, NULL, jm_workloads[i]->summary);
	show_absent(array, jm_absent_workloads);
	title(array, "Models and their presets: what is trained");
	for (int i = 0; jm_models[i]; i++) {
		show(array, "model", jm_models[i]->name, NULL, jm_models[i]->summary);
		show_presets(array, jm_models[i]);
	}
	show_absent(array, jm_absent_models);
	title(array, "Backends (--device): what it runs on, besides simulated nodes");
	show_backends(array);
}

static int run_list(struct jm_cli *cli)
{
	json_t *array = jm_values_number(&cli->values, "json") > 0 ? json_array() : NULL;

	show_members(array);
	if (!array)
		return 0;
	json_dumpf(array, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(array);
	return 0;
}

const struct jm_command jm_command_list = {
	.name = "list",
	.summary = "list sources, controls, workloads, models and backends",
	.usage = "[--json]",
	.description =
		"What this build offers, and what it lacks with the reason. Whether it works on "
		"this machine is what 'joulemark doctor' says.",
	.options = options,
	.run = run_list,
};
