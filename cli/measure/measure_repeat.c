/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_repeat.h"
#include "cli/frame/interrupts.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/text/json.h"
#include "base/stat/stat.h"

#include <math.h>
#include <stdlib.h>

#define GROUP_REFRESHES 10
#define LEAST_GROUPS	4		   /* starts, unless one run is long enough */
#define GOLDEN		0.6180339887498949 /* its multiples fill an interval evenly */
#define UNKNOWN_REFRESH (100 * JM_MILLISECOND)
#define MOST_REFRESH	(10 * JM_SECOND)

int jm_measure_repeat_open(struct jm_measure_repeat *r, struct jm_cli *cli, bool *ret_asked)
{
	bool timed = !isnan(r->seconds_wanted);

	*ret_asked = r->runs_wanted || timed;
	if (!*ret_asked)
		return 0;
	if (r->runs_wanted && timed)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--repeat and --until both say when to stop; give one of them.");
	if (!cli->command || !cli->command[0])
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--repeat and --until run a command again and again; give the command.");
	if (jm_cli_given(cli, "store"))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--store keeps one record for each run, and --repeat and --until make one "
			"record of many; 'joulemark run --repeats N' stores repeats of a command.");
	if (!timed)
		r->seconds_wanted = 0;
	return 0;
}

void jm_measure_repeat_close(struct jm_measure_repeat *r)
{
	free(r->group);
	*r = (struct jm_measure_repeat){0};
}

/* ---- running ---- */

/* What the energy of a meter is computed from. */
static int64_t refresh_of(const struct jm_meters *set, int meter)
{
	static const enum jm_quantity order[] = {JM_Q_ENERGY, JM_Q_POWER, JM_Q_POWER_AVERAGE};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		int signal = jm_meter_signal(set, meter, order[i]);

		if (signal >= 0)
			return set->signal[signal].refresh_ns;
	}
	return 0;
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

static bool is_enough(const struct jm_measure_repeat *r)
{
	if (r->runs_wanted)
		return r->runs >= r->runs_wanted;
	if (r->seconds < r->seconds_wanted)
		return false;
	return r->groups >= LEAST_GROUPS || r->seconds >= (double)r->runs * r->seconds_wanted;
}

/* runs, ns: of the group so far */
static bool group_goes_on(const struct jm_measure_repeat *r, long runs, int64_t ns)
{
	long share = (r->runs_wanted + LEAST_GROUPS - 1) / LEAST_GROUPS;

	if (ns >= GROUP_REFRESHES * r->refresh_ns)
		return false;
	return !r->runs_wanted || (runs < share && r->runs < r->runs_wanted);
}

static void shift(const struct jm_measure_repeat *r, struct jm_ctx *ctx)
{
	double part = GOLDEN * r->groups - floor(GOLDEN * r->groups);
	struct jm_sleeper sleeper;

	jm_sleeper_init(&sleeper, ctx->clock);
	jm_sleep_until(&sleeper, jm_ctx_now(ctx) + (int64_t)(part * (double)r->refresh_ns));
	jm_sleeper_done(&sleeper);
}

static int add_group(struct jm_measure_repeat *r, int phase, long runs, struct jm_err *err)
{
	struct jm_repeat_group *grown =
		reallocarray(r->group, (size_t)r->groups + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the repeats of the command.");
	r->group = grown;
	r->group[r->groups++] = (struct jm_repeat_group){phase, runs};
	return 0;
}

struct runner {
	int (*once)(void *arg, int *shared_phase, struct jm_outcome *outcome);
	void *arg;
	struct jm_outcome *whole;
	bool failed; /* a run ended with another status than 0 */
};

/* A signal may also come between two runs. */
static bool goes_on(const struct runner *runner)
{
	return !runner->failed && !jm_last_interrupt();
}

static int run_group(struct jm_measure_repeat *r, struct jm_cli *cli, struct jm_session *s,
	struct runner *runner)
{
	struct jm_outcome one = {0};
	int64_t begin = 0;
	int rc, phase = -1;
	long runs = 0;

	do {
		rc = runner->once(runner->arg, &phase, &one);
		runner->whole->status = one.status;
		runner->whole->signal = one.signal;
		if (rc)
			return rc;
		begin = runs ? begin : one.start_ns;
		r->start_ns = r->runs ? r->start_ns : one.start_ns;
		r->end_ns = one.end_ns;
		runner->whole->unseen_ns += one.unseen_ns;
		runner->whole->items = r->runs ? runner->whole->items + one.items : one.items;
		if (one.output_errno)
			runner->whole->output_errno = one.output_errno;
		runner->failed = one.status != 0;
		runs++;
		r->runs++;
	} while (goes_on(runner) && group_goes_on(r, runs, one.end_ns - begin));
	jm_session_end(s, phase, one.end_ns);
	r->seconds += (double)(one.end_ns - begin) * 1e-9;
	return add_group(r, phase, runs, &cli->err);
}

int jm_measure_repeat_run(struct jm_measure_repeat *r, struct jm_cli *cli, struct jm_session *s,
	int (*once)(void *arg, int *shared_phase, struct jm_outcome *outcome), void *arg,
	struct jm_outcome *outcome)
{
	struct runner runner = {once, arg, outcome, false};
	int rc = 0;

	r->refresh_ns = slowest(jm_session_meters(s));
	while (!rc && goes_on(&runner) && !is_enough(r)) {
		if (r->groups)
			shift(r, &cli->ctx);
		if (goes_on(&runner))
			rc = run_group(r, cli, s, &runner);
	}
	if (rc)
		return rc;
	if (runner.failed)
		jm_log(&cli->ctx, JM_WARNING,
			"Run %ld ended with status %d, so the command is not repeated any more.",
			r->runs, outcome->status);
	else if (jm_last_interrupt())
		jm_log(&cli->ctx, JM_WARNING,
			"Interrupted after run %ld, so the command is not repeated any more.",
			r->runs);
	r->phase = jm_session_begin(s, "repeats", r->start_ns, &cli->err);
	if (r->phase < 0)
		return r->phase;
	jm_session_end(s, r->phase, r->end_ns);
	outcome->phase = outcome->marked = r->phase;
	outcome->start_ns = r->start_ns;
	outcome->end_ns = r->end_ns;
	outcome->wall_s = (double)(r->end_ns - r->start_ns) * 1e-9;
	outcome->throughput = outcome->unseen_ns ? NAN : outcome->items / r->seconds;
	return 0;
}

/* ---- the result ---- */

struct sums {
	double joules, sampling, calibration;
	int meters;
};

/* Of one group and origin; unknown where a part is. */
static int sum_group(struct jm_session *s, int phase, enum jm_origin origin, struct sums *ret,
	struct jm_err *err)
{
	const struct jm_meters *set = jm_session_meters(s);
	struct jm_energy e;

	*ret = (struct sums){0};
	for (int i = 0; i < set->n; i++) {
		int rc;

		if (!jm_meter_counts(set, i) || set->meter[i].origin != origin)
			continue;
		rc = jm_session_energy(s, i, phase, &e, err);
		if (rc)
			return rc;
		ret->joules += set->meter[i].overlaps >= 0 ? NAN : e.joules;
		ret->sampling = hypot(ret->sampling, e.error_sampling);
		ret->calibration += e.error_calibration;
		ret->meters++;
	}
	return 0;
}

static json_t *origin_json(enum jm_origin origin, const struct jm_measure_repeat *r,
	const struct sums *sum, const struct jm_stat *spread)
{
	double runs = (double)r->runs, error = sum->sampling / runs;

	/* the larger of what the groups show and what their edges allow */
	if (spread->half_width > error)
		error = spread->half_width;
	return json_pack("{s:s, s:o, s:o, s:o, s:o}", "origin", jm_origin_name(origin), "joules",
		jm_json_number(sum->joules / runs), "error_joules",
		jm_json_number(hypot(error, sum->calibration / runs)), "error_spread_joules",
		jm_json_number(spread->half_width), "error_calibration_joules",
		jm_json_number(sum->calibration / runs));
}

/* NULL: no meter of that origin, or an error */
static json_t *energy_json(const struct jm_measure_repeat *r, struct jm_session *s,
	enum jm_origin origin, struct jm_err *err)
{
	double *each = calloc((size_t)r->groups + 1, sizeof(*each));
	struct sums all = {0}, one;
	struct jm_stat spread;
	int rc = each ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the energy of a run.");

	for (int i = 0; !rc && i < r->groups; i++) {
		rc = sum_group(s, r->group[i].phase, origin, &one, err);
		all.joules += one.joules;
		all.sampling += one.sampling; /* their edges may all err to the same side */
		all.calibration += one.calibration;
		all.meters = one.meters;
		if (!rc)
			each[i] = one.joules / (double)r->group[i].runs;
	}
	if (!rc)
		jm_stat_of(each, r->groups, &spread);
	free(each);
	return rc || !all.meters ? NULL : origin_json(origin, r, &all, &spread);
}

json_t *jm_measure_repeat_json(
	const struct jm_measure_repeat *r, struct jm_session *s, struct jm_err *err)
{
	json_t *energy = json_array();

	for (int i = 0; i < JM_ORIGIN_COUNT; i++) {
		json_t *one = energy_json(r, s, jm_origin_order[i], err);

		if (one)
			json_array_append_new(energy, one);
	}
	return json_pack("{s:I, s:i, s:f, s:f, s:o}", "runs", (json_int_t)r->runs, "groups",
		r->groups, "seconds", r->seconds, "refresh_s", (double)r->refresh_ns * 1e-9,
		"energy", energy);
}
