/* SPDX-License-Identifier: Apache-2.0 */
/* Small sources that do what a test asks for, and sessions of them. To be included by one file of a
 * program. */
#ifndef JM_TEST_TOY_SOURCE_H
#define JM_TEST_TOY_SOURCE_H

#include "test.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "measure/session/session.h"

#include <stdio.h>
#include <unistd.h>

struct toy {
	struct jm_ctx *ctx;
	int64_t fails_at;
	bool gives_first; /* and fails after it gave a reading */
	int stalls_in;	  /* readings; one takes 1.2 s of real time or, on a busy machine, more: */
	double stalled_s;
	double wrap; /* J; 0 = no counter but a power */
};
static struct toy toy_state;
static const char *toy_covers;
static int toys_opened, toys_closed;

static int toy_add(struct jm_meters *set, const char *id, enum jm_origin origin, struct jm_err *err)
{
	struct jm_meter meter = {.source = "toy", .scope = JM_SCOPE_PACKAGE, .origin = origin};
	struct jm_signal signal = {
		.quantity = JM_Q_POWER, .refresh_ns = JM_MILLISECOND, .accuracy = NAN};
	int rc;

	if (toy_state.wrap > 0) {
		signal.quantity = JM_Q_ENERGY;
		signal.wrap = toy_state.wrap;
	}
	snprintf(meter.id, sizeof(meter.id), "%s", id);
	snprintf(meter.label, sizeof(meter.label), "%s", id);
	meter.covers = toy_covers;
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &signal, err);
	return rc < 0 ? rc : 0;
}

static int open_toy(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	const char *id = jm_values_text(options, "id");

	toys_opened++;
	toy_state.ctx = ctx;
	*ret_state = &toy_state;
	return toy_add(set, id ? id : "toy:0", JM_MEASURED, err);
}

static int open_guess(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	const char *covers = toy_covers;
	int rc;

	(void)options;
	toys_opened++;
	toy_covers = "cpu/0";
	toy_state.ctx = ctx;
	*ret_state = &toy_state;
	rc = toy_add(set, "guess:0", JM_ESTIMATED, err);
	toy_covers = covers;
	return rc;
}

static int open_broken(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	(void)ctx;
	(void)options;
	(void)ret_state;
	toy_add(set, "broken:0", JM_MEASURED, err);
	return jm_err_set(err, JM_ENOENT, "There is nothing here, as the test wants it.");
}

static int toy_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct toy *toy = state;
	int64_t now = jm_ctx_now(toy->ctx);

	if (toy->stalls_in && !--toy->stalls_in) {
		usleep(1200000);
		toy->stalled_s = (double)(jm_ctx_now(toy->ctx) - now) * 1e-9;
		now = jm_ctx_now(toy->ctx);
		if (toy->gives_first)
			toy->fails_at = now;
	}
	if (toy->fails_at && now >= toy->fails_at) {
		if (toy->gives_first)
			jm_give(sink, 0, 50, now);
		return jm_err_set(err, JM_EGONE, "The toy fell apart, as the test wants it.");
	}
	/* 200 W where it counts */
	jm_give(sink, 0, toy->wrap > 0 ? fmod(200 * ((double)now * 1e-9), toy->wrap) : 50, now);
	return 0;
}

static void toy_close(void *state)
{
	(void)state;
	toys_closed++;
}

static const struct jm_option toy_options[] = {{.name = "id", .type = JM_TEXT}, {0}};

#define TOY(name_, origin_, open_)                                                                 \
	static const struct jm_source name_ = {.name = #name_,                                     \
		.summary = "a toy",                                                                \
		.options = toy_options,                                                            \
		.origin = origin_,                                                                 \
		.open = open_,                                                                     \
		.read = toy_read,                                                                  \
		.close = toy_close}
TOY(toy, JM_MEASURED, open_toy);
TOY(guess, JM_ESTIMATED, open_guess);
TOY(broken, JM_MEASURED, open_broken);
TOY(pretend, JM_SIMULATED, open_toy);

/* One that minds its edges: how many began, are over, and how often it was asked whether one still
 * is. */
static struct {
	int begun, over, asked;
} edges;

static bool edgy_edge(void *state, enum jm_edge edge)
{
	(void)state;
	edges.begun += edge == JM_EDGE_BEGINS;
	edges.over += edge == JM_EDGE_OVER;
	edges.asked += edge == JM_EDGE_ON;
	return edge == JM_EDGE_ON && edges.asked % 2;
}

static const struct jm_source edgy = {.name = "edgy",
	.summary = "a toy",
	.options = toy_options,
	.origin = JM_MEASURED,
	.open = open_toy,
	.read = toy_read,
	.close = toy_close,
	.edge = edgy_edge};
static const struct jm_source *const table[] = {&guess, &broken, &toy, &pretend, NULL};

static struct jm_session *open_session(
	struct jm_ctx *ctx, const char *const *sources, struct jm_err *err)
{
	struct jm_session_options o = {.sources = sources, .table = table};
	struct jm_session *s = NULL;

	toys_opened = toys_closed = 0;
	toy_state = (struct toy){0};
	jm_session_open(ctx, &o, &s, err);
	return s;
}

#endif
