/* SPDX-License-Identifier: Apache-2.0 */
/* What fits into memory, by planning: no step runs. */
#include "fit_batch.h"
#include "base/text/number.h"

#define MOST_BATCH 1000000

/* ---- the search ------------------------------------------------------------------------------ */

struct search {
	struct jm_training *t;
	const struct jm_batch_feed *feed;
	const struct jm_evaluation *eval;
	struct jm_device *device;
	size_t limit;
	/* the largest that fits and the smallest that does not, with their peaks; 0 = none yet */
	int64_t good, bad;
	double good_peak, bad_peak, slope;
	int least; /* batch that the network can have */
};

/* Of a training that is planned and its evaluation. */
static int peak_beside(const struct search *s, const struct jm_training *t,
	const struct jm_program *program, double *ret, struct jm_err *err)
{
	struct jm_evaluation eval = *s->eval;
	int code = eval.every ? jm_evaluation_plan(&eval, t, program, err) : 0;

	if (!code)
		*ret = (double)jm_evaluation_peak(&eval, program, s->feed);
	jm_evaluation_drop(&eval);
	return code;
}

static int peak_of(struct search *s, int64_t batch, double *ret, struct jm_err *err)
{
	struct jm_training t = *s->t;
	struct jm_program *program;
	struct jm_graph *graph;
	int code;

	t.batch = batch;
	code = jm_model_train(&t, &graph, err);
	if (code)
		return code;
	code = jm_program_plan(graph, s->device, &program, err);
	if (!code) {
		code = peak_beside(s, &t, program, ret, err);
		jm_program_free(program);
	}
	jm_graph_free(graph);
	return code;
}

/* Plans one batch and moves the bound that it is. */
static int try_batch(struct search *s, int64_t batch, struct jm_err *err)
{
	double peak;
	int code = peak_of(s, batch, &peak, err);

	if (code)
		return code;
	if (peak > (double)s->limit) {
		s->bad = batch;
		s->bad_peak = peak;
		return 0;
	}
	if (s->good && peak > s->good_peak)
		s->slope = (peak - s->good_peak) / (double)(batch - s->good);
	s->good = batch;
	s->good_peak = peak;
	return 0;
}

/* Where the peak should meet the limit, between the bounds; every third time the middle. */
static int64_t next_batch(const struct search *s, int round)
{
	double room = (double)s->limit - s->good_peak, slope = s->slope, next;

	if (s->bad)
		slope = (s->bad_peak - s->good_peak) / (double)(s->bad - s->good);
	next = slope > 0 ? (double)s->good + room / slope : 2.0 * (double)s->good;
	if (s->bad && round % 3 == 2)
		next = 0.5 * (double)(s->good + s->bad);
	if (s->bad && next > (double)s->bad - 1)
		return s->bad - 1;
	if (next > MOST_BATCH)
		return MOST_BATCH;
	return next < (double)s->good + 1 ? s->good + 1 : (int64_t)next;
}

static bool is_found(const struct search *s)
{
	return s->good == MOST_BATCH || (s->bad && s->bad - s->good == 1);
}

/* The smallest batch that the network can have. */
static int try_first(struct search *s, struct jm_err *err)
{
	struct jm_err one = JM_ERR_INIT;
	int code;

	s->least = 1;
	code = try_batch(s, s->least, &one);
	if (code == JM_ERANGE) /* batch norm of a single value */
		return try_batch(s, ++s->least, err);
	return code ? jm_err_set(err, code, "%s", one.text) : 0;
}

/* From the smallest on, or from one that fits. */
static int find_largest(struct search *s, struct jm_err *err)
{
	bool begun = s->good;
	int code = begun ? 0 : try_first(s, err);

	for (int round = begun; !code && s->good && !is_found(s); round++)
		code = try_batch(s, round ? next_batch(s, round) : s->least + 1, err);
	return code;
}

/* First by rough plans, where a device makes them faster; they need no less memory than exact
 * ones. */
static int search(struct search *s, struct jm_err *err)
{
	bool rough = jm_device_plan_roughly(s->device, true);
	int code = find_largest(s, err);

	if (!rough)
		return code;
	jm_device_plan_roughly(s->device, false);
	s->bad = 0;
	return code ? code : find_largest(s, err);
}

int jm_fit_batch(struct jm_training *t, const struct jm_batch_feed *feed,
	const struct jm_evaluation *eval, struct jm_device *device, size_t limit,
	struct jm_room room, struct jm_err *err)
{
	struct search s = {.t = t, .feed = feed, .eval = eval, .device = device, .limit = limit};
	int code;

	if (!limit)
		return jm_err_set(err, JM_ENOSUP,
			"The memory of device %s is unknown, so there is no largest batch; give "
			"--batch a number.",
			device->backend->name);
	code = search(&s, err);
	if (!code && !s.good)
		return jm_room_refuse(room, s.bad_peak, err,
			"Not even a batch of %d fits: it needs %.*f GB, but %.*f GB are available; "
			"use a smaller sequence or model (fewer --layers), or --recompute%s.",
			s.least, JM_GB(s.bad_peak), JM_GB(limit),
			t->pure ? "" : ", or --precision bf16-true, which keeps no f32 masters");
	if (!code)
		t->batch = s.good;
	return code;
}
