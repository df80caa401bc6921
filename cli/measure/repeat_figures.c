/* SPDX-License-Identifier: Apache-2.0 */
#include "repeat_figures.h"

#include "base/stat/stat.h"
#include "base/stat/stat_compare.h"
#include "base/text/json.h"

#include <math.h>
#include <stdlib.h>

/* ---- energy of one run, by groups ---- */

struct sums {
	double joules, sampling, calibration;
	long runs;
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
	}
	return 0;
}

static json_t *origin_json(
	enum jm_origin origin, const struct sums *sum, const struct jm_stat *spread)
{
	double runs = (double)sum->runs, error = sum->sampling / runs;
	json_t *json = json_object();

	/* the larger of what the groups show and what their edges allow */
	if (spread->half_width > error)
		error = spread->half_width;
	jm_json_set_text(&json, "origin", jm_origin_name(origin));
	jm_json_set_number(&json, "joules", sum->joules / runs);
	jm_json_set_number(&json, "error_joules", hypot(error, sum->calibration / runs));
	jm_json_set_number(&json, "error_spread_joules", spread->half_width);
	jm_json_set_number(&json, "error_calibration_joules", sum->calibration / runs);
	return json;
}

/* A group that is one run counts as its run does. */
static bool group_counts(const struct jm_measure_repeat *r, int group, int command)
{
	if (r->group[group].command != command)
		return false;
	for (int i = 0; r->alone && i < r->runs; i++)
		if (r->run[i].group == group)
			return jm_repeat_counts(r, &r->run[i]);
	return true;
}

static bool has_meter(const struct jm_meters *set, enum jm_origin origin)
{
	for (int i = 0; i < set->n; i++)
		if (jm_meter_counts(set, i) && set->meter[i].origin == origin)
			return true;
	return false;
}

/* Of an origin that a meter has. each: room for all groups. *ret NULL: no run of the command
 * counts */
static int energy_json(const struct jm_measure_repeat *r, int command, double *each,
	struct jm_session *s, enum jm_origin origin, json_t **ret, struct jm_err *err)
{
	struct sums all = {0}, one;
	struct jm_stat spread;
	int n = 0, rc = 0;

	for (int i = 0; i < r->groups; i++) {
		if (!group_counts(r, i, command))
			continue;
		rc = rc ? rc : sum_group(s, r->group[i].phase, origin, &one, err);
		if (rc)
			one = (struct sums){.joules = NAN, .sampling = NAN, .calibration = NAN};
		all.joules += one.joules;
		all.sampling += one.sampling; /* their edges may all err to the same side */
		all.calibration += one.calibration;
		all.runs += r->group[i].runs;
		each[n++] = one.joules / (double)r->group[i].runs;
	}
	jm_stat_of(each, n, &spread);
	*ret = all.runs ? origin_json(origin, &all, &spread) : NULL;
	return rc;
}

static json_t *energies_json(
	const struct jm_measure_repeat *r, int command, struct jm_ctx *ctx, struct jm_session *s)
{
	double *each = calloc((size_t)r->groups + 1, sizeof(*each));
	json_t *list = json_array();

	for (int i = 0; each && i < JM_ORIGIN_COUNT; i++) {
		enum jm_origin origin = jm_origin_order[i];
		struct jm_err err = JM_ERR_INIT;
		json_t *one = NULL;

		if (!has_meter(jm_session_meters(s), origin))
			continue;
		if (energy_json(r, command, each, s, origin, &one, &err))
			jm_log(ctx, JM_WARNING,
				"The %s energy of one run is unknown, because it cannot be "
				"computed: %s",
				jm_origin_name(origin), err.text);
		if (one)
			json_array_append_new(list, one);
	}
	free(each);
	return list;
}

/* ---- figures of single runs ---- */

enum figure { SECONDS, JOULES, WATTS, USER, SYSTEM, FIGURES };
static const char *const figure_names[FIGURES] = {
	"seconds", "joules", "watts", "user_s", "system_s"};

/* values: [FIGURES][runs]. A run that is shorter than a refresh has no joules of its own. */
static void fill_values(const struct jm_measure_repeat *r, struct jm_session *s, double *values)
{
	for (int i = 0; i < r->runs; i++) {
		struct jm_repeat_run *run = &r->run[i];
		double seconds = (double)(run->outcome.end_ns - run->outcome.start_ns) * 1e-9;
		double joules = jm_repeat_joules(r, run, s);
		const double of_run[FIGURES] = {seconds, joules, joules / seconds,
			run->outcome.user_s, run->outcome.system_s};

		for (int f = 0; f < FIGURES; f++)
			values[f * r->runs + i] = of_run[f];
	}
}

/* The counted runs of a command; into [runs]. By block: place b - 1 holds that of block b, NAN =
 * none. */
static int pick(const struct jm_measure_repeat *r, int command, const double *of_runs,
	bool by_block, double *ret)
{
	int n = 0;

	for (int i = 0; by_block && i < r->blocks; i++)
		ret[i] = NAN;
	for (int i = 0; i < r->runs; i++) {
		const struct jm_repeat_run *run = &r->run[i];

		if (run->command == command && jm_repeat_counts(r, run))
			ret[by_block ? run->block - 1 : n++] = of_runs[i];
	}
	return by_block ? r->blocks : n;
}

static json_t *stat_json(const double *values, int n)
{
	json_t *json = json_object();
	struct jm_stat s;

	jm_stat_of(values, n, &s);
	jm_json_set_number(&json, "mean", s.mean);
	jm_json_set_number(&json, "sd", s.sd);
	jm_json_set_number(&json, "half_width", s.half_width);
	jm_json_set_number(&json, "median", s.median);
	jm_json_set_number(&json, "min", s.min);
	jm_json_set_number(&json, "max", s.max);
	return json;
}

/* Of a command by the first, block by block. */
static json_t *ratio_json(
	const struct jm_measure_repeat *r, int command, const double *of_runs, double *room)
{
	json_t *json = json_object();
	struct jm_comparison c;
	int n = pick(r, 0, of_runs, true, room);

	pick(r, command, of_runs, true, room + n);
	jm_stat_compare_paired(room, room + n, n, &c);
	jm_json_set_int(&json, "pairs", c.n_a);
	jm_json_set_number(&json, "ratio", c.ratio);
	jm_json_set_number(&json, "low", c.low);
	jm_json_set_number(&json, "high", c.high);
	jm_json_set_number(&json, "p", c.p);
	return json;
}

static json_t *words_json(char *const *words)
{
	json_t *list = json_array();

	for (; *words; words++) {
		json_t *text = json_string(*words);

		json_array_append_new(list, text ? text : json_null());
	}
	return list;
}

static json_t *command_json(const struct jm_measure_repeat *r, int command, const double *values,
	double *room, json_t *energies)
{
	json_t *json = json_pack(
		"{s:o, s:o}", "command", words_json(r->command[command]), "energy", energies);
	int failed = 0, runs = 0;

	for (int i = 0; i < r->runs; i++) {
		runs += r->run[i].command == command;
		failed += r->run[i].command == command && r->run[i].outcome.status != 0;
	}
	json_object_set_new(json, "runs", json_integer(runs));
	json_object_set_new(json, "counted", json_integer(pick(r, command, values, false, room)));
	json_object_set_new(json, "failed", json_integer(failed));
	for (int f = 0; f < FIGURES; f++) {
		int n = pick(r, command, values + f * r->runs, false, room);

		json_object_set_new(json, figure_names[f], stat_json(room, n));
	}
	if (!command)
		return json;
	json_object_set_new(json, "ratio_seconds", ratio_json(r, command, values, room));
	json_object_set_new(
		json, "ratio_joules", ratio_json(r, command, values + JOULES * r->runs, room));
	json_object_set_new(
		json, "ratio_watts", ratio_json(r, command, values + WATTS * r->runs, room));
	return json;
}

static json_t *run_json(
	const struct jm_measure_repeat *r, int i, const double *values, int64_t began_ns)
{
	const struct jm_repeat_run *run = &r->run[i];
	json_t *json = json_object();

	jm_json_set_int(&json, "command", run->command);
	jm_json_set_int(&json, "block", run->block);
	jm_json_set_int(&json, "position", run->position);
	jm_json_set_number(&json, "start_s", (double)(run->outcome.start_ns - began_ns) * 1e-9);
	jm_json_set_int(&json, "exit_status", run->outcome.status);
	jm_json_set_bool(&json, "counted", jm_repeat_counts(r, run));
	for (int f = 0; f < FIGURES; f++)
		jm_json_set_number(&json, figure_names[f], values[f * r->runs + i]);
	return json;
}

/* ---- all of it ---- */

static void add_protocol(const struct jm_measure_repeat *r, json_t *json)
{
	if (r->n_commands > 1)
		json_object_set_new(json, "seed", json_integer(r->options.seed));
	json_object_set_new(json, "warmups", json_integer(r->options.warmups));
	if (r->prepare)
		json_object_set_new(json, "prepare", words_json(r->prepare));
	if (r->share > 0)
		json_object_set_new(json, "until_interval", json_real(r->share));
}

static json_t *figures_json(const struct jm_measure_repeat *r, struct jm_ctx *ctx,
	struct jm_session *s, double *values, double *room)
{
	json_t *commands = json_array(), *each = json_array(), *json;

	fill_values(r, s, values);
	for (int i = 0; i < r->n_commands; i++)
		json_array_append_new(
			commands, command_json(r, i, values, room, energies_json(r, i, ctx, s)));
	for (int i = 0; i < r->runs; i++)
		json_array_append_new(each, run_json(r, i, values, jm_session_began(s)));
	json = json_object();
	jm_json_set_int(&json, "runs", r->runs);
	jm_json_set_int(&json, "groups", r->groups);
	jm_json_set_number(&json, "seconds", r->seconds);
	jm_json_set_number(&json, "refresh_s", (double)r->refresh_ns * 1e-9);
	jm_json_set(&json, "energy",
		json_incref(json_object_get(json_array_get(commands, 0), "energy")));
	jm_json_set(&json, "commands", commands);
	jm_json_set(&json, "each", each);
	if (json)
		add_protocol(r, json);
	return json;
}

json_t *jm_measure_repeat_json(const struct jm_measure_repeat *r, struct jm_ctx *ctx,
	struct jm_session *s, struct jm_err *err)
{
	size_t runs = (size_t)r->runs + 1;
	double *values = calloc(FIGURES * runs, sizeof(*values));
	double *room = calloc(2 * runs + 2 * (size_t)r->blocks, sizeof(*room));
	json_t *json = values && room ? figures_json(r, ctx, s, values, room) : NULL;

	free(values);
	free(room);
	if (!json)
		jm_err_set(err, JM_ENOMEM, "Out of memory for the figures of the repeats.");
	return json;
}
