/* SPDX-License-Identifier: Apache-2.0 */
/* `run`: a workload or a command, once or as a sweep, measured, kept and reported. */
#include "base/files/output.h"
#include "cli/frame/help.h"
#include "cli/frame/interrupts.h"
#include "cli/frame/screen.h"
#include "cli/settings/hold.h"
#include "report/format/text.h"
#include "report/report.h"
#include "run/gang/agent.h"
#include "guard/guard_requests.h"
#include "run/gang/agent_links.h"
#include "run/gang/call_watchdog.h"
#include "run_end.h"
#include "list_cases.h"
#include "run_log.h"
#include "run_options.h"
#include "planned.h"
#include "run_request.h"
#include "run_show.h"
#include "run_words.h"
#include "srun.h"
#include "result/record.h"

#include <errno.h>
#include <poll.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_NOT_FOUND 127 /* the command, as of a shell */

/* Each signal wakes the loop. */
static int catch_signals(struct jm_run_call *r)
{
	return jm_catch_interrupts(&r->cli->ctx, &r->cancel_fd, &r->cli->err);
}

/* ---- files ---- */

/* Before a store is opened, so that wrong usage does not create one. */
static int check_files(struct jm_run_call *r)
{
	const char *store = r->given.store, *json = r->given.json;
	static const char *const of_stores[] = {"resume", "retry", "only-failed", "rerun", NULL};
	const char *name = store ? NULL : jm_cli_first_given(r->cli, of_stores);

	if (name)
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"--%s continues the plan of a store; name the store with --store FILE.",
			name);
	if (r->given.sweep.only_failed && r->given.sweep.rerun)
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"--only-failed and --rerun exclude each other; give one of them.");
	if (!store)
		return 0;
	if (json && !strcmp(store, json))
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"--store and --json name the same file, %s; give each its own file.",
			store);
	if (r->given.resume && access(store, F_OK))
		return jm_err_set(&r->cli->err, JM_ENOENT,
			"There is no store '%s' to continue: %s.", store, strerror(errno));
	return r->given.resume ? jm_run_check_resume(r->cli) : 0;
}

/* "2/3" */
static int read_shard(struct jm_run_call *r)
{
	struct jm_run_options *o = &r->given.sweep;
	const char *text = r->given.shard;
	char end;

	if (!text)
		return 0;
	if (strspn(text, "0123456789/") < strlen(text) || strlen(text) > 9 ||
		sscanf(text, "%d/%d%c", &o->shard, &o->shards, &end) != 2 || o->shard < 1 ||
		o->shard > o->shards)
		return jm_err_set(&r->cli->err, JM_EUSAGE,
			"--shard takes the number of this runner and how many there are, as in "
			"1/2, not '%s'.",
			text);
	return 0;
}

/* A runner without a block would look like one that is done. */
static int check_shard(struct jm_run_call *r)
{
	const struct jm_run_options *o = &r->given.sweep;
	int most = 0;

	for (int i = 0; i < r->n && o->shards; i++) {
		if (r->planned[i].plan.until > 0)
			return jm_err_set(&r->cli->err, JM_EUSAGE,
				"--shard and --until-interval exclude each other, because each "
				"runner has a part of the repeats only; give --repeat.");
		if (r->planned[i].plan.repeat > most)
			most = r->planned[i].plan.repeat;
	}
	return o->shards <= most ? 0
				 : jm_err_set(&r->cli->err, JM_EUSAGE,
					   "--shard %d/%d shares repeats, and the plan has %d; "
					   "give --repeat %d or more, or fewer shards.",
					   o->shard, o->shards, most, o->shards);
}

/* Which process of this machine writes the store, where that is known. */
static void name_writer(const struct jm_run_call *r, const char *path, char *out, size_t size)
{
	struct jm_work_list list = {0};

	*out = '\0';
	if (jm_work_list_read(&r->cli->ctx, &list, NULL))
		return;
	for (int i = 0; i < list.n && !*out; i++)
		if (!strcmp(list.work[i].store, path))
			snprintf(out, size, " (process %d on %s)", list.work[i].pid,
				list.work[i].host);
	jm_work_list_done(&list);
}

/* Two runners of one plan. */
static int fail_busy(struct jm_run_call *r, const char *path)
{
	char who[120];

	name_writer(r, path, who, sizeof(who));
	r->cli->err = (struct jm_err)JM_ERR_INIT;
	return jm_err_set(&r->cli->err, JM_EBUSY,
		"Another joulemark%s is writing to the store '%s', which has one writer at a time, "
		"so that each case is run once. Wait for it: the same command then runs what is "
		"missing. Or share the repeats: --shard 1/2 and --shard 2/2, each with a store of "
		"its own, and 'joulemark merge' afterwards.",
		who, path);
}

static int open_store(struct jm_run_call *r)
{
	const char *path = r->given.store;
	int rc;

	if (!path)
		return 0;
	rc = jm_store_open(path, JM_STORE_WRITE, &r->store, &r->cli->err);
	if (!rc)
		jm_run_give_to_caller(path);
	else if (rc == JM_EBUSY)
		rc = fail_busy(r, path);
	return rc;
}

/* ---- the run ---- */

static bool has_case(const struct jm_planned *p, const char *id)
{
	for (int i = 0; id && i < p->plan.n; i++)
		if (!strncmp(p->plan.cases[i].id, id, strlen(id)))
			return true;
	return false;
}

static int sweep_cases(struct jm_run_call *r, struct jm_planned *p)
{
	bool alone = jm_planned_cases(r) == 1;
	int blocks = p->plan.repeat;
	struct jm_run_show show;
	struct jm_run_options o = r->given.sweep;
	int rc;

	o.plan = &p->plan;
	o.store = r->store;
	o.agents = r->agents;
	o.unstored = r->unstored;
	o.controls = p->controls_used;
	if (!has_case(p, o.rerun))
		o.rerun = NULL;
	o.ret_blocks = &blocks;
	o.cancel_fd = r->cancel_fd;
	o.out_fd = alone && !jm_run_json_on_stdout(r) ? STDOUT_FILENO : -1;
	o.echo = alone || r->given.show_output;
	o.event = jm_run_show_event;
	o.event_arg = &show;
	if (o.out_fd < 0 && r->given.show_output)
		o.out_fd = STDERR_FILENO;
	jm_planned_change_guard(r, p);
	jm_run_show_init(&show, &p->plan, r->cli->given_width, r->cli->quiet);
	show.writer = jm_work_writer_new(&r->cli->ctx);
	show.store = r->given.store;
	rc = jm_run_plan(&r->cli->ctx, &o, &r->guard, r->records, &r->cli->err);
	r->guarded = p->controls_used;
	r->n_told += r->cli->quiet ? 0 : show.failed;
	p->plan.repeat = blocks;
	jm_run_show_done(&show);
	return rc;
}

/* The run of the file that this one follows and that failed, or was left out for the same reason;
 * NULL = none. */
static const struct jm_planned *failed_before(
	const struct jm_run_call *r, const struct jm_planned *p)
{
	for (int k = 0; p->run && k < p->run->n_after; k++)
		for (int i = 0; i < r->n; i++)
			if (r->planned[i].place == p->run->after[k] && r->planned[i].failed)
				return &r->planned[i];
	return NULL;
}

static void say_run(const struct jm_run_call *r, const struct jm_planned *p)
{
	char name[JM_PLAN_NAME + 1] = "";

	if (!p->run || r->n <= 1 || r->cli->quiet)
		return;
	jm_text_format(name, sizeof(name), "%s", p->run->name);
	fprintf(stderr, "%s%s: %d case%s\n", p == r->planned ? "" : "\n", name, p->plan.n,
		p->plan.n == 1 ? "" : "s");
}

static int run_one(struct jm_run_call *r, struct jm_planned *p)
{
	const struct jm_planned *before = failed_before(r, p);
	size_t first = json_array_size(r->records);
	int rc;

	if (before) {
		fprintf(stderr,
			"joulemark: The run '%s' is omitted, because the run '%s', which it comes "
			"after, did not succeed.\n",
			p->run->name, before->run->name);
		p->failed = true;
		return 0;
	}
	if (r->given.sweep.rerun && !has_case(p, r->given.sweep.rerun))
		return 0;
	say_run(r, p);
	rc = sweep_cases(r, p);
	for (size_t i = first; i < json_array_size(r->records); i++)
		p->failed = p->failed || !jm_record_is_ok(json_array_get(r->records, i));
	return rc;
}

static int check_rerun(struct jm_run_call *r)
{
	const char *id = r->given.sweep.rerun;
	bool any = !id;

	for (int i = 0; i < r->n; i++)
		any = any || has_case(&r->planned[i], id);
	return any ? 0
		   : jm_err_set(&r->cli->err, JM_ENOENT,
			     "No case has an id that begins with '%s'; --dry-run lists them.", id);
}

static int run_each(struct jm_run_call *r)
{
	int rc = check_rerun(r);

	for (int i = 0; i < r->n && !rc; i++)
		rc = run_one(r, &r->planned[i]);
	return rc;
}

/* Each case must read the same, so that a command's standard input is empty; who gave some expects
 * it to arrive. */
static void say_input(const struct jm_run_call *r)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	struct stat st;

	if (!r->cli->command || fstat(STDIN_FILENO, &st))
		return;
	if (S_ISREG(st.st_mode) ||
		(S_ISFIFO(st.st_mode) && poll(&in, 1, 0) > 0 && in.revents & POLLIN))
		jm_log(&r->cli->ctx, JM_WARNING,
			"The standard input of 'run' is not passed on: that of its command is "
			"empty (/dev/null), so that each case reads the same. Let the command open "
			"its file: run -- sh -c 'COMMAND < FILE'.");
}

/* A rank that is not the first runs what the first one sends, and writes no files. */
static int be_agent(struct jm_run_call *r, const struct jm_gang_place *place)
{
	const struct jm_agent_options o = {.place = place,
		.program = r->given.sweep.program,
		.controls = r->given.control,
		.stated = r->given.sweep.stated,
		.cancel_fd = r->cancel_fd};

	return jm_agent_serve(&r->cli->ctx, &o, &r->cli->err) ? jm_cli_fail(r->cli) : 0;
}

static int check_probe(const struct jm_run_call *r)
{
	char *const *text = r->given.sweep.stated;

	while (text && *text && !jm_guard_is_probe(*text))
		text++;
	return text && *text ? jm_err_set(&r->cli->err, JM_EUSAGE,
				       "--found %s probes the GPUs of this host alone; with "
				       "--launcher %s state what is locked.",
				       *text, r->given.launcher)
			     : 0;
}

/* Of a launcher that starts this program on each host. */
static int check_launcher(struct jm_run_call *r)
{
	int rc = check_probe(r);

	if (!rc && !strcmp(r->given.launcher, "srun"))
		rc = jm_run_by_srun(&r->cli->err);
	return rc;
}

static int join_gang(struct jm_run_call *r, struct jm_gang_place *ret)
{
	int rc = jm_gang_place_read(ret, &r->cli->err);

	return rc ? rc : jm_watchdog_start(r->given.sweep.program, &r->cli->err);
}

/* Wrong usage must create no files, so that the store is opened when the rest was checked. */
static int make_plan(struct jm_run_call *r)
{
	int rc = r->given.resume ? 0 : jm_planned_read(r);

	if (!rc)
		rc = check_files(r);
	if (!rc)
		rc = read_shard(r);
	if (!rc)
		rc = open_store(r);
	if (!rc && r->given.json)
		rc = jm_output_try(r->given.json, &r->cli->err);
	if (!rc)
		rc = jm_planned_make(r);
	return rc ? rc : check_shard(r);
}

static int run_all(struct jm_run_call *r)
{
	bool apart = strcmp(r->given.launcher, "local") != 0 && !r->given.dry_run;
	struct jm_gang_place place;
	int rc = apart ? check_launcher(r) : 0;

	if (!rc)
		rc = catch_signals(r);
	if (!rc && apart)
		rc = join_gang(r, &place);
	if (!rc && apart && place.rank)
		return be_agent(r, &place);
	if (!rc)
		say_input(r);
	if (!rc) /* not after hours of work */
		rc = jm_report_check_columns(r->given.columns, &r->cli->err);
	if (!rc && jm_hold_check(r->cli->command, &r->cli->err)) {
		jm_cli_fail(r->cli);
		return EXIT_NOT_FOUND;
	}
	if (!rc)
		rc = make_plan(r);
	if (rc)
		return jm_cli_fail(r->cli);
	if (r->given.dry_run)
		return jm_list_cases(r) ? jm_cli_fail(r->cli) : 0;
	if (apart && jm_agent_links_open(&r->cli->ctx, &place, &r->agents, &r->cli->err))
		return jm_cli_fail(r->cli);
	return jm_run_finish(r, run_each(r));
}

/* A guard that was killed after the last case spoilt nothing: a case whose guard is killed is run
 * again. */
static int stop_guard(struct jm_guard *guard, int status)
{
	struct jm_err err = JM_ERR_INIT;
	int rc = jm_guard_stop(guard, &err);

	if (rc)
		jm_screen_say("", err.text);
	return rc && rc != JM_EGONE && !status ? JM_EXIT_FAILURE : status;
}

static int run_run(struct jm_cli *cli)
{
	struct jm_run_call r = {
		.cli = cli, .records = json_array(), .unstored = json_array(), .cancel_fd = -1};
	struct jm_run_log log;
	int status;

	JM_FILL(&cli->values, &r.given);
	jm_run_log_begin(&log, &cli->ctx, cli->quiet);
	status = run_all(&r);
	jm_agent_links_close(r.agents);
	status = stop_guard(r.guard, status);
	jm_run_log_end(&log);
	jm_store_close(r.store, NULL); /* of a call that was refused; it leaves no file */
	jm_planned_done(&r);
	json_decref(r.records);
	json_decref(r.unstored);
	return status;
}

const struct jm_command jm_command_run = {
	.name = "run",
	.heading = "Run and measure",
	.summary = "run a workload or a command, or sweep settings, with power measured",
	.usage = "[options] WORKLOAD [workload's options] | [options] PLAN.yaml | [options] [--] "
		 "CMD...",
	.description =
		"Runs a workload (see 'joulemark list'), a command or the runs of a plan file, "
		"measures power in phases, and prints a table. A case is one combination of "
		"options and settings; the reference is the case with the settings that were "
		"found. Each case runs in its own process. --set sweeps knobs; an option of the "
		"workload that is given as a list (--batch 4,8) is swept as well. "
		"The cases run in complete blocks (--repeat) in random order; each block holds the "
		"reference. Settings are restored to the values that were found, even after a "
		"kill.\n\nWith --store the same command continues after an interruption: finished "
		"cases are not repeated, failed cases are repeated with --retry.\n\nA plan file "
		"(PLAN.yaml, docs/plans.md) describes several such runs; its keys are these "
		"options; options given here replace those of the file. 'joulemark plan PLAN.yaml' "
		"shows what it needs.\n\nA command reports its items by marks ('joulemark mark'), "
		"--items-regex or --items-json. Its standard input is empty (/dev/null) in every "
		"case. It begins with the first word that is neither an option nor a workload; "
		"'--' may precede it.\n\nExit status: 0 when all cases succeeded, 1 when a case "
		"failed (its record holds the reason), 127 when the command was not found, 130 "
		"after Ctrl-C, 2 for wrong usage, 125 for a failure of joulemark itself or of a "
		"device that is absent, unsuitable or lost, whose memory other processes hold, or "
		"that computes wrong results (the other cases still run).",
	.example = "joulemark run suites/power-aware-simulated.yaml --store table4.db\n"
		   "joulemark run sim --device sim:h100x4 --set gpu.power=200:700+100W \\\n"
		   "    --repeat 3 --store h100.db\n"
		   "joulemark run --set gpu.power=300W,400W --repeat 5 --store mine.db -- \\\n"
		   "    python3 train.py",
	.options = jm_run_options,
	.max_args = 1,
	.takes_command = true,
	.begins_command = jm_run_begins_command,
	.takes_extra = true,
	.help_of = jm_help_workload,
	.run = run_run,
};
