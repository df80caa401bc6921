/* SPDX-License-Identifier: Apache-2.0 */
/* From the command line of `run` to the request that a plan is made from. */
#include "run_request.h"
#include "cli/frame/work_options.h"
#include "cli/measure/measure_store.h"
#include "cli/settings/hold.h"
#include "guard/control.h"
#include "measure/command/output_items.h"
#include "measure/session/progress.h"
#include "meter/source.h"
#include "run_protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_NAMES   160
#define MOST_DIGITS 9 /* of a number of steps */

static const char *text_of(const struct jm_cli *cli, const char *name)
{
	return jm_values_text(&cli->values, name);
}

static bool given(const struct jm_cli *cli, const char *name)
{
	const struct jm_value *value = jm_values_get(&cli->values, name);

	return value && value->given;
}

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
	for (const struct jm_option *o = cli->cmd->options; o->name; o++) {
		bool may = !given(cli, o->name) || o->use & JM_OPTION_OF_CALL;

		for (size_t i = 0; i < sizeof(free_to_give) / sizeof(*free_to_give); i++)
			may = may || !strcmp(o->name, free_to_give[i]);
		for (size_t i = 0; i < sizeof(of_files) / sizeof(*of_files); i++)
			may = may && !(given(cli, o->name) && !strcmp(o->name, of_files[i]));
		if (!may)
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

static int check_device(struct jm_cli *cli, const struct jm_workload *w, const char *device,
	const json_t *precisions)
{
	const json_t *precision;
	size_t k;
	int rc = precisions ? 0 : lacks(cli, "device", device, w->check(device, NULL, &cli->err));

	json_array_foreach(precisions, k, precision)
	{
		if (!rc)
			rc = lacks(cli, "device", device,
				w->check(device, json_string_value(precision), &cli->err));
	}
	return rc;
}

static json_t *joined(struct jm_cli *cli)
{
	return json_pack("[s]", text_of(cli, "device"));
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

static int join_own_devices(struct jm_cli *cli, const struct jm_workload *w, json_t *what)
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
			return json_object_set_new(what, "device", joined(cli));
	}
	return 0;
}

/*
 * With --ranks the devices are those of the ranks, in their order: no axis, but one value. One device is that of
 * all ranks.
 */
static int join_devices(struct jm_cli *cli, json_t *what)
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
	json_object_set_new(what, "device", joined(cli));
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
	json_t *options = json_object_get(what, "options");
	int rc = 0;

	for (const struct jm_option *row = jm_soft_options; row->name && !rc; row++)
		if (text_of(cli, row->name))
			rc = jm_work_options_add(cli, row, text_of(cli, row->name), options);
	return rc;
}

/* --env NAME=VALUE, the last one of a name; --fast is a variable as well. */
static int add_environment(struct jm_cli *cli, json_t *what)
{
	const struct jm_value *env = jm_values_get(&cli->values, "env");
	json_t *variables = json_object();
	int rc = variables ? 0 : no_memory(cli);

	for (int i = 0; i < env->n_texts && !rc; i++) {
		const char *equals = strchr(env->texts[i], '=');
		char *name = NULL;

		if (!equals || equals == env->texts[i]) {
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"--env '%s' is not a variable; write it as NAME=VALUE.",
				env->texts[i]);
			break;
		}
		name = strndup(env->texts[i], (size_t)(equals - env->texts[i]));
		if (!name || json_object_set_new(variables, name, json_string(equals + 1)))
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"--env '%s' is not UTF-8 text and cannot be stored.",
				env->texts[i]);
		free(name);
	}
	if (!rc && jm_values_number(&cli->values, "fast") > 0)
		json_object_set_new(variables, "JM_CUDA_FAST", json_string("1"));
	if (!rc && json_object_size(variables))
		json_object_set(what, "environment", variables);
	json_decref(variables);
	return rc;
}

/* A model or preset selects its workload: `run gpt-117m` is `run train --model gpt-117m`. */
static int add_workload(struct jm_cli *cli, json_t *what)
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
		rc = add_environment(cli, what);
	json_object_set_new(what, "workload", json_string(w->name));
	json_object_set_new(what, "device", split(text_of(cli, "device")));
	if (!w->no_precision)
		json_object_set_new(what, "precision", split(text_of(cli, "precision")));
	else if (!rc && given(cli, "precision"))
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"The workload '%s' has no option for the precision; omit --precision.",
			w->name);
	if (!rc)
		rc = join_devices(cli, what);
	if (!rc)
		rc = join_own_devices(cli, w, what);
	return rc ? rc : check_work(cli, w, what);
}

bool jm_run_begins_command(const struct jm_cli *cli, const char *word)
{
	return !cli->n_args && !jm_work_find(word, NULL) && jm_hold_executable(word);
}

/* A wrong expression is reported before every case of a sweep has failed because of it. */
static int check_scan(struct jm_cli *cli, const char *regex, const char *json)
{
	struct jm_scan *scan = NULL;
	int rc = regex || json ? jm_scan_new(regex, json, &scan, &cli->err) : 0;

	if (!rc && text_of(cli, "items-kind"))
		rc = jm_scan_check_numbers(scan, &cli->err);
	jm_scan_free(scan);
	return rc;
}

/* What only a workload has. */
static int check_own(struct jm_cli *cli, const char *option)
{
	if (!given(cli, option))
		return 0;
	return jm_err_set(&cli->err, JM_EUSAGE,
		"--%s is for joulemark's own workloads: an outside command chooses that by itself; "
		"omit --%s.",
		option, option);
}

static int add_throughput(struct jm_cli *cli, json_t *what)
{
	const char *regex = text_of(cli, "items-regex"), *json = text_of(cli, "items-json");
	json_t *throughput = jm_command_throughput(&cli->values);
	int rc = 0;

	if (regex && json)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"--items-regex and --items-json exclude each other; give one of them.");
	else
		rc = check_scan(cli, regex, json);
	if (json_object_size(throughput))
		json_object_set(what, "throughput", throughput);
	json_decref(throughput);
	return rc;
}

static int add_command(struct jm_cli *cli, json_t *what)
{
	json_t *command = json_array();
	int rc = check_extra(cli, "a command");

	if (!rc)
		rc = check_own(cli, "device");
	if (!rc)
		rc = check_own(cli, "precision");
	if (!rc)
		rc = check_own(cli, "fast");
	for (const struct jm_option *row = jm_soft_options; row->name && !rc; row++)
		rc = check_own(cli, row->name);
	for (char **word = cli->command; *word && !rc; word++)
		if (json_array_append_new(command, json_string(*word)))
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"The argument '%s' of the command is not UTF-8 text and cannot be "
				"stored.",
				*word);
	json_object_set_new(what, "command", command);
	if (!rc)
		rc = add_throughput(cli, what);
	return rc ? rc : add_environment(cli, what);
}

/* The first epoch is the warm-up, the others are the measured phase. */
static int add_epochs(struct jm_cli *cli, json_t *what)
{
	if (text_of(cli, "warmup") || given(cli, "steps") || given(cli, "seconds"))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--epochs sets the length of the run, and so do --steps, --seconds and "
			"--warmup; give either --epochs or the others.");
	json_object_set_new(
		what, "epochs", json_integer((json_int_t)jm_values_number(&cli->values, "epochs")));
	json_object_set_new(what, "epoch_steps",
		json_integer((json_int_t)jm_values_number(&cli->values, "epoch-steps")));
	return 0;
}

static int add_lengths(struct jm_cli *cli, json_t *what)
{
	const char *warm = text_of(cli, "warmup");
	double seconds;

	if (cli->command &&
		(warm || given(cli, "steps") || given(cli, "seconds") || given(cli, "epochs")))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--steps, --seconds, --epochs and --warmup apply to workloads only: a "
			"command decides itself how long it runs.");
	if (given(cli, "epochs"))
		return add_epochs(cli, what);
	if (given(cli, "epoch-steps"))
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
	if (given(cli, "steps"))
		json_object_set_new(what, "steps",
			json_integer((json_int_t)jm_values_number(&cli->values, "steps")));
	if (given(cli, "seconds"))
		json_object_set_new(
			what, "seconds", json_real(jm_values_number(&cli->values, "seconds")));
	return 0;
}

/* A misspelt one is reported before every case of a sweep has failed because of it. */
static int add_source(struct jm_cli *cli, const char *text, size_t n, json_t *sources)
{
	char name[64];

	snprintf(name, sizeof(name), "%.*s", (int)n, text);
	name[strcspn(name, ":")] = '\0';
	if (!jm_source_find(name, &cli->err) && lacks(cli, "source", name, cli->err.code))
		return cli->err.code;
	return json_array_append_new(sources, json_stringn(text, n)) ? no_memory(cli) : 0;
}

static int add_sources(struct jm_cli *cli, json_t *how)
{
	const struct jm_value *source = jm_values_get(&cli->values, "source");
	json_t *sources = json_array();
	int rc = json_object_set_new(how, "sources", sources) ? no_memory(cli) : 0;

	for (int i = 0; i < source->n_texts; i++) {
		const char *text = source->texts[i];

		while (!rc && *text) {
			size_t n = jm_source_length(text);

			if (n)
				rc = add_source(cli, text, n, sources);
			text += n + (text[n] == ',');
		}
	}
	return rc;
}

/* A misspelt one is reported before anything runs, even where nothing is set. */
static int add_controls(struct jm_cli *cli, json_t *how)
{
	const char *text = text_of(cli, "control");

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

static json_t *make_how(struct jm_cli *cli)
{
	static const char *const times[] = {"interval", "timeout", "selftest", "steady"};
	json_t *how = json_object();
	char key[16];

	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
		snprintf(key, sizeof(key), "%s_s", times[i]);
		if (given(cli, times[i]))
			json_object_set_new(
				how, key, json_real(jm_values_number(&cli->values, times[i])));
	}
	json_object_set_new(
		how, "real_time", json_boolean(jm_values_number(&cli->values, "real-time") > 0));
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
static int add_set(struct jm_cli *cli, json_t *what)
{
	const struct jm_value *set = jm_values_get(&cli->values, "set");
	json_t *texts = json_array();
	int rc = texts ? 0 : no_memory(cli);

	for (int i = 0; i < set->n_texts && !rc; i++)
		if (json_array_append_new(texts, json_string(set->texts[i])))
			rc = jm_err_set(&cli->err, JM_EUSAGE,
				"--set '%s' is not UTF-8 text and cannot be stored.",
				set->texts[i]);
	if (!rc && set->n_texts)
		json_object_set(what, "set", texts);
	json_decref(texts);
	return rc;
}

json_t *jm_run_request(struct jm_cli *cli)
{
	json_t *what = json_object(), *how = make_how(cli), *request;
	int rc;

	if (cli->command && cli->n_args)
		rc = jm_err_set(&cli->err, JM_EUSAGE,
			"'%s' and a command after '--' exclude each other; give one of them.",
			cli->args[0]);
	else if (cli->command)
		rc = add_command(cli, what);
	else if (cli->n_args)
		rc = add_workload(cli, what);
	else
		rc = nothing_to_run(cli);
	if (!rc)
		rc = add_lengths(cli, what);
	if (!rc)
		rc = add_set(cli, what);
	if (!rc)
		rc = jm_run_protocol(cli, how);
	if (!rc)
		rc = add_sources(cli, how);
	if (!rc)
		rc = add_controls(cli, how);
	if (rc) {
		json_decref(what);
		json_decref(how);
		return NULL;
	}
	request = json_pack("{s:o, s:[], s:o, s:i, s:I}", "what", what, "found", "how", how,
		"repeat", (int)jm_values_number(&cli->values, "repeat"), "seed",
		(json_int_t)jm_values_number(&cli->values, "seed"));
	if (!request)
		no_memory(cli);
	return request;
}
