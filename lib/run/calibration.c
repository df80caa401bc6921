/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a load that begins and ends at known times, and reads the sensors meanwhile. */
#include "run/calibration.h"

#include "base/ctx.h"
#include "base/text/json.h"
#include "measure/session/session.h"
#include "result/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "energy/sensor_fit.h"

/* Length of a load and of a pause, s. Longer than most sensors' refresh, and not synchronous
 * with it. */
#define SHORTEST 0.15
#define LONGEST	 0.6
#define WARM_S	 1.0
#define REST_S	 1.0
#define GOLDEN	 0.6180339887498949

struct kept {
	struct jm_reading *reading;
	int n, room;
};

struct bench {
	struct jm_ctx *ctx;
	const struct jm_calibrate *how;
	struct jm_session *session;
	struct jm_sleeper sleeper;
	const struct jm_workload *workload;
	struct jm_work work;
	struct jm_values values;
	void *state;
	struct kept *kept; /* one per signal */
	int n_kept;
	bool lost; /* a reading was lost because memory ran out */
	int64_t *edge;
	int n_edges, edge_room;
	int64_t start_ns;
};

/* ---- readings -------------------------------------------------------------------------------- */

static bool wanted(const struct jm_signal *s)
{
	return s->quantity == JM_Q_ENERGY || s->quantity == JM_Q_POWER ||
	       s->quantity == JM_Q_POWER_AVERAGE;
}

static void on_reading(void *arg, int signal, struct jm_reading reading)
{
	struct bench *b = arg;
	struct kept *k = signal < b->n_kept ? &b->kept[signal] : NULL;

	if (!k || !wanted(&jm_session_meters(b->session)->signal[signal]))
		return;
	if (k->n == k->room) {
		int room = k->room ? 2 * k->room : 4096;
		struct jm_reading *grown = reallocarray(k->reading, (size_t)room, sizeof(*grown));

		if (!grown) {
			b->lost = true;
			return;
		}
		k->reading = grown;
		k->room = room;
	}
	k->reading[k->n++] = reading;
}

/* ---- the load -------------------------------------------------------------------------------- */

static int add_edge(struct bench *b, struct jm_err *err)
{
	if (b->n_edges == b->edge_room) {
		int room = b->edge_room ? 2 * b->edge_room : 256;
		int64_t *grown = reallocarray(b->edge, (size_t)room, sizeof(*grown));

		if (!grown)
			return jm_err_set(err, JM_ENOMEM, "Out of memory for the times of a load.");
		b->edge = grown;
		b->edge_room = room;
	}
	b->edge[b->n_edges++] = jm_ctx_now(b->ctx);
	return 0;
}

/* Steps for that long; returns when the device has finished them. */
static int load_for(struct bench *b, double seconds, struct jm_err *err)
{
	int64_t until = jm_ctx_now(b->ctx) + (int64_t)(seconds * 1e9);
	struct jm_step step;
	int rc = 0;

	while (rc >= 0 && jm_ctx_now(b->ctx) < until)
		rc = b->workload->step(b->state, &step, err);
	if (rc >= 0)
		rc = 0;
	while (!rc && b->workload->finish)
		rc = b->workload->finish(b->state, &step, err);
	return rc < 0 ? rc : 0;
}

static void rest_for(struct bench *b, double seconds)
{
	jm_sleep_until(&b->sleeper, jm_ctx_now(b->ctx) + (int64_t)(seconds * 1e9));
}

static int check_interrupt(const struct bench *b, struct jm_err *err)
{
	return b->ctx->interrupts && *b->ctx->interrupts
		       ? jm_err_set(
				 err, JM_EINTR, "The calibration was interrupted; nothing is kept.")
		       : 0;
}

/* Lengths that fill the range evenly: multiples of the golden ratio, modulo 1. */
static int run_loads(struct bench *b, struct jm_err *err)
{
	int64_t end;
	double place = (double)(b->how->seed % 1000) / 1000;
	int rc = load_for(b, WARM_S, err);

	rest_for(b, REST_S);
	if (!rc)
		rc = check_interrupt(b, err);
	b->n_edges = 0;
	end = jm_ctx_now(b->ctx) + (int64_t)(b->how->seconds * 1e9);
	while (!rc && jm_ctx_now(b->ctx) < end) {
		place = fmod(place + GOLDEN, 1);
		rc = add_edge(b, err);
		if (!rc)
			rc = load_for(b, SHORTEST + (LONGEST - SHORTEST) * place, err);
		if (!rc)
			rc = add_edge(b, err);
		place = fmod(place + GOLDEN, 1);
		rest_for(b, SHORTEST + (LONGEST - SHORTEST) * place);
		if (!rc)
			rc = check_interrupt(b, err);
	}
	return rc;
}

static int set_up(struct bench *b, struct jm_err *err)
{
	const struct jm_calibrate *how = b->how;
	int rc;

	b->workload = jm_workload_find(how->workload, err);
	if (!b->workload)
		return err->code;
	if (b->workload->check) {
		rc = b->workload->check(how->device, how->precision, err);
		if (rc)
			return rc;
	}
	rc = jm_values_init(&b->values, b->workload->options, err);
	if (rc)
		return rc;
	b->work = (struct jm_work){.ctx = b->ctx,
		.sleeper = &b->sleeper,
		.options = &b->values,
		.device = how->device,
		.precision = b->workload->no_precision ? NULL : how->precision,
		.seed = how->seed,
		.n_devices = 1};
	return b->workload->setup(&b->work, &b->state, err);
}

/* ---- the observation ------------------------------------------------------------------------- */

static double seconds_of(const struct bench *b, int64_t t_ns)
{
	return (double)(t_ns - b->start_ns) * 1e-9;
}

static json_t *changes_json(const struct bench *b, int signal)
{
	const struct jm_signal *s = &jm_session_meters(b->session)->signal[signal];
	const struct kept *k = &b->kept[signal];
	struct jm_reading *change = calloc((size_t)k->n + 1, sizeof(*change));
	json_t *list = json_array();
	int n = change ? jm_sensor_changes(s, k->reading, k->n, change) : 0;

	for (int i = 0; i < n; i++)
		json_array_append_new(
			list, json_pack("[f, f]", seconds_of(b, change[i].t_ns), change[i].value));
	free(change);
	return list;
}

static json_t *signal_json(const struct bench *b, int signal)
{
	json_t *json = json_object(), *declared = json_object();
	const struct jm_meters *set = jm_session_meters(b->session);
	const struct jm_signal *s = &set->signal[signal];
	const struct jm_meter *m = &set->meter[s->meter];

	jm_json_set_text(&json, "meter", m->id);
	jm_json_set_text(&json, "label", m->label);
	jm_json_set_text(&json, "driver", m->driver);
	jm_json_set_text(&json, "quantity", jm_quantity_name(s->quantity));
	jm_json_set_text(&json, "origin", jm_origin_name(m->origin));
	jm_json_set_number(
		&declared, "refresh_s", s->refresh_ns > 0 ? (double)s->refresh_ns * 1e-9 : NAN);
	jm_json_set_number(&declared, "window_s",
		s->window_ns >= 0 && s->quantity != JM_Q_ENERGY ? (double)s->window_ns * 1e-9
								: NAN);
	jm_json_set(&json, "declared", declared);
	jm_json_set(&json, "changes", changes_json(b, signal));
	jm_json_set(&json, "fit", json_null());
	jm_json_set(&json, "why", json_null());
	return json;
}

static json_t *wall_text(const struct bench *b)
{
	char text[48];

	jm_time_text(jm_clock_wall(b->ctx->clock), text, sizeof(text));
	return json_string(text);
}

static json_t *observation(const struct bench *b)
{
	const struct jm_meters *set = jm_session_meters(b->session);
	json_t *edges = json_array(), *signals = json_array();

	for (int i = 0; i < b->n_edges; i++)
		json_array_append_new(edges, json_real(seconds_of(b, b->edge[i])));
	for (int i = 0; i < set->n_signals; i++)
		if (wanted(&set->signal[i]))
			json_array_append_new(signals, signal_json(b, i));
	return json_pack("{s:i, s:o, s:s, s:s, s:o, s:o}", "version", 1, "at", wall_text(b),
		"device", b->how->device, "workload", b->how->workload, "edges_s", edges, "signals",
		signals);
}

static int open_session(struct bench *b, struct jm_err *err)
{
	const struct jm_session_options o = {.sources = b->how->sources,
		.interval_ns = b->how->interval_ns,
		.on_reading = on_reading,
		.on_reading_arg = b,
		.no_trace = true,
		.as_declared = true};
	int rc = jm_session_open(b->ctx, &o, &b->session, err);

	if (rc)
		return rc;
	b->n_kept = jm_session_meters(b->session)->n_signals;
	b->kept = calloc((size_t)b->n_kept + 1, sizeof(*b->kept));
	return b->kept ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the readings.");
}

static int observe(struct bench *b, struct jm_err *err)
{
	struct jm_err stop = JM_ERR_INIT;
	int rc;

	jm_sleeper_init(&b->sleeper, b->ctx->clock);
	b->start_ns = jm_ctx_now(b->ctx);
	rc = set_up(b, err);
	if (!rc)
		rc = jm_session_start(b->session, err);
	if (!rc) {
		rc = run_loads(b, err);
		jm_session_announce_stop(b->session);
	}
	if (b->state)
		b->workload->teardown(b->state);
	jm_values_done(&b->values);
	jm_sleeper_done(&b->sleeper);
	if (jm_session_stop(b->session, &stop) && !rc)
		rc = jm_err_set(err, stop.code, "%s", stop.text);
	if (!rc && b->lost)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the readings.");
	return rc;
}

int jm_calibrate_observe(
	struct jm_ctx *ctx, const struct jm_calibrate *how, json_t **ret, struct jm_err *err)
{
	struct bench b = {.ctx = ctx, .how = how};
	int rc = open_session(&b, err);

	*ret = NULL;
	if (!rc)
		rc = observe(&b, err);
	if (!rc)
		*ret = observation(&b);
	if (!rc && !*ret)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for what was observed.");
	jm_session_close(b.session);
	for (int i = 0; i < b.n_kept && b.kept; i++)
		free(b.kept[i].reading);
	free(b.kept);
	free(b.edge);
	return rc;
}
