/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_repeat.h"
#include "measure/session/session_part.h"
#include "cli/frame/interrupts.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/shell_words.h"
#include "base/text/json.h"
#include "run/plan/plan.h"
#include "run/plan/repeat_until.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_REFRESHES 10
#define LEAST_GROUPS	4		   /* starts, unless one run is long enough */
#define GOLDEN		0.6180339887498949 /* its multiples fill an interval evenly */
#define UNKNOWN_REFRESH (100 * JM_MILLISECOND)
#define MOST_REFRESH	(10 * JM_SECOND)

/* ---- options ---- */

int jm_measure_share(const char *text, double *ret, struct jm_err *err)
{
	char *end;
	double share = strtod(text, &end);

	if (!strcmp(end, "%"))
		share /= 100;
	if (end == text || (*end && strcmp(end, "%") != 0) ||
		strspn(text, "0123456789.eE-") < (size_t)(end - text) ||
		!(share >= 1e-6 && share <= 1))
		return jm_err_set(err, JM_EUSAGE,
			"--until-interval takes a share of the mean such as 1%% (0.0001%% to "
			"100%%), not '%s'.",
			text);
	*ret = share;
	return 0;
}

/* What has no effect on a command that runs once. */
static int check_single(struct jm_cli *cli)
{
	static const char *const of_repeats[] = {
		"compare", "warmup", "prepare", "ignore-failure", "seed", "max-repeat", NULL};
	const char *name = jm_cli_first_given(cli, of_repeats);

	if (!name)
		return 0;
	return jm_err_set(&cli->err, JM_EUSAGE,
		"--%s belongs to repeated runs; give --repeat 10, --until 5s or --until-interval "
		"2%% with it.",
		name);
}

static int check(const struct jm_measure_repeat *r, struct jm_cli *cli)
{
	bool timed = !isnan(r->options.seconds);

	if (timed && (r->options.runs || r->options.interval))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--until and %s both say when to stop; give one of them.",
			r->options.runs ? "--repeat" : "--until-interval");
	if (!cli->command || !cli->command[0])
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--repeat, --until and --until-interval run a command again and again; "
			"give the command.");
	if (r->options.most_given && !r->options.interval)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--max-repeat has no effect without --until-interval; give both, or "
			"--repeat.");
	if (r->options.interval && r->options.runs > r->options.most)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--repeat %ld asks for more runs than --max-repeat %ld allows.",
			r->options.runs, r->options.most);
	return 0;
}

static int take_commands(struct jm_measure_repeat *r, struct jm_cli *cli)
{
	int rc = 0;

	r->command[r->n_commands++] = cli->command;
	for (char *const *text = r->options.compare; text && *text && !rc; text++) {
		if (r->n_commands == JM_REPEAT_COMMANDS)
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--compare is given more than %d times; compare fewer commands.",
				JM_REPEAT_COMMANDS - 1);
		rc = jm_shell_words("compare", *text, &r->command[r->n_commands], &cli->err);
		r->n_commands += !rc;
	}
	if (!rc && r->options.prepare)
		rc = jm_shell_words("prepare", r->options.prepare, &r->prepare, &cli->err);
	return rc;
}

int jm_measure_repeat_open(
	struct jm_measure_repeat *r, struct jm_cli *cli, bool stored, bool *ret_asked)
{
	int rc;

	*ret_asked = r->options.runs || !isnan(r->options.seconds) || r->options.interval;
	if (!*ret_asked)
		return check_single(cli);
	rc = check(r, cli);
	if (!rc && r->options.interval)
		rc = jm_measure_share(r->options.interval, &r->share, &cli->err);
	if (!rc)
		rc = take_commands(r, cli);
	r->alone = stored || r->n_commands > 1 || r->prepare || r->share > 0;
	return rc;
}

void jm_measure_repeat_close(struct jm_measure_repeat *r)
{
	for (int i = 1; i < r->n_commands; i++)
		jm_shell_words_free(r->command[i]);
	jm_shell_words_free(r->prepare);
	free(r->group);
	free(r->run);
	*r = (struct jm_measure_repeat){0};
}

/* ---- single runs ---- */

static bool first_origin(const struct jm_meters *set, enum jm_origin *ret)
{
	for (int k = 0; k < JM_ORIGIN_COUNT; k++) {
		for (int i = 0; i < set->n; i++) {
			*ret = jm_origin_order[k];
			if (jm_meter_counts(set, i) && set->meter[i].origin == *ret)
				return true;
		}
	}
	return false;
}

static double joules_between(struct jm_session *s, int64_t t0_ns, int64_t t1_ns)
{
	const struct jm_meters *set = jm_session_meters(s);
	enum jm_origin origin;
	double sum = 0;

	if (!first_origin(set, &origin))
		return NAN;
	for (int i = 0; i < set->n; i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_energy e;

		if (!jm_meter_counts(set, i) || set->meter[i].origin != origin)
			continue;
		if (set->meter[i].overlaps >= 0 ||
			jm_session_energy_now(s, i, t0_ns, t1_ns, &e, &err))
			return NAN;
		sum += e.joules;
	}
	return sum;
}

static bool is_short(const struct jm_measure_repeat *r, const struct jm_repeat_run *run)
{
	return run->outcome.end_ns - run->outcome.start_ns < r->refresh_ns;
}

double jm_repeat_joules(
	const struct jm_measure_repeat *r, struct jm_repeat_run *run, struct jm_session *s)
{
	if (!run->asked && !is_short(r, run))
		run->joules = joules_between(s, run->outcome.start_ns, run->outcome.end_ns);
	run->asked = true;
	return run->joules;
}

void jm_repeat_take_joules(const struct jm_measure_repeat *r, struct jm_repeat_run *run,
	const struct jm_session *s, const json_t *record)
{
	enum jm_origin origin;
	char key[40];

	if (run->asked || is_short(r, run) || !first_origin(jm_session_meters(s), &origin))
		return;
	snprintf(key, sizeof(key), "joules_%s", jm_origin_name(origin));
	run->joules = jm_json_real_of(json_object_get(record, "total"), key);
	run->asked = true;
}

static bool any_succeeded(const struct jm_measure_repeat *r, int command)
{
	for (int i = 0; i < r->runs; i++)
		if (r->run[i].command == command && !r->run[i].outcome.status)
			return true;
	return false;
}

bool jm_repeat_counts(const struct jm_measure_repeat *r, const struct jm_repeat_run *run)
{
	if (run->cut_short)
		return false;
	return !run->outcome.status || r->options.ignore_failure || !any_succeeded(r, run->command);
}

/* ---- when it is enough ---- */

/* What the energy of a meter is computed from. */
static int64_t refresh_of(const struct jm_meters *set, int meter)
{
	int signal = jm_meter_energy_signal(set, meter);

	return signal < 0 ? 0 : set->signal[signal].refresh_ns;
}

static int64_t slowest(const struct jm_meters *set)
{
	int64_t refresh = 0;

	for (int i = 0; i < set->n; i++)
		if (jm_meter_counts(set, i) && refresh_of(set, i) > refresh)
			refresh = refresh_of(set, i);
	if (!refresh)
		refresh = UNKNOWN_REFRESH;
	return refresh < MOST_REFRESH ? refresh : MOST_REFRESH;
}

/* Is the interval of this command's seconds and joules narrow enough? */
static bool is_narrow(const struct jm_measure_repeat *r, int command, double level)
{
	double *seconds = calloc(2 * (size_t)r->runs + 1, sizeof(*seconds));
	double *joules = seconds ? seconds + r->runs : NULL;
	bool narrow = seconds != NULL;
	int n = 0, known = 0;

	for (int i = 0; seconds && i < r->runs; i++) {
		const struct jm_repeat_run *run = &r->run[i];

		if (run->command != command || !jm_repeat_counts(r, run))
			continue;
		seconds[n] = (double)(run->outcome.end_ns - run->outcome.start_ns) * 1e-9;
		known += !isnan(run->joules);
		joules[n++] = run->joules;
	}
	narrow = narrow && jm_until_half_width(seconds, n, level) <= r->share;
	/* the newest run's energy becomes known a refresh later */
	if (narrow && known > 1)
		narrow = jm_until_half_width(joules, n, level) <= r->share;
	free(seconds);
	return narrow;
}

static bool are_narrow(const struct jm_measure_repeat *r)
{
	int least = r->options.runs > JM_UNTIL_LEAST ? (int)r->options.runs : JM_UNTIL_LEAST;
	double level = jm_until_level((int)r->options.most - least + 1);

	if (r->blocks >= r->options.most)
		return true;
	if (r->blocks < least)
		return false;
	for (int i = 0; i < r->n_commands; i++)
		if (!is_narrow(r, i, level))
			return false;
	return true;
}

static bool is_enough(const struct jm_measure_repeat *r)
{
	double wanted = r->options.seconds;

	if (r->share > 0)
		return are_narrow(r);
	if (r->options.runs)
		return r->alone ? r->blocks >= r->options.runs : r->runs >= r->options.runs;
	if (r->seconds < wanted)
		return false;
	return r->groups >= LEAST_GROUPS * r->n_commands || r->seconds >= (double)r->runs * wanted;
}

/* runs, ns: of the group so far */
static bool group_goes_on(const struct jm_measure_repeat *r, long runs, int64_t ns)
{
	long share = (r->options.runs + LEAST_GROUPS - 1) / LEAST_GROUPS;

	if (r->alone || ns >= GROUP_REFRESHES * r->refresh_ns)
		return false;
	return !r->options.runs || (runs < share && r->runs < r->options.runs);
}

/* ---- running ---- */

struct runner {
	struct jm_measure_repeat *r;
	struct jm_cli *cli;
	struct jm_session *session;
	const struct jm_repeat_calls *calls;
	struct jm_outcome *whole;
	bool failed; /* a run ended with another status than 0 */
};

/* A signal may also come between two runs. */
static bool goes_on(const struct runner *runner)
{
	return !runner->failed && !jm_last_interrupt();
}

static void shift(const struct jm_measure_repeat *r, struct jm_ctx *ctx)
{
	double part = GOLDEN * r->groups - floor(GOLDEN * r->groups);
	struct jm_sleeper sleeper;

	jm_sleeper_init(&sleeper, ctx->clock);
	jm_sleep_until(&sleeper, jm_ctx_now(ctx) + (int64_t)(part * (double)r->refresh_ns));
	jm_sleeper_done(&sleeper);
}

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the repeats of the command.");
}

static int add_group(
	struct jm_measure_repeat *r, int phase, int command, long runs, struct jm_err *err)
{
	struct jm_repeat_group *grown =
		reallocarray(r->group, (size_t)r->groups + 1, sizeof(*grown));

	if (!grown)
		return no_memory(err);
	r->group = grown;
	r->group[r->groups++] = (struct jm_repeat_group){phase, command, runs};
	return 0;
}

static int add_run(struct jm_measure_repeat *r, const struct jm_repeat_run *run, struct jm_err *err)
{
	struct jm_repeat_run *grown = reallocarray(r->run, (size_t)r->runs + 1, sizeof(*grown));

	if (!grown)
		return no_memory(err);
	r->run = grown;
	r->run[r->runs++] = *run;
	return 0;
}

static void add_to_whole(struct runner *runner, const struct jm_outcome *one)
{
	struct jm_measure_repeat *r = runner->r;
	struct jm_outcome *whole = runner->whole;

	r->start_ns = r->runs ? r->start_ns : one->start_ns;
	r->end_ns = one->end_ns;
	whole->unseen_ns += one->unseen_ns;
	whole->items = r->runs ? whole->items + one->items : one->items;
	whole->user_s += one->user_s;
	whole->system_s += one->system_s;
	if (one->output_errno)
		whole->output_errno = one->output_errno;
}

/* What comes before a run, or instead of one, told as `what_it_is`: its status ends all of it
 * unless it is 0. */
static int run_beside(
	struct runner *runner, char *const *argv, const char *name, const char *what_it_is)
{
	struct jm_outcome one = {0};
	int phase = -1;
	const struct jm_repeat_once what = {argv, name, &phase, false};
	int rc = runner->calls->once(runner->calls->arg, &what, &one);

	if (rc) {
		runner->whole->status = one.status;
		return rc;
	}
	jm_session_end(runner->session, phase, one.end_ns);
	if (!one.status || (runner->r->options.ignore_failure && !jm_last_interrupt()))
		return 0;
	runner->whole->status = one.status;
	runner->whole->signal = one.signal;
	runner->failed = true;
	jm_log(&runner->cli->ctx, JM_WARNING, "%s '%s' ended with status %d%s.", what_it_is,
		argv[0], one.status, runner->r->runs ? ", so nothing is repeated any more" : "");
	return 0;
}

static int prepare(struct runner *runner)
{
	char **command = runner->r->prepare;

	return command ? run_beside(runner, command, "repeat.prepare", "The command of --prepare")
		       : 0;
}

static int warm_up(struct runner *runner)
{
	const struct jm_measure_repeat *r = runner->r;
	int rc = 0;

	for (int i = 0; !rc && i < r->n_commands; i++) {
		for (long k = 0; !rc && k < r->options.warmups && goes_on(runner); k++) {
			rc = prepare(runner);
			if (!rc && goes_on(runner))
				rc = run_beside(runner, r->command[i], "repeat.warmup",
					"The warm-up run of");
		}
	}
	return rc;
}

static int run_once(
	struct runner *runner, const struct jm_repeat_run *of, int *phase, struct jm_outcome *one)
{
	struct jm_measure_repeat *r = runner->r;
	const struct jm_repeat_once what = {r->command[of->command], "repeat", phase, true};
	struct jm_repeat_run run = *of;
	int rc = runner->calls->once(runner->calls->arg, &what, one);

	if (one->status && !(r->options.ignore_failure && !rc && !jm_last_interrupt())) {
		runner->whole->status = one->status;
		runner->whole->signal = one->signal;
		runner->failed = true;
	}
	if (rc)
		return rc;
	add_to_whole(runner, one);
	run.outcome = *one;
	run.cut_short = one->status && jm_last_interrupt();
	run.joules = NAN;
	return add_run(r, &run, &runner->cli->err);
}

static int run_group(struct runner *runner, const struct jm_repeat_run *of)
{
	struct jm_measure_repeat *r = runner->r;
	struct jm_outcome one = {0};
	int64_t begin = 0;
	int rc, phase = -1;
	long runs = 0;

	do {
		rc = run_once(runner, of, &phase, &one);
		if (rc == JM_EINTR && runs)
			break; /* the runs before count */
		if (rc)
			return rc;
		begin = runs ? begin : one.start_ns;
		runs++;
	} while (goes_on(runner) && group_goes_on(r, runs, one.end_ns - begin));
	jm_session_end(runner->session, phase, one.end_ns);
	r->seconds += (double)(one.end_ns - begin) * 1e-9;
	rc = add_group(r, phase, of->command, runs, &runner->cli->err);
	if (!rc && runner->calls->ended) {
		jm_session_await_edge(runner->session);
		runner->calls->ended(runner->calls->arg);
	}
	return rc;
}

/* Energy for --until-interval, of each run once: of those whose last readings have come. */
static void learn_joules(struct runner *runner)
{
	struct jm_measure_repeat *r = runner->r;
	int64_t known = jm_ctx_now(&runner->cli->ctx) - r->refresh_ns - r->refresh_ns / 4;

	for (; r->share > 0 && r->asked < r->runs; r->asked++) {
		struct jm_repeat_run *run = &r->run[r->asked];

		if (run->outcome.end_ns > known)
			break;
		jm_repeat_joules(r, run, runner->session);
	}
}

/* Every command once. */
static int run_block(struct runner *runner)
{
	struct jm_measure_repeat *r = runner->r;
	const struct jm_plan plan = {.n = r->n_commands, .seed = (uint64_t)r->options.seed};
	int order[JM_REPEAT_COMMANDS], rc = 0;

	jm_plan_order(&plan, r->blocks, order);
	for (int i = 0; !rc && i < r->n_commands && goes_on(runner); i++) {
		const struct jm_repeat_run of = {.command = order[i],
			.group = r->groups,
			.block = r->blocks + 1,
			.position = i + 1};

		if (r->groups)
			shift(r, &runner->cli->ctx);
		rc = prepare(runner);
		if (!rc && goes_on(runner))
			rc = run_group(runner, &of);
	}
	learn_joules(runner);
	r->blocks++;
	return rc;
}

static void say_why_it_ends(const struct runner *runner)
{
	const struct jm_measure_repeat *r = runner->r;

	if (jm_last_interrupt())
		jm_log(&runner->cli->ctx, JM_WARNING,
			"Interrupted after run %d, so the command is not repeated any more.",
			r->runs);
	else if (runner->failed && r->run[r->runs - 1].outcome.status)
		jm_log(&runner->cli->ctx, JM_WARNING,
			"Run %d ended with status %d, so the command is not repeated any more%s.",
			r->runs, runner->whole->status,
			r->runs > 1 ? "; --ignore-failure goes on" : "");
	else if (r->share > 0 && !runner->failed && r->blocks >= r->options.most)
		jm_log(&runner->cli->ctx, JM_WARNING,
			"After %d runs the interval may still be wider than --until-interval asks "
			"for; --max-repeat allows more runs.",
			r->blocks);
}

static int finish(struct runner *runner)
{
	struct jm_measure_repeat *r = runner->r;
	struct jm_outcome *whole = runner->whole;

	say_why_it_ends(runner);
	r->phase = jm_session_begin(runner->session, "repeats", r->start_ns, &runner->cli->err);
	if (r->phase < 0)
		return r->phase;
	jm_session_end(runner->session, r->phase, r->end_ns);
	whole->phase = whole->marked = r->phase;
	whole->start_ns = r->start_ns;
	whole->end_ns = r->end_ns;
	whole->wall_s = (double)(r->end_ns - r->start_ns) * 1e-9;
	whole->throughput = whole->unseen_ns ? NAN : whole->items / r->seconds;
	return 0;
}

int jm_measure_repeat_run(struct jm_measure_repeat *r, struct jm_cli *cli, struct jm_session *s,
	const struct jm_repeat_calls *calls, struct jm_outcome *outcome)
{
	struct runner runner = {r, cli, s, calls, outcome, false};
	int rc;

	r->refresh_ns = slowest(jm_session_meters(s));
	rc = warm_up(&runner);
	while (!rc && goes_on(&runner) && !is_enough(r))
		rc = run_block(&runner);
	if (rc == JM_EINTR && r->runs) {
		cli->err = (struct jm_err)JM_ERR_INIT;
		rc = 0;
	}
	if (rc)
		return rc;
	if (!r->runs)
		return jm_err_set(&cli->err, JM_ECHILD,
			"No run of '%s' was measured: %s before the first one.", cli->command[0],
			runner.failed && !jm_last_interrupt() ? "a command failed"
							      : "joulemark was interrupted");
	return finish(&runner);
}
