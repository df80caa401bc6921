/* SPDX-License-Identifier: Apache-2.0 */
/* plan: what a plan file would run, how long, and what it needs. */
#include "base/ctx.h"
#include "base/process/driver_call.h"
#include "base/text/json.h"
#include "cli/frame/json_option.h"
#include "cli/settings/hold.h"
#include "engine/device/backend_find.h"
#include "engine/device/device.h"
#include "meter/source.h"
#include "plan_file_options.h"
#include "plan_schema.h"
#include "report/format/text.h"
#include "list_cases.h"
#include "run_words.h"
#include "planned.h"
#include "run/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_LACKS 1

/* The shortest time of all cases; unknown: cases whose length is not known before they run. */
struct length {
	double seconds;
	int unknown, simulated;
};

static void add_case(const json_t *parameters, bool real_time, struct length *l)
{
	const char *device = json_string_value(json_object_get(parameters, "device"));
	const char *warmup = json_string_value(json_object_get(parameters, "warmup"));
	const json_t *seconds = json_object_get(parameters, "seconds");
	struct jm_err none = JM_ERR_INIT;
	double warm = JM_WORK_WARM_S;

	if (jm_case_simulated(device) && !real_time) {
		l->simulated++;
		return;
	}
	if (!json_object_get(parameters, "workload") || json_object_get(parameters, "epochs") ||
		json_object_get(parameters, "steps")) {
		l->unknown++;
		return;
	}
	if (warmup && jm_parse_quantity(warmup, "s", true, &warm, &none))
		warm = 0; /* a number of steps */
	l->seconds += warm + (seconds ? json_number_value(seconds) : JM_WORK_STEADY_S);
}

static struct length length_of(const struct jm_planned *p)
{
	const json_t *how = json_object_get(p->request, "how");
	struct length l = {0};

	for (int i = 0; i < p->plan.n; i++)
		add_case(p->plan.cases[i].parameters,
			json_is_true(json_object_get(how, "real_time")), &l);
	l.seconds *= p->plan.least_repeat;
	l.unknown *= p->plan.least_repeat;
	l.simulated *= p->plan.least_repeat;
	if (!l.simulated)
		l.seconds += p->plan.cooldown_s * (p->plan.n * p->plan.least_repeat - 1);
	return l;
}

static void time_text(const struct length *l, char *out, size_t size)
{
	long s = lround(l->seconds);
	char part[64];

	*out = '\0';
	if (s >= 3600)
		snprintf(out, size, "at least %ld h %ld min", s / 3600, s % 3600 / 60);
	else if (s >= 60)
		snprintf(out, size, "at least %ld min %ld s", s / 60, s % 60);
	else if (s)
		snprintf(out, size, "at least %ld s", s);
	snprintf(part, sizeof(part), "%d of unknown length", l->unknown);
	if (l->unknown)
		jm_text_append(out, size, ", ", part);
	snprintf(part, sizeof(part), "%d in simulated time", l->simulated);
	if (l->simulated)
		jm_text_append(out, size, ", ", part);
}

static void print_after(const struct jm_run_call *r, const struct jm_planned *p, FILE *out)
{
	for (int i = 0; p->run && i < p->run->n_after; i++)
		fprintf(out, "%s%s", i ? ", " : "; after ", r->file.run[p->run->after[i]].name);
}

static void print_run(struct jm_run_call *r, const struct jm_planned *p, FILE *out)
{
	struct length l = length_of(p);
	char time[128];

	time_text(&l, time, sizeof(time));
	fprintf(out, "%s: %d case%s x ", p->run->name, p->plan.n, p->plan.n == 1 ? "" : "s");
	if (p->plan.until > 0)
		fprintf(out, "%d to ", p->plan.least_repeat);
	fprintf(out, "%d repeat%s; %s", p->plan.repeat, p->plan.repeat == 1 ? "" : "s", time);
	print_after(r, p, out);
}

static void print_line(struct jm_run_call *r, const char *text, int indent)
{
	jm_text_wrap(r->cli->out, text, indent, indent + 4, r->cli->width);
}

static int print_runs(struct jm_run_call *r)
{
	struct length all = {0};
	char total[300], time[128];
	bool until = false;

	if (r->file.title)
		print_line(r, r->file.title, 0);
	for (int i = 0; i < r->n; i++) {
		struct length l = length_of(&r->planned[i]);
		char *text = NULL;
		size_t size = 0;
		FILE *out = open_memstream(&text, &size);

		if (!out)
			return jm_err_set(&r->cli->err, JM_ENOMEM, "Out of memory for the plan.");
		print_run(r, &r->planned[i], out);
		fclose(out);
		print_line(r, text, 2);
		free(text);
		until = until || r->planned[i].plan.until > 0;
		all.seconds += l.seconds;
		all.unknown += l.unknown;
		all.simulated += l.simulated;
	}
	time_text(&all, time, sizeof(time));
	snprintf(total, sizeof(total), "%s%d measurement%s in all: %s.", until ? "up to " : "",
		jm_planned_cases(r), jm_planned_cases(r) == 1 ? "" : "s", time);
	print_line(r, total, 0);
	return 0;
}

/* ---- needs ---- */

static void need(json_t *needs, const char *kind, const char *name)
{
	char what[300];

	snprintf(what, sizeof(what), "%s %s", kind, name);
	json_object_set_new(needs, what, json_true());
}

/* "cuda:0,cuda:1" are the devices of ranks. */
static void need_devices(json_t *needs, const char *list)
{
	char name[64];

	for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',') {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
		need(needs, "device", name);
	}
}

/* What is opened to see whether it can be; its driver may never answer. */
struct trial {
	struct jm_ctx *ctx;
	const struct jm_source *source; /* NULL: a device */
	struct jm_err why;
	char text[]; /* the name of the device, or the options of the source */
};

static struct trial *trial_of(
	struct jm_run_call *r, const struct jm_source *source, const char *text)
{
	struct trial *t = calloc(1, sizeof(*t) + strlen(text) + 1);

	if (!t)
		return NULL;
	t->ctx = &r->cli->ctx;
	t->source = source;
	memcpy(t->text, text, strlen(text) + 1);
	return t;
}

static void open_device(void *arg)
{
	struct trial *t = arg;
	struct jm_device d;

	if (!jm_device_open(t->text, 0, &d, &t->why))
		jm_device_close(&d);
}

static void open_source(void *arg)
{
	struct trial *t = arg;
	struct jm_meters set = {0};
	void *state = NULL;

	if (!jm_source_open(t->source, t->ctx, t->text, &set, &state, &t->why))
		t->source->close(state);
	jm_meters_done(&set);
}

/* Says in lacks why `what` is missing. */
static void try(struct jm_run_call *r, const char *what, void (*open)(void *arg), struct trial *t)
{
	if (t && !jm_driver_call_once(t->ctx, open, t)) {
		json_object_set_new(r->cli->lacks, what,
			json_string("Its driver has not returned from a call for 10 s; 'joulemark "
				    "doctor' shows what else is stuck."));
		return;
	}
	if (t && t->why.code)
		json_object_set_new(r->cli->lacks, what, json_string(t->why.text));
	free(t);
}

/* Can it compute here? That its backend is built in is not enough. */
static void try_device(struct jm_run_call *r, const char *what)
{
	const char *name = what + strlen("device ");
	struct jm_err none = JM_ERR_INIT;

	if (!json_object_get(r->cli->lacks, what) && jm_device_check(name, &none) != JM_EUSAGE)
		try(r, what, open_device, trial_of(r, NULL, name));
}

/* Can it be opened here? A misspelt one is in lacks already. */
static void try_source(struct jm_run_call *r, const char *text)
{
	const char *options = text + strcspn(text, ":");
	const struct jm_source *source;
	struct jm_err none = JM_ERR_INIT;
	char name[300], what[320];

	snprintf(name, sizeof(name), "%.*s", (int)(options - text), text);
	snprintf(what, sizeof(what), "source %s", name);
	source = jm_source_find(name, &none);
	if (source && !json_object_get(r->cli->lacks, what))
		try(r, what, open_source, trial_of(r, source, *options ? options + 1 : options));
}

static void list_settings(const json_t *part, json_t *needs)
{
	const json_t *axis;
	size_t i;

	json_array_foreach(json_object_get(part, "settings"), i, axis)
	{
		need(needs, "knob", json_string_value(json_object_get(axis, "knob")));
	}
}

static void list_needs(struct jm_run_call *r, const struct jm_planned *p, json_t *needs)
{
	const json_t *what = json_object_get(p->request, "what"), *part, *one;
	const json_t *how = json_object_get(p->request, "how");
	size_t i;

	for (size_t k = 0; (part = jm_plan_part(what, k)); k++) {
		const char *program =
			json_string_value(json_array_get(json_object_get(part, "command"), 0));
		char *argv[] = {(char *)(uintptr_t)program, NULL};
		struct jm_err why = JM_ERR_INIT;
		char name[300];

		json_array_foreach(json_object_get(part, "device"), i, one)
		{
			need_devices(needs, json_string_value(one));
		}
		list_settings(part, needs);
		if (!program)
			continue;
		need(needs, "program", program);
		snprintf(name, sizeof(name), "program %s", program);
		if (jm_hold_check(argv, &why))
			json_object_set_new(r->cli->lacks, name, json_string(why.text));
	}
	json_array_foreach(json_object_get(how, "sources"), i, one)
	{
		need(needs, "source", json_string_value(one));
		try_source(r, json_string_value(one));
	}
}

static const char *why_missing(const struct jm_run_call *r, const char *what)
{
	char name[300];

	if (!strncmp(what, "knob ", 5))
		return json_string_value(json_object_get(r->cli->lacks, "knobs"));
	/* a source with options is missed by its name */
	snprintf(name, sizeof(name), "%s", what);
	if (!strncmp(what, "source ", 7))
		name[strcspn(name, ":")] = '\0';
	return json_string_value(json_object_get(r->cli->lacks, name));
}

/* An object: null for what is here, else the reason why it is missing. */
static json_t *find_needs(struct jm_run_call *r, bool *ret_missing)
{
	json_t *needs = json_object(), *one;
	const char *what;

	for (int i = 0; i < r->n; i++)
		list_needs(r, &r->planned[i], needs);
	json_object_foreach(needs, what, one)
	{
		const char *why;

		if (!strncmp(what, "device ", strlen("device ")))
			try_device(r, what);
		why = why_missing(r, what);
		*ret_missing = *ret_missing || why;
		json_object_set_new(needs, what, why ? json_string(why) : json_null());
	}
	return needs;
}

static void print_needs(struct jm_run_call *r, json_t *needs)
{
	const char *what;
	json_t *why;

	fprintf(r->cli->out, "\nNeeds\n");
	json_object_foreach(needs, what, why)
	{
		char line[700];

		snprintf(line, sizeof(line), "%-24s %s%s", what,
			json_is_null(why) ? "here" : "missing: ",
			json_is_null(why) ? "" : json_string_value(why));
		print_line(r, line, 2);
	}
}

struct call {
	struct jm_plan_selection plan;
	bool cases, schema;
};

/* ---- as JSON ---- */

static json_t *cases_json(const struct jm_plan *plan)
{
	json_t *list = json_array();

	for (int i = 0; i < plan->n; i++) {
		json_t *one = json_object();

		jm_json_set_text(&one, "id", plan->cases[i].id);
		jm_json_set(&one, "parameters", json_incref(plan->cases[i].parameters));
		json_array_append_new(list, one);
	}
	return list;
}

static json_t *run_json(const struct jm_run_call *r, const struct jm_planned *p, bool cases)
{
	struct length l = length_of(p);
	json_t *json = json_object(), *after = json_array();

	for (int i = 0; p->run && i < p->run->n_after; i++)
		json_array_append_new(after, json_string(r->file.run[p->run->after[i]].name));
	jm_json_set_text(&json, "name", p->run->name);
	jm_json_set(&json, "after", after);
	jm_json_set_int(&json, "cases", p->plan.n);
	jm_json_set_int(&json, "repeat", p->plan.repeat);
	jm_json_set_int(&json, "least_repeat", p->plan.least_repeat);
	jm_json_set_number(&json, "least_s", l.seconds > 0 ? l.seconds : NAN);
	jm_json_set_int(&json, "of_unknown_length", l.unknown);
	jm_json_set_int(&json, "in_simulated_time", l.simulated);
	if (cases)
		jm_json_set(&json, "list", cases_json(&p->plan));
	return json;
}

static int put_json(struct jm_run_call *r, const struct call *call, json_t *needs)
{
	json_t *json = json_object(), *runs = json_array();

	for (int i = 0; i < r->n; i++)
		json_array_append_new(runs, run_json(r, &r->planned[i], call->cases));
	jm_json_set_text(&json, "title", r->file.title);
	jm_json_set_int(&json, "measurements", jm_planned_cases(r));
	jm_json_set(&json, "runs", runs);
	jm_json_set(&json, "needs", json_incref(needs));
	return jm_json_put(r->cli, json);
}

/* ---- the command ---- */

static int print_plan(struct jm_run_call *r, const struct call *call, json_t *needs)
{
	int rc = print_runs(r);

	if (rc)
		return rc;
	if (call->cases)
		fputc('\n', r->cli->out);
	if (call->cases && jm_list_cases(r))
		return r->cli->err.code;
	print_needs(r, needs);
	return 0;
}

static int plan(struct jm_run_call *r, const struct call *call)
{
	bool missing = false;
	json_t *needs;
	int rc = jm_planned_read(r);

	if (!rc)
		rc = jm_planned_make(r);
	if (rc)
		return jm_cli_fail(r->cli);
	needs = find_needs(r, &missing);
	rc = jm_json_wanted(r->cli) ? put_json(r, call, needs) : print_plan(r, call, needs);
	json_decref(needs);
	if (rc)
		return jm_cli_fail(r->cli);
	return missing ? EXIT_LACKS : 0;
}

static int run_plan_command(struct jm_cli *cli)
{
	struct jm_run_call r = {.cli = cli, .cancel_fd = -1};
	struct call call;
	int status;

	JM_FILL(&cli->values, &call);
	r.given.plan = call.plan;
	if (call.schema && (call.cases || cli->n_args)) {
		jm_err_set(&cli->err, JM_EUSAGE,
			"--schema prints what any plan file may hold; omit %s.",
			call.cases ? "--cases" : "the name of the file");
		return jm_cli_fail(cli);
	}
	if (call.schema)
		return jm_plan_schema_print(cli);
	if (!cli->n_args || !jm_plan_is_file(cli->args[0])) {
		jm_err_set(&cli->err, JM_EUSAGE,
			"'plan' takes the name of a plan file, which ends in .yaml or .yml.");
		return jm_cli_fail(cli);
	}
	cli->lacks = json_object();
	status = plan(&r, &call);
	jm_guard_stop(r.guard, NULL);
	jm_planned_done(&r);
	json_decref(cli->lacks);
	cli->lacks = NULL;
	return status;
}

static const struct jm_option options[] = {
	JM_PLAN_FILE_OPTIONS(struct call, plan, NULL, ""),
	{.name = "cases",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct call, cases),
		.help = "also list the cases of each run, in the order of the first block, as 'run "
			"--dry-run' does when nothing that the plan needs is missing"},
	{.name = "schema",
		.use = JM_OPTION_OF_CALL,
		JM_BIND(JM_FLAG, struct call, schema),
		.help = "print the JSON Schema of plan files, for editors"},
	{JM_JSON_ROW("print JSON, or write it to this file: runs, with --cases their cases, and "
		     "needs with null or the reason why one is missing"),
		.use = JM_OPTION_OF_CALL, .type = JM_TEXT},
	{0},
};

const struct jm_command jm_command_plan = {
	.name = "plan",
	.summary = "show what a plan file would run, for how long, and what it needs",
	.usage = "PLAN.yaml",
	.description =
		"Shows the runs of a plan file (docs/plans.md) in their order, with the number of "
		"their cases, the time that they take at least, and the devices, sources, knobs "
		"and programs that they need; what is missing on this machine is named with the "
		"reason. Nothing is run and nothing is set.\n\n'joulemark run PLAN.yaml' runs the "
		"plan, 'joulemark run PLAN.yaml --dry-run' lists its cases, and --cases does so "
		"here.\n\nExit status: 0 when nothing that the plan needs is missing, 1 when "
		"something is, 2 for wrong usage and for a plan that cannot be read.",
	.example = "joulemark plan suites/power-aware.yaml\n"
		   "joulemark run suites/power-aware.yaml --ranks 1 --add-watts 25 \\\n"
		   "    --platform suites/platforms/h100x1.yaml --store table4.db",
	.options = options,
	.max_args = 1,
	.run = run_plan_command,
};
