/* SPDX-License-Identifier: Apache-2.0 */
/* list: what is built in. */
#include "base/member.h"
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"
#include "comm/comm.h"
#include "engine/device/backend_find.h"
#include "engine/device/device.h"
#include "engine/graph/model.h"
#include "guard/control.h"
#include "meter/source.h"
#include "report/format/text.h"
#include "report/systems/published.h"
#include "report/systems/published_table.h"
#include "result/case_id.h"
#include "run/workload.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define DEVICES                                                                                    \
	"The devices of this machine, with their power and settings, are shown by "                \
	"'joulemark top', 'joulemark watch' and 'joulemark get'."

/* Where the list goes: as names, as text, or into an array when there is one. */
struct list {
	const struct jm_cli *cli;
	const char *device;	 /* only what serves it; NULL = everything */
	bool all, published;	 /* as given */
	bool describes, options; /* members; and what a source takes */
	json_t *array;
	const char *title; /* of the kind; NULL = it is printed already */
	char names[4000];  /* of a kind, where it is not described */
};

static const struct jm_option options[] = {
	JM_JSON_OPTION,
	{JM_DEVICE_ROW, JM_BIND(JM_TEXT, struct list, device)},
	{.name = "all",
		JM_BIND(JM_FLAG, struct list, all),
		.help = "describe everything, with the options of each source"},
	{.name = "published",
		JM_BIND(JM_FLAG, struct list, published),
		.help = "list the figures of papers that 'report --published' and 'compare "
			"--published' show beside records of the same work, instead of members"},
	{0},
};

static void print_title(struct list *l)
{
	if (l->title && !l->array)
		jm_text_wrap(l->cli->out, l->title, 0, 2, l->cli->width);
	l->title = NULL;
}

/* One line, or one object: kind, name, what may follow "name:", summary. */
static void show(struct list *l, const char *kind, const char *name, const char *argument,
	const char *summary)
{
	char full[80];

	snprintf(full, sizeof(full), "%s%s%s%s", name, argument ? "[:" : "",
		argument ? argument : "", argument ? "]" : "");
	print_title(l);
	if (l->array)
		json_array_append_new(
			l->array, json_pack("{ss ss ss? ss}", "kind", kind, "name", name,
					  "argument", argument, "summary", summary));
	else if (l->describes)
		jm_text_entry(l->cli->out, full, summary, 2, 23, l->cli->width);
	else
		jm_text_append(l->names, sizeof(l->names), ", ", name);
}

static void show_absent(struct list *l, const struct jm_absent *absent)
{
	char summary[256];

	for (; absent->name && !l->device && (l->array || l->describes); absent++) {
		snprintf(summary, sizeof(summary), "not built in: %s", absent->reason);
		show(l, absent->kind, absent->name, NULL, summary);
	}
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
		else if (l->options)
			jm_text_entry(l->cli->out, text, o->help, 4, 27, l->cli->width);
	}
}

/* ---- the kinds ---- */

static bool serves(const struct list *l, const char *member, enum jm_origin origin)
{
	return !l->device || jm_device_is_served(l->device, member, origin);
}

static void show_sources(struct list *l)
{
	for (int i = 0; jm_sources[i]; i++) {
		if (!serves(l, jm_sources[i]->name, jm_sources[i]->origin))
			continue;
		show(l, "source", jm_sources[i]->name, NULL, jm_sources[i]->summary);
		show_options(l, jm_sources[i]);
	}
	show_absent(l, jm_absent_sources);
}

static void show_controls(struct list *l)
{
	for (int i = 0; jm_controls[i]; i++)
		if (serves(l, jm_controls[i]->name, jm_controls[i]->origin))
			show(l, "control", jm_controls[i]->name, jm_controls[i]->argument,
				jm_controls[i]->summary);
	show_absent(l, jm_absent_controls);
}

/* The device at *at of a list, and on to the next; false at the end. */
static bool next_device(const char **at, char *out, size_t size)
{
	if (!**at)
		return false;
	snprintf(out, size, "%.*s", (int)strcspn(*at, ","), *at);
	*at += strcspn(*at, ",");
	*at += **at == ',';
	return true;
}

/* Does it run on every device that is named? */
static bool runs(const struct list *l, const struct jm_workload *w)
{
	char one[64];
	bool all = true;

	if (!l->device || !w->check)
		return !l->device || !jm_case_simulated(l->device);
	for (const char *at = l->device; all && next_device(&at, one, sizeof(one));)
		all = !w->check(one, w->no_precision ? NULL : "f32", NULL);
	return all;
}

/* Is a device of the backend named, "cuda" or "cuda:1", or none at all? */
static bool is_named(const struct list *l, const char *backend)
{
	const char *at = l->device;
	size_t n = strlen(backend);
	char one[64];

	while (at && next_device(&at, one, sizeof(one)))
		if (!strncmp(one, backend, n) && (!one[n] || one[n] == ':'))
			return true;
	return !at;
}

static void show_workloads(struct list *l)
{
	for (int i = 0; jm_workloads[i]; i++)
		if (runs(l, jm_workloads[i]))
			show(l, "workload", jm_workloads[i]->name, NULL, jm_workloads[i]->summary);
	show_absent(l, jm_absent_workloads);
}

static void show_models(struct list *l)
{
	const struct jm_workload *train = jm_workload_find("train", NULL);

	for (int i = 0; jm_models[i] && train && runs(l, train); i++) {
		show(l, "model", jm_models[i]->name, NULL, jm_models[i]->summary);
		for (const struct jm_preset *p = jm_models[i]->presets; p && p->name; p++)
			show(l, "preset", p->name, NULL, p->summary);
	}
	show_absent(l, jm_absent_models);
}

/* Backends are loaded, so what there is can only be tried. */
static void show_backends(struct list *l)
{
	const char *name;

	for (size_t i = 0; (name = jm_backend_name(i)); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_device d;
		bool ok;

		if (!is_named(l, name))
			continue;
		ok = !jm_device_open(name, 1, &d, &err);
		show(l, "backend", name, NULL, ok ? d.backend->summary : err.text);
		if (ok)
			jm_device_close(&d);
	}
}

static void show_transports(struct list *l)
{
	for (int i = 0; jm_transports[i]; i++)
		show(l, "transport", jm_transports[i]->name, NULL, jm_transports[i]->summary);
	show_absent(l, jm_absent_transports);
}

static const struct {
	const char *name, *title;
	void (*show)(struct list *l);
} kinds[] = {
	{"sources", "Sources (--source): what measures", show_sources},
	{"controls", "Controls (--control): what can be set", show_controls},
	{"workloads", "Workloads: what 'joulemark run' runs", show_workloads},
	{"models", "Models and their presets: what is trained and served", show_models},
	{"backends", "Backends (--device): where workloads run, besides simulated nodes",
		show_backends},
	{"transports", "Transports: how the ranks of a case (--ranks) exchange what they compute",
		show_transports},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void show_kind(struct list *l, size_t k)
{
	*l->names = '\0';
	l->title = kinds[k].title;
	kinds[k].show(l);
	if (*l->names)
		jm_text_wrap(l->cli->out, l->names, 2, 2, l->cli->width);
}

/* The index of the kind; KINDS: there is none of that name. */
static size_t kind_of(const char *name)
{
	size_t k = 0;

	while (k < KINDS && strcmp(kinds[k].name, name) != 0)
		k++;
	return k;
}

static int no_such_kind(struct jm_cli *cli, const char *name)
{
	const char *names[KINDS], *near;
	char all[120] = "";

	for (size_t k = 0; k < KINDS; k++) {
		names[k] = kinds[k].name;
		jm_text_append(all, sizeof(all), ", ", names[k]);
	}
	near = jm_did_you_mean(name, names, KINDS);
	return jm_err_set(&cli->err, JM_EUSAGE, "'list' does not know '%s'; %s%s%s %s. " DEVICES,
		name, near ? "did you mean '" : "", near ? near : "",
		near ? "'? The kinds are" : "the kinds are", all);
}

/* Of all works: no records choose among them. */
static int list_published(struct jm_cli *cli, const struct list *l)
{
	const struct jm_grouping none = {.options = {.width = cli->width, .bold = cli->colour}};

	if (cli->n_args || l->device || l->all)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--published lists the figures of all papers; give it without %s.",
			cli->n_args ? "a kind" : "--device and --all");
	return jm_json_wanted(cli) ? jm_json_put(cli, jm_published_of(&none))
				   : jm_published_write_table(&none, cli->out, &cli->err);
}

static int list_kinds(struct jm_cli *cli, struct list *l)
{
	const char *kind = cli->n_args ? cli->args[0] : NULL;
	int rc = l->device ? jm_device_option_check(l->device, &cli->err) : 0;

	if (!rc && kind && kind_of(kind) == KINDS)
		rc = no_such_kind(cli, kind);
	if (rc)
		return rc;
	l->options = kind || l->all;
	l->describes = l->options || l->device;
	l->array = jm_json_wanted(cli) ? json_array() : NULL;
	for (size_t k = 0; k < KINDS; k++)
		if (!kind || k == kind_of(kind))
			show_kind(l, k);
	if (l->array)
		return jm_json_put(cli, l->array);
	if (!l->describes && !cli->quiet)
		jm_text_wrap(cli->out,
			"'joulemark list models' describes one kind, 'joulemark list --all' "
			"everything. " DEVICES,
			0, 0, cli->width);
	return 0;
}

static int run_list(struct jm_cli *cli)
{
	struct list l = {.cli = cli};
	int rc;

	JM_FILL(&cli->values, &l);
	rc = l.published ? list_published(cli, &l) : list_kinds(cli, &l);
	return rc ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_list = {
	.name = "list",
	.summary = "list sources, controls, workloads, models and backends",
	.usage = "[options] [KIND]",
	.description = "Lists the names of what this build offers. With a KIND (sources, controls, "
		       "workloads, models, backends, transports), with --device or with --all it "
		       "also describes them, and what the build lacks with the reason. 'joulemark "
		       "doctor' tests what works on this machine. --published lists the figures of "
		       "papers.",
	.example = "joulemark list models\n"
		   "joulemark list --device sim:h100x4",
	.options = options,
	.max_args = 1,
	.run = run_list,
};
