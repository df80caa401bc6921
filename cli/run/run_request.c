/* SPDX-License-Identifier: Apache-2.0 */
/* From the command line of `run` to the request that a plan is made from. */
#include "run_request.h"
#include "cli/frame/device_option.h"
#include "cli/frame/work_options.h"
#include "cli/measure/measure_store.h"
#include "guard/control.h"
#include "measure/command/output_items.h"
#include "measure/session/progress.h"
#include "meter/source.h"
#include "result/case_id.h"
#include "run_options.h"
#include "run_protocol.h"
#include "run_affinity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_NAMES   160
#define MOST_DIGITS 9 /* of a number of steps */

static int no_memory(struct jm_cli *cli)
{
	return jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the plan.");
}

/* For work without options. */
static int check_extra(struct jm_cli *cli, const char *who)
{
	return jm_work_options_check(cli, &(struct jm_work_options){.who = who});
}

int jm_run_check_resume(struct jm_cli *cli)
{
	static const char *const free_to_give[] = {"repeat", "control"};
	static const char *const of_files[] = {"platform", "tag"};

	if (cli->n_args || cli->command || cli->n_extra)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--resume takes the plan from the store; omit the workload or command.");
	for (const struct jm_value *v = cli->values.value; v < cli->values.value + cli->values.n;
		v++) {
		const struct jm_option *o = v->option;
		bool may = o->use & JM_OPTION_OF_CALL;

		for (size_t i = 0; i < sizeof(free_to_give) / sizeof(*free_to_give); i++)
			may = may || !strcmp(o->name, free_to_give[i]);
		for (size_t i = 0; i < sizeof(of_files) / sizeof(*of_files); i++)
			may = may && strcmp(o->name, of_files[i]) != 0;
		if (v->given && !may)
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--resume takes the plan from the store, including --%s; omit that "
				"option.",
				o->name);
	}
	return 0;
}

static json_t *split(const char *list)
{
	json_t *array = json_array();
	char *copy = strdup(list), *rest = copy, *part;

	while (copy && (part = strsep(&rest, ",")))
		if (*part)
			json_array_append_new(array, json_string(part));
	free(copy);
	return array;
}

/* Workloads and models together, since either may be given. */
static int no_such_work(struct jm_cli *cli, const char *name)
{
	const char *names[MAX_NAMES], *near;
	size_t n = 0;

	for (int i = 0; jm_workloads[i] && n < MAX_NAMES; i++)
		names[n++] = jm_workloads[i]->name;
	for (int i = 0; jm_models[i] && n < MAX_NAMES; i++) {
		names[n++] = jm_models[i]->name;
		for (const struct jm_preset *p = jm_models[i]->presets;
			p && p->name && n < MAX_NAMES; p++)
			names[n++] = p->name;
	}
	near = jm_did_you_mean(name, names, n);
	if (near)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"There is no workload, model or command '%s'; did you mean '%s'?", name,
			near);
	return jm_err_set(&cli->err, JM_EUSAGE,
		"There is no workload, model or command '%s'; 'joulemark list' lists workloads and "
		"models.",
		name);
}

/* A plan may be looked at on a machine that cannot run it. */
static int lacks(struct jm_cli *cli, const char *kind, const char *name, int rc)
{
	char what[200];

	if (!rc || !cli->lacks || rc == JM_ENOMEM)
		return rc;
	snprintf(what, sizeof(what), "%s %s", kind, name);
	json_object_set_new(cli->lacks, what, json_string(cli->err.text));
	cli->err = (struct jm_err)JM_ERR_INIT;
	return 0;
}

/* A node that is simulated computes nothing: it answers as published. */
static int check_one(
	struct jm_cli *cli, const struct jm_workload *w, const char *device, const char *precision)
{
	struct jm_err why = JM_ERR_INIT;
	int rc = w->check(device, precision, &why);

	if (!rc)
		return 0;
	if (!jm_case_simulated(device) || !strcmp(w->name, "sim"))
		return jm_err_set(&cli->err, rc, "%s", why.text);
	return jm_err_set(&cli->err, JM_EUSAGE,
		"A simulated node computes nothing, so that '%s' cannot run on %s: give --device "
		"cpu or cuda:0, or run the workload sim, which answers as published work does "
		"('joulemark run sim --device %s'; 'joulemark help sim' lists the works).",
		cli->n_args ? cli->args[0] : w->name, device, device);
}

static int check_device(struct jm_cli *cli, const struct jm_workload *w, const char *device,
	const json_t *precisions)
{
	const json_t *precision;
	size_t k;
	int rc = precisions ? 0 : lacks(cli, "device", device, check_one(cli, w, device, NULL));

	json_array_foreach(precisions, k, precision)
	{
		if (!rc)
			rc = lacks(cli, "device", device,
				check_one(cli, w, device, json_string_value(precision)));
	}
	return rc;
}

static json_t *joined(const struct jm_run_given *g)
{
	return json_pack("[s]", g->device);
}

/* Where one process uses several devices, the list is one value and no axis. */
static int check_own_devices(struct jm_cli *cli, const struct jm_workload *w, const char *option,
	const json_t *values, int given)
{
	int most = 1, n = 1;
	const json_t *value;
	size_t i;

	json_array_foreach(values, i, value)
	{
		n = w->devices_of(option, json_string_value(value));
		most = n > most ? n : most;
	}
	json_array_foreach(values, i, value)
	{
		n = w->devices_of(option, json_string_value(value));
		if (most > 1 && n != given)
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--%s %s uses %d device%s, and --device names %d; give --device %s "
				"for it.",
				option, json_string_value(value), n, n == 1 ? "" : "s", given,
				n == 1 ? "cuda:0" : "cuda:0,cuda:1");
	}
	return most;
}

static int join_own_devices(
	struct jm_cli *cli, const struct jm_run_given *g, const struct jm_workload *w, json_t *what)
{
	int given = (int)json_array_size(json_object_get(what, "device"));
	const char *option;
	json_t *values;

	if (!w->devices_of)
		return 0;
	json_object_foreach(json_object_get(what, "options"), option, values)
	{
		int most = check_own_devices(cli, w, option, values, given);

		if (most < 0)
			return most;
		if (most > 1)
			return json_object_set_new(what, "device", joined(g));
	}
	return 0;
}

/*
 * With --ranks the devices are those of the ranks, in their order: no axis, but one value. One
 * device is that of all ranks.
 */
static int join_devices(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	const json_t *ranks = json_object_get(json_object_get(what, "options"), "ranks"), *one;
	size_t n = json_array_size(json_object_get(what, "device")), i;
	long most = 0;

	json_array_foreach(ranks, i, one)
	{
		long some = strtol(json_string_value(one), NULL, 10);

		most = some > most ? some : most;
	}
	if (!most || n < 2)
		return 0;
	if (n < (size_t)most)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--device names %zu devices for %ld ranks; name one for each of them, or "
			"one for all.",
			n, most);
	json_object_set_new(what, "device", joined(g));
	return 0;
}

/* A misspelt device or precision is reported before every case has failed because of it. */
static int check_work(struct jm_cli *cli, const struct jm_workload *w, const json_t *what)
{
	const json_t *devices = json_object_get(what, "device"), *device;
	const json_t *precisions = json_object_get(what, "precision");
	size_t i;
	int rc = 0;

	if (!json_array_size(devices) || (precisions && !json_array_size(precisions)))
		return jm_err_set(
			&cli->err, JM_EUSAGE, "--device and --precision need at least one value.");
	if (!w->check)
		return 0;
	json_array_foreach(devices, i, device)
	{
		json_t *each = split(json_string_value(device)), *one;
		size_t d;

		json_array_foreach(each, d, one)
		{
			if (!rc)
				rc = check_device(cli, w, json_string_value(one), precisions);
		}
		json_decref(each);
	}
	return rc;
}

/* Soft control is for every workload, and swept as its options are. */
static int add_soft(struct jm_cli *cli, json_t *what)
{
	json_t *options = json_object_get(what, "options"), *one;
	size_t i;
	int rc = 0;

	for (const struct jm_option *row = jm_soft_options; row->name && !rc; row++)
		if (jm_cli_given(cli, row->name))
			rc = jm_work_options_add(
				cli, row, jm_values_text(&cli->values, row->name), options);
	json_array_foreach(json_object_get(options, "affinity"), i, one) if (!rc) rc =
		jm_run_affinity_check(json_string_value(one), &cli->err);
	return rc;
}

/* --env NAME=VALUE, the last one of a name; --fast is a variable as well. */
static int add_environment(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	json_t *variables = json_object();
	int rc = variables ? 0 : no_memory(cli);

	for (char *const *env = g->env; env && *env && !rc; env++) {
		const char *equals = strchr(*env, '=');
		char *name = NULL;

		if (!equals || equals == *env) {
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"--env '%s' is not a variable; write it as NAME=VALUE.", *env);
			break;
		}
		name = strndup(*env, (size_t)(equals - *env));
		if (!name || json_object_set_new(variables, name, json_string(equals + 1)))
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"--env '%s' is not UTF-8 text and cannot be stored.", *env);
		free(name);
	}
	if (!rc && g->fast)
		json_object_set_new(variables, "JM_CUDA_FAST", json_string("1"));
	if (!rc && json_object_size(variables))
		json_object_set(what, "environment", variables);
	json_decref(variables);
	return rc;
}

/* A model or preset selects its workload: `run gpt-117m` is `run train --model gpt-117m`. */
static int add_workload(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	const char *name = cli->args[0];
	const struct jm_model *model;
	const struct jm_workload *w = jm_work_find(name, &model);
	char who[96];
	int rc;

	if (!w)
		return no_such_work(cli, name);
	if (model && jm_work_options_text(cli, "model"))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"'%s' and --model exclude each other; give one of them.", name);
	if (model && jm_work_options_give(cli, "model", name))
		return cli->err.code;
	snprintf(who, sizeof(who), "workload '%.64s'", w->name);
	rc = jm_work_options_request(cli, w, who, what);
	if (!rc)
		rc = add_soft(cli, what);
	if (!rc)
		rc = add_environment(cli, g, what);
	json_object_set_new(what, "workload", json_string(w->name));
	json_object_set_new(what, "device", split(g->device));
	if (!w->no_precision)
		json_object_set_new(what, "precision", split(g->precision));
	else if (!rc && g->precision_given)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"The workload '%s' has no option for the precision; omit --precision.",
			w->name);
	if (!rc)
		rc = join_devices(cli, g, what);
	if (!rc)
		rc = join_own_devices(cli, g, w, what);
	return rc ? rc : check_work(cli, w, what);
}

/* A wrong expression is reported before every case of a sweep has failed because of it. */
static int check_scan(struct jm_cli *cli, const struct jm_run_given *g)
{
	struct jm_scan *scan = NULL;
	const struct jm_item_options *o = &g->items;
	int rc = o->regex || o->json ? jm_scan_new(o->regex, o->json, &scan, &cli->err) : 0;

	if (!rc && o->kind)
		rc = jm_scan_check_numbers(scan, &cli->err);
	jm_scan_free(scan);
	return rc;
}

/* What only a workload has. */
static int check_own(struct jm_cli *cli)
{
	static const char *const own[] = {"precision", "fast", NULL};
	const char *option = jm_cli_first_given(cli, own);

	for (const struct jm_option *row = jm_soft_options; row->name && !option; row++)
		option = jm_cli_given(cli, row->name) ? row->name : NULL;
	if (!option)
		return 0;
	return jm_err_set(&cli->err, JM_EUSAGE,
		"--%s is for joulemark's own workloads: an outside command chooses that by itself; "
		"omit --%s.",
		option, option);
}

static int add_throughput(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	json_t *throughput = jm_command_throughput(&g->items);
	int rc = 0;

	if (g->items.regex && g->items.json)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"--items-regex and --items-json exclude each other; give one of them.");
	else
		rc = check_scan(cli, g);
	if (json_object_size(throughput))
		json_object_set(what, "throughput", throughput);
	json_decref(throughput);
	return rc;
}

static int add_command(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	json_t *command = json_array();
	int rc = check_extra(cli, "a command");

	if (!rc)
		rc = check_own(cli);
	for (char **word = cli->command; *word && !rc; word++)
		if (json_array_append_new(command, json_string(*word)))
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"The argument '%s' of the command is not UTF-8 text and cannot be "
				"stored.",
				*word);
	json_object_set_new(what, "command", command);
	if (!rc)
		rc = add_throughput(cli, g, what);
	return rc ? rc : add_environment(cli, g, what);
}

/* NAN is not given. */
static void add_number(json_t *object, const char *key, double number)
{
	if (!isnan(number))
		json_object_set_new(object, key, json_real(number));
}

/* The first epoch is the warm-up, the others are the measured phase; a single one is that phase,
 * and with --warmup 0 all are. */
static int add_epochs(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	bool none = g->warmup && !strcmp(g->warmup, "0");

	if ((g->warmup && !none) || g->steps || !isnan(g->seconds))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--epochs sets the length of the run, and so do --steps, --seconds and "
			"--warmup, but for --warmup 0; give either --epochs or the others.");
	if (none)
		json_object_set_new(what, "warmup", json_string(g->warmup));
	json_object_set_new(what, "epochs", json_integer(g->epochs));
	if (g->epoch_steps)
		json_object_set_new(what, "epoch_steps", json_integer(g->epoch_steps));
	return 0;
}

static int add_lengths(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	const char *warm = g->warmup;
	double seconds;

	if (cli->command && (warm || g->steps || !isnan(g->seconds) || g->epochs))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--steps, --seconds, --epochs and --warmup apply to workloads only: a "
			"command decides itself how long it runs.");
	if (g->epochs)
		return add_epochs(cli, g, what);
	if (g->epoch_steps)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--epoch-steps has no effect without --epochs; give both.");
	if (warm && warm[strspn(warm, "0123456789")] &&
		jm_parse_quantity(warm, "s", true, &seconds, &cli->err))
		return cli->err.code;
	if (warm && strspn(warm, "0") + MOST_DIGITS < strlen(warm) &&
		!warm[strspn(warm, "0123456789")])
		return jm_err_set(&cli->err, JM_ERANGE,
			"--warmup %s is outside its range 0 to 999999999 steps.", warm);
	if (warm)
		json_object_set_new(what, "warmup", json_string(warm));
	if (g->steps)
		json_object_set_new(what, "steps", json_integer(g->steps));
	add_number(what, "seconds", g->seconds);
	return 0;
}

/* A misspelt one is reported before every case of a sweep has failed because of it. */
static int add_source(struct jm_cli *cli, const char *text, json_t *sources)
{
	char name[64];

	snprintf(name, sizeof(name), "%s", text);
	name[strcspn(name, ":")] = '\0';
	if (!jm_source_find(name, &cli->err) && lacks(cli, "source", name, cli->err.code))
		return cli->err.code;
	return json_array_append_new(sources, json_string(text)) ? no_memory(cli) : 0;
}

/* An outside command's --device says what is measured and set; a workload computes on its own. */
static const char *device_of_command(const struct jm_cli *cli, const struct jm_run_given *g)
{
	return cli->command && jm_cli_given(cli, "device") ? g->device : NULL;
}

static int add_sources(struct jm_cli *cli, const struct jm_run_given *g, json_t *how)
{
	json_t *sources = json_array();
	struct jm_source_list list = {0};
	int rc = json_object_set_new(how, "sources", sources) ? no_memory(cli) : 0;

	if (!rc)
		rc = jm_device_sources(device_of_command(cli, g), g->source, &list, &cli->err);
	for (int i = 0; i < list.n && !rc; i++)
		rc = add_source(cli, list.name[i], sources);
	jm_source_list_done(&list);
	return rc;
}

/* A misspelt one is reported before anything runs, even where nothing is set. */
static int add_controls(struct jm_cli *cli, const struct jm_run_given *g, json_t *how)
{
	const char *text;
	char members[400];

	if (jm_device_controls(device_of_command(cli, g), g->control, members, sizeof(members),
		    &text, &cli->err))
		return cli->err.code;
	if (!text)
		return 0;
	for (const char *at = text; *at; at += strcspn(at, ","), at += *at == ',') {
		char name[64] = "";
		size_t n = strcspn(at, ",:");

		memcpy(name, at, n < sizeof(name) ? n : sizeof(name) - 1);
		if (!jm_control_find(name, &cli->err) && lacks(cli, "control", name, cli->err.code))
			return cli->err.code;
	}
	return json_object_set_new(how, "control", json_string(text)) ? no_memory(cli) : 0;
}

static json_t *make_how(const struct jm_run_given *g)
{
	json_t *how = json_object();

	add_number(how, "interval_s", g->interval);
	add_number(how, "timeout_s", g->timeout);
	add_number(how, "selftest_s", g->selftest);
	add_number(how, "steady_s", g->steady);
	json_object_set_new(how, "real_time", json_boolean(g->real_time));
	return how;
}

/* A misspelt option of `run` is the nearer error. */
static int nothing_to_run(struct jm_cli *cli)
{
	int rc = check_extra(cli, "any workload");

	return rc ? rc
		  : jm_err_set(&cli->err, JM_EUSAGE,
			    "No work is named: give a workload, a model or a command.");
}

/* As it was written; jm_run_request_settings reads it with the knobs. */
static int add_set(struct jm_cli *cli, const struct jm_run_given *g, json_t *what)
{
	json_t *texts = json_array();
	int rc = texts ? 0 : no_memory(cli);

	for (char *const *set = g->set; set && *set && !rc; set++)
		if (json_array_append_new(texts, json_string(*set)))
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"--set '%s' is not UTF-8 text and cannot be stored.", *set);
	if (!rc && g->set)
		json_object_set(what, "set", texts);
	json_decref(texts);
	return rc;
}

static json_t *make_request(struct jm_cli *cli, const struct jm_run_given *g)
{
	json_t *what = json_object(), *how = make_how(g), *request;
	int rc;

	if (cli->command && cli->n_args)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"'%s' and a command after '--' exclude each other; give one of them.",
			cli->args[0]);
	else if (cli->command)
		rc = add_command(cli, g, what);
	else if (cli->n_args)
		rc = add_workload(cli, g, what);
	else
		rc = nothing_to_run(cli);
	if (!rc)
		rc = jm_run_refuse_of_command(cli);
	if (!rc)
		rc = add_lengths(cli, g, what);
	if (!rc)
		rc = add_set(cli, g, what);
	if (!rc)
		rc = jm_run_protocol(cli, g, how);
	if (!rc)
		rc = add_sources(cli, g, how);
	if (!rc)
		rc = add_controls(cli, g, how);
	if (rc) {
		json_decref(what);
		json_decref(how);
		return NULL;
	}
	request = json_pack("{s:o, s:[], s:o, s:i, s:I}", "what", what, "found", "how", how,
		"repeat", g->repeat, "seed", (json_int_t)g->seed);
	if (!request)
		no_memory(cli);
	return request;
}

json_t *jm_run_request(struct jm_cli *cli)
{
	struct jm_run_given given = {0};

	JM_FILL(&cli->values, &given);
	return make_request(cli, &given);
}
