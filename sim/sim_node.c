/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each GPU keeps its latest stretches of constant inputs. A sensor value belongs to a refresh and
 * is computed from the stretches that began before it: the order in which threads of one simulated
 * moment run does not show.
 */
#include "sim_node.h"
#include "base/ctx.h"
#include "meter/meter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STRETCHES  1024 /* of 1 ms, as steps of serving may be: the window of an average */
#define HISTORY_NS INT64_C(2000000000) /* before the opening; longer than any sensor's window */
#define PHASE_SEED UINT64_C(0x6a6d)    /* of the sensors' refresh against each other */

struct stretch {
	struct jm_sim_segment segment;
	double watts; /* where it tends to */
	struct jm_sim_limits limits;
	bool loaded, bound;
	double demand;
	const double *part_share;
	uint64_t seed;
};

struct gpu {
	struct stretch stretch[STRETCHES]; /* a ring; the newest is at (n - 1) % STRETCHES */
	unsigned int n;
	int64_t phase_ns; /* of its sensor's refresh */
	struct jm_sim_sample sample;
};

struct jm_sim_node {
	struct jm_ctx *ctx;
	struct jm_sim_registers *registers;
	struct jm_sim_name name;
	struct jm_sim_cursor cursor;
	int response; /* whose curve is in `rate` */
	struct jm_sim_curve rate;
	int64_t opened_ns, now_ns, refresh_ns, window_ns, average_ns;
	struct gpu gpu[JM_SIM_GPUS_MAX];
};

/* ---- inputs to stretches --------------------------------------------------------------------- */

static const struct jm_sim_response *response_of(
	struct jm_sim_node *node, const struct jm_sim_inputs *in)
{
	const struct jm_sim_response *response;

	if (in->load.response == JM_SIM_IDLE)
		return NULL;
	response = &node->name.gpu->response[in->load.response];
	if (node->response != in->load.response)
		jm_sim_rate_curve(node->name.gpu, response, &node->rate);
	node->response = in->load.response;
	return response;
}

/* What GPU i tends to. One that is faster than the slowest waits for it and draws less meanwhile;
 * it does not while all exchange data. */
static struct stretch stretch_of(struct jm_sim_node *node, const struct jm_sim_inputs *in, int i)
{
	const struct jm_sim_gpu *kind = node->name.gpu;
	const struct jm_sim_response *response = response_of(node, in);
	struct stretch s = {.watts = kind->idle_watts,
		.limits = in->limits[i],
		.demand = kind->idle_watts,
		.part_share = kind->part_share};
	double held = jm_sim_held_watts(kind, in->limits[i].cap_watts), busy, own, common;
	int working = in->load.working ? in->load.working : node->name.n;

	if (!response || i >= working)
		return s;
	busy = jm_sim_limited_watts(kind, response, &in->limits[i]);
	own = jm_sim_joint_rate(response, jm_sim_rate_at(kind, &node->rate, busy), working);
	common = jm_sim_common_rate(kind, response, &node->rate, in->limits, working);
	s.watts = kind->idle_watts + (busy - kind->idle_watts) * common / own;
	s.loaded = true;
	s.bound = held <= busy;
	s.demand = response->demand_watts;
	s.part_share = response->part_share;
	s.seed = in->load.seed;
	return s;
}

static struct stretch *newest(struct gpu *g)
{
	return &g->stretch[(g->n - 1) % STRETCHES];
}

static bool same(const struct stretch *a, const struct stretch *b)
{
	return a->watts == b->watts && a->limits.cap_watts == b->limits.cap_watts &&
	       a->limits.clock_hz == b->limits.clock_hz && a->loaded == b->loaded &&
	       a->bound == b->bound && a->seed == b->seed && a->part_share == b->part_share;
}

static void apply(struct jm_sim_node *node, const struct jm_sim_event *event)
{
	for (int i = 0; i < node->name.n; i++) {
		struct gpu *g = &node->gpu[i];
		struct stretch *last = newest(g), next = stretch_of(node, &event->after, i);
		int64_t t_ns = event->t_ns == JM_SIM_NOW ? node->now_ns : event->t_ns;
		struct jm_sim_state state;

		if (same(last, &next))
			continue;
		if (t_ns < last->segment.t0_ns)
			t_ns = last->segment.t0_ns;
		state = jm_sim_segment_at(&last->segment, t_ns);
		jm_sim_segment_init(
			&next.segment, node->name.gpu, t_ns, &state, next.watts, next.bound);
		g->stretch[g->n++ % STRETCHES] = next;
	}
}

/* ---- what the sensor sees -------------------------------------------------------------------- */

/* The stretch that was in force just before t_ns; the oldest one kept when t_ns lies before all. */
static const struct stretch *stretch_before(const struct gpu *g, int64_t t_ns)
{
	unsigned int oldest = g->n > STRETCHES ? g->n - STRETCHES : 0, k = g->n - 1;

	while (k > oldest && g->stretch[k % STRETCHES].segment.t0_ns >= t_ns)
		k--;
	return &g->stretch[k % STRETCHES];
}

static double joules_at(const struct gpu *g, int64_t t_ns)
{
	const struct jm_sim_segment *s = &stretch_before(g, t_ns)->segment;

	return jm_sim_segment_joules(s, t_ns < s->t0_ns ? s->t0_ns : t_ns);
}

static double mean_watts(const struct gpu *g, int64_t t_ns, int64_t window_ns, double joules)
{
	return (joules - joules_at(g, t_ns - window_ns)) / ((double)window_ns * 1e-9);
}

static double in_steps(double value, double step)
{
	return floor(value / step) * step;
}

/* Mean of the noise of the last n refreshes: what a long window keeps of it. */
static double noise_of(uint64_t seed, int gpu, int64_t refresh, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += jm_sim_noise(seed, (uint64_t)gpu, (uint64_t)(refresh - i));
	return sum / n;
}

static double clock_of(const struct jm_sim_gpu *kind, const struct stretch *s, double watts)
{
	double share = (watts - kind->idle_watts) / (s->demand - kind->idle_watts);

	if (!s->loaded)
		return kind->clock_idle_hz;
	if (!s->bound)
		return s->limits.clock_hz;
	share = fmin(fmax(share, 0), 1);
	return fmin(s->limits.clock_hz,
		fmax(kind->clock_max_hz * pow(share, kind->clock_exponent), kind->clock_idle_hz));
}

static void sense(struct jm_sim_node *node, int i, int64_t t_ns, int64_t refresh)
{
	const struct jm_sim_gpu *kind = node->name.gpu;
	struct gpu *g = &node->gpu[i];
	const struct stretch *s = stretch_before(g, t_ns);
	struct jm_sim_state state = jm_sim_segment_at(&s->segment, t_ns);
	double watts = mean_watts(g, t_ns, node->window_ns, state.joules);
	double average = mean_watts(g, t_ns, node->average_ns, state.joules);
	double noise = kind->sensor_noise * noise_of(s->seed, i, refresh, 1);
	int averaged = (int)(node->average_ns / node->refresh_ns);
	double noise_average = kind->sensor_noise * noise_of(s->seed, i, refresh, averaged);

	g->sample = (struct jm_sim_sample){
		.t_ns = t_ns,
		.joules = in_steps(state.joules, kind->sensor_energy_step_joules),
		.watts = in_steps(watts * (1 + noise), 1e-3),
		.watts_average = in_steps(average * (1 + noise_average), 1e-3),
		.clock_hz = in_steps(clock_of(kind, s, watts), 1e6),
		.memory_clock_hz = kind->memory_clock_hz,
		.celsius = floor(state.celsius),
		.utilisation = s->loaded,
		.throttle = s->bound ? JM_THROTTLE_POWER_CAP : 0,
		.held_watts = jm_sim_held_watts(kind, s->limits.cap_watts),
		.cap_watts = s->limits.cap_watts,
	};
	for (int k = 0; k < JM_SIM_PARTS; k++)
		g->sample.watts_part[k] = in_steps(
			(kind->part_idle_watts[k] + s->part_share[k] * (watts - kind->idle_watts)) *
				(1 + noise),
			1e-3);
}

void jm_sim_node_advance(struct jm_sim_node *node)
{
	struct jm_sim_event event;

	node->now_ns = jm_ctx_now(node->ctx);
	while (jm_sim_cursor_next(&node->cursor, node->registers, node->now_ns, &event))
		apply(node, &event);
}

const struct jm_sim_sample *jm_sim_node_read(struct jm_sim_node *node, int gpu)
{
	struct gpu *g = &node->gpu[gpu];
	int64_t refresh, t_ns;

	if (node->now_ns - g->sample.t_ns < node->refresh_ns && g->sample.t_ns > node->opened_ns)
		return &g->sample;
	refresh = (node->now_ns - g->phase_ns + node->refresh_ns) / node->refresh_ns - 1;
	t_ns = refresh * node->refresh_ns + g->phase_ns;
	if (t_ns < node->opened_ns)
		t_ns = node->opened_ns;
	if (t_ns != g->sample.t_ns)
		sense(node, gpu, t_ns, refresh);
	return &g->sample;
}

struct jm_sim_state jm_sim_node_truth(const struct jm_sim_node *node, int gpu, int64_t t_ns)
{
	return jm_sim_segment_at(&stretch_before(&node->gpu[gpu], t_ns)->segment, t_ns);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int64_t to_ns(double seconds)
{
	return llround(seconds * 1e9);
}

static void start(struct jm_sim_node *node)
{
	const struct jm_sim_gpu *kind = node->name.gpu;
	int64_t t0_ns = node->opened_ns - HISTORY_NS;

	node->refresh_ns = to_ns(kind->sensor_refresh_s);
	node->window_ns = to_ns(kind->sensor_window_s);
	node->average_ns = to_ns(kind->sensor_average_s);
	for (int i = 0; i < node->name.n; i++) {
		struct gpu *g = &node->gpu[i];
		struct stretch first = stretch_of(node, &node->cursor.inputs, i);
		struct jm_sim_state steady = jm_sim_steady(kind, first.watts);

		jm_sim_segment_init(&first.segment, kind, t0_ns, &steady, first.watts, first.bound);
		g->stretch[g->n++] = first;
		g->phase_ns = (int64_t)(jm_sim_hash(PHASE_SEED, (uint64_t)i, 0) %
					(uint64_t)node->refresh_ns);
		g->sample.t_ns = t0_ns;
	}
}

int jm_sim_node_open(
	struct jm_ctx *ctx, const char *name, struct jm_sim_node **ret, struct jm_err *err)
{
	struct jm_sim_node *node = calloc(1, sizeof(*node));
	int rc;

	if (!node)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the simulated node.");
	node->ctx = ctx;
	node->response = JM_SIM_IDLE;
	rc = jm_sim_registers_open(ctx, name, &node->registers, err);
	if (rc) {
		free(node);
		return rc;
	}
	node->name = *jm_sim_registers_name(node->registers);
	node->opened_ns = node->now_ns = jm_ctx_now(ctx);
	jm_sim_cursor_init(&node->cursor, node->registers);
	start(node);
	*ret = node;
	return 0;
}

void jm_sim_node_close(struct jm_sim_node *node)
{
	if (!node)
		return;
	jm_sim_registers_close(node->registers);
	free(node);
}

const struct jm_sim_name *jm_sim_node_name(const struct jm_sim_node *node)
{
	return &node->name;
}
