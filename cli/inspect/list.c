/* SPDX-License-Identifier: Apache-2.0 */
/* list: what is built in. */
#include "base/member.h"
#include "cli/frame/cli.h"
#include "comm/comm.h"
#include "engine/device/backend_find.h"
#include "engine/device/device.h"
#include "engine/graph/model.h"
#include "guard/control.h"
#include "meter/source.h"
#include "report/format/text.h"
#include "report/systems/published.h"
#include "report/systems/published_table.h"
#include "run/workload.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct jm_option options[] = {
	{.name = "json", .type = JM_FLAG, .help = "print JSON"},
	{.name = "published",
		.type = JM_FLAG,
		.help = "list the figures of papers that 'report --published' and 'compare "
			"--published' show beside records of the same work, instead of members"},
	{0},
};

/* Where the list goes: as text, or into an array when there is one. */
struct list {
	const struct jm_cli *cli;
	json_t *array;
};

/* One line, or one object: kind, name, what may follow "name:", summary. */
static void show(struct list *l, const char *kind, const char *name, const char *argument,
	const char *summary)
{
	char full[80];

	snprintf(full, sizeof(full), "%s%s%s%s", name, argument ? "[:" : "",
		argument ? argument : "", argument ? "]" : "");
	if (!l->array) {
		jm_text_entry(l->cli->out, full, summary, 2, 23, l->cli->width);
		return;
	}
	json_array_append_new(l->array, json_pack("{ss ss ss? ss}", "kind", kind, "name", name,
						"argument", argument, "summary", summary));
}

static void title(const struct list *l, const char *text)
{
	if (!l->array)
		jm_text_wrap(l->cli->out, text, 0, 2, l->cli->width);
}

static void show_absent(struct list *l, const struct jm_absent *absent)
{
	char summary[256];

	for (; absent->name; absent++) {
		snprintf(summary, sizeof(summary), "not built in: %s", absent->reason);
		show(l, absent->kind, absent->name, NULL, summary);
	}
}

static void show_presets(struct list *l, const struct jm_model *model)
{
	for (const struct jm_preset *p = model->presets; p && p->name; p++)
		show(l, "preset", p->name, NULL, p->summary);
}

/* A source's options: each as "name=VALUE", or its name alone where it is a yes or no. */
static void show_options(struct list *l, const struct jm_source *source)
{
	char text[80];

	for (const struct jm_option *o = source->options; o && o->name; o++) {
		snprintf(text, sizeof(text), "%s:%s%s%s", source->name, o->name,
			o->type == JM_FLAG ? "" : "=", o->type == JM_FLAG ? "" : o->argument);
		if (l->array)
			json_array_append_new(
				l->array, json_pack("{ss ss sn ss}", "kind", "option", "name", text,
						  "argument", "summary", o->help));
		else
			jm_text_entry(l->cli->out, text, o->help, 4, 27, l->cli->width);
	}
}

/* Backends are loaded, so what there is can only be tried. */
static void show_backends(struct list *l)
{
	const char *name;

	for (size_t i = 0; (name = jm_backend_name(i)); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_device d;
		bool ok = !jm_device_open(name, 1, &d, &err);

		show(l, "backend", name, NULL, ok ? d.backend->summary : err.text);
		if (ok)
			jm_device_close(&d);
	}
}

static void show_members(struct list *l)
{
	title(l, "Sources (--source): what measures");
	for (int i = 0; jm_sources[i]; i++) {
		show(l, "source", jm_sources[i]->name, NULL, jm_sources[i]->summary);
		show_options(l, jm_sources[i]);
	}
	show_absent(l, jm_absent_sources);
	title(l, "Controls (--control): what can be set");
	for (int i = 0; jm_controls[i]; i++)
		show(l, "control", jm_controls[i]->name, jm_controls[i]->argument,
			jm_controls[i]->summary);
	show_absent(l, jm_absent_controls);
	title(l, "Workloads: what 'joulemark run' runs");
	for (int i = 0; jm_workloads[i]; i++)
		show(l, "workload", jm_workloads[i]->name, NULL, jm_workloads[i]->summary);
	show_absent(l, jm_absent_workloads);
	title(l, "Models and their presets: what is trained");
	for (int i = 0; jm_models[i]; i++) {
		show(l, "model", jm_models[i]->name, NULL, jm_models[i]->summary);
		show_presets(l, jm_models[i]);
	}
	show_absent(l, jm_absent_models);
	title(l, "Backends (--device): where workloads run, besides simulated nodes");
	show_backends(l);
	title(l, "Transports: how the ranks of a case (--ranks) exchange what they compute");
	for (int i = 0; jm_transports[i]; i++)
		show(l, "transport", jm_transports[i]->name, NULL, jm_transports[i]->summary);
	show_absent(l, jm_absent_transports);
}

static int print_json(struct jm_cli *cli, json_t *array)
{
	if (!array)
		return jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the list.");
	json_dumpf(array, cli->out, JSON_INDENT(2));
	fputc('\n', cli->out);
	json_decref(array);
	return 0;
}

/* Of all works: no records choose among them. */
static int list_published(struct jm_cli *cli, bool as_json)
{
	const struct jm_grouping none = {.options = {.width = cli->width, .bold = cli->colour}};

	return as_json ? print_json(cli, jm_published_of(&none))
		       : jm_published_write_table(&none, cli->out, &cli->err);
}

static int run_list(struct jm_cli *cli)
{
	bool as_json = jm_values_number(&cli->values, "json") > 0;
	struct list l = {.cli = cli};

	if (jm_values_number(&cli->values, "published") > 0)
		return list_published(cli, as_json);
	if (as_json)
		l.array = json_array();
	show_members(&l);
	return as_json ? print_json(cli, l.array) : 0;
}

const struct jm_command jm_command_list = {
	.name = "list",
	.summary = "list sources, controls, workloads, models and backends",
	.usage = "[--json] [--published]",
	.description = "Lists what this build offers, and what it lacks with the reason. "
		       "'joulemark doctor' tests what works on this machine. --published lists the "
		       "figures of papers.",
	.options = options,
	.run = run_list,
};
