/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of a simulated node: steps that take the time which published throughputs say, under the
 * caps that the node's GPUs have now. All GPUs, or as many as are wanted, work on each step
 * together; the slowest sets the pace. A training step has its exchange modelled, and the record of
 * it the keys of a measured one.
 */
#include "base/text/json.h"
#include "parts/rank_times.h"
#include "run/workload.h"
#include "sim/registers.h"
#include "sim/sim_training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_STEP UINT64_C(0x73746570)
#define STREAM_RUN  UINT64_C(0x72756e)
#define RUN_SHARE   0.4 /* of --noise: how much whole runs differ; assumed */
#define LATE_NS	    (20 * JM_MILLISECOND)

#define TRAINING "transformer" /* the response that is made of a product and an all-gather */

struct state {
	struct jm_work *work;
	struct jm_sim_registers *registers;
	const char *response_name;
	const struct jm_sim_response *response;
	struct jm_sim_curve rate;
	struct jm_sim_load load;
	bool loaded;
	int gpus;	      /* that work, from the first one on */
	double items;	      /* of one step, per GPU */
	double noise, factor; /* of a step's time; of the whole run's */
	uint64_t steps;
	int64_t end_ns; /* of the last step */
	struct jm_own own[JM_SIM_GPUS_MAX];
	/* of TRAINING; else link is NULL */
	struct jm_sim_training training;
	const struct jm_sim_response *link;
	struct jm_sim_curve link_rate;
	struct jm_rank_time sum[JM_SIM_GPUS_MAX]; /* over `counted` steps, all but the first */
	int counted;
};

static const char *const responses[] = {"resnet50", "vit-l16", "sd-v2", "llama3-8b-train",
	"llama3-8b-infer", "xception", "product", "stream", "all-gather", TRAINING, NULL};

static const struct jm_option options[] = {
	{.name = "response",
		JM_BIND(JM_CHOICE, struct state, response_name),
		.choices = responses,
		.fallback = "llama3-8b-train",
		.help = "work whose response to a power cap is simulated: as published; product, "
			"stream and all-gather as assumed; xception on rtx6000 only; transformer: "
			"a training in data parallel, made of product and all-gather"},
	{.name = "gpus",
		JM_BIND(JM_INT, struct state, gpus),
		.min = 1,
		.max = JM_SIM_GPUS_MAX,
		.help = "GPUs of the node that work, counted from the first; the others are idle. "
			"Without it all work"},
	{.name = "layers",
		JM_BIND(JM_INT, struct state, training.layers),
		.min = 1,
		.max = 1000,
		.fallback = "32",
		.help = "layers of the model of --response transformer"},
	{.name = "hidden",
		JM_BIND(JM_INT, struct state, training.hidden),
		.min = 1,
		.max = 1 << 20,
		.fallback = "4096",
		.help = "width of the layers of --response transformer"},
	{.name = "batch",
		JM_BIND(JM_INT, struct state, training.batch),
		.min = 1,
		.max = 1 << 20,
		.fallback = "1",
		.help = "sequences per step and GPU of --response transformer"},
	{.name = "seq",
		JM_BIND(JM_INT, struct state, training.seq),
		.min = 1,
		.max = 1 << 24,
		.fallback = "4096",
		.help = "tokens per sequence of --response transformer"},
	{.name = "step-items",
		JM_BIND(JM_REAL, struct state, items),
		.unit = "",
		.min = 1,
		.max = 1e9,
		.help = "items per step and GPU of responses other than transformer; without it "
			"those that the response has"},
	{.name = "noise",
		JM_BIND(JM_REAL, struct state, noise),
		.unit = "",
		.min = 0,
		.max = 0.2,
		.fallback = "0.005",
		.help = "relative standard deviation of a step's time"},
	{0},
};

static int sim_check(const char *device, const char *precision, struct jm_err *err)
{
	struct jm_sim_name name;

	(void)precision;
	if (strncmp(device, "sim:", 4))
		return jm_err_set(err, JM_EUSAGE,
			"The workload sim runs on a simulated node only, not on '%s'; use --device "
			"sim:%s.",
			device, JM_SIM_DEFAULT);
	return jm_sim_name_parse(device + 4, &name, err);
}

static int open_node(struct jm_work *work, struct state *s, struct jm_err *err)
{
	const char *device = work->device ? work->device : "";
	int rc = sim_check(device, NULL, err);

	return rc ? rc : jm_sim_registers_open(work->ctx, device + 4, &s->registers, err);
}

/* What its GPUs exchange; they draw what a product draws all the time. */
static int choose_link(const struct jm_sim_gpu *gpu, struct state *s, struct jm_err *err)
{
	int i = jm_sim_response_find(gpu, "all-gather", err);

	if (i < 0)
		return i;
	s->link = &gpu->response[i];
	jm_sim_rate_curve(gpu, s->link, &s->link_rate);
	return 0;
}

/* Options of TRAINING are of no other response, and --step-items is not of it. */
static int check_options(const struct jm_values *given, bool trains, struct jm_err *err)
{
	static const char *const names[] = {"layers", "hidden", "batch", "seq"};

	if (trains && !jm_values_is_default(given, "step-items"))
		return jm_err_set(err, JM_EUSAGE,
			"A step of --response " TRAINING
			" has --batch times --seq tokens; omit --step-items.");
	for (size_t i = 0; !trains && i < sizeof(names) / sizeof(names[0]); i++)
		if (!jm_values_is_default(given, names[i]))
			return jm_err_set(err, JM_EUSAGE,
				"--%s belongs to --response " TRAINING
				"; omit it, or give that response.",
				names[i]);
	return 0;
}

static int choose_response(struct jm_work *work, struct state *s, struct jm_err *err)
{
	const struct jm_sim_gpu *gpu = jm_sim_registers_name(s->registers)->gpu;
	bool trains = !strcmp(s->response_name, TRAINING);
	int i = jm_sim_response_find(gpu, trains ? "product" : s->response_name, err);
	int code = i < 0 ? i : check_options(work->options, trains, err);

	if (!code && trains)
		code = choose_link(gpu, s, err);
	if (code)
		return code;
	s->response = &gpu->response[i];
	s->load = (struct jm_sim_load){.response = i, .seed = work->seed};
	jm_sim_rate_curve(gpu, s->response, &s->rate);
	return 0;
}

static int choose_gpus(struct jm_work *work, struct state *s, struct jm_err *err)
{
	const struct jm_sim_name *node = jm_sim_registers_name(s->registers);

	if (s->gpus > node->n)
		return jm_err_set(err, JM_EUSAGE,
			"The simulated node %s has %d GPUs; --gpus %d is more, so give %d or less.",
			node->text, node->n, s->gpus, node->n);
	if (!s->gpus)
		s->gpus = node->n;
	s->load.working = s->gpus;
	for (int i = 0; i < s->gpus && s->gpus < node->n; i++) {
		struct jm_own *own = &s->own[i];

		snprintf(own->uuid, sizeof(own->uuid), "sim:%s/gpu%d", node->text, i);
		snprintf(own->name, sizeof(own->name), "simulated %s", node->gpu->label);
	}
	work->own = s->own[0];
	work->also = &s->own[1];
	work->n_also = s->gpus < node->n ? s->gpus - 1 : 0;
	return 0;
}

static void describe(struct jm_work *work, const struct state *s)
{
	const struct jm_sim_training *t = &s->training;

	work->n_devices = s->gpus;
	if (s->link) {
		work->unit = "token";
		snprintf(work->detail, sizeof(work->detail),
			"simulated training of a transformer, %ld layers of %ld, %ld x %ld tokens "
			"on each GPU",
			t->layers, t->hidden, t->batch, t->seq);
		return;
	}
	work->unit = s->response->unit;
	snprintf(work->detail, sizeof(work->detail),
		"%s, simulated from %s, %g %ss per step and GPU", s->response->label,
		s->response->source, s->items, s->response->unit);
	snprintf(work->note, sizeof(work->note), "%s", s->response->note);
}

static void sim_teardown(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_sim_registers_close(s->registers);
	free(s);
}

static int sim_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the simulated work.");
	JM_FILL(work->options, s);
	s->work = work;
	rc = open_node(work, s, err);
	if (!rc)
		rc = choose_response(work, s, err);
	if (!rc)
		rc = choose_gpus(work, s, err);
	if (rc) {
		sim_teardown(s);
		return rc;
	}
	if (s->link)
		s->items = (double)s->training.batch * (double)s->training.seq;
	else if (isnan(s->items))
		s->items = s->response->step_items;
	s->factor = 1 + RUN_SHARE * s->noise * jm_sim_noise(work->seed, STREAM_RUN, 0);
	describe(work, s);
	*ret_state = s;
	return 0;
}

/* Adds a step to the sums over steps; the first one is left out, as in a measured training. */
static void count_step(
	struct state *s, double step, double factor, const struct jm_sim_training_time *time)
{
	if (s->steps == 1)
		return;
	s->counted++;
	for (int i = 0; i < s->gpus; i++) {
		struct jm_rank_time *sum = &s->sum[i];

		sum->step += factor * step;
		sum->exposed += factor * time[i].exposed;
		sum->kind[JM_ACCOUNT_SUM].exposed += factor * time[i].exposed;
		sum->kind[JM_ACCOUNT_SUM].busy += factor * (time[i].exposed + time[i].overlapped);
	}
}

/* Of a training, without noise; its times are multiplied by `factor` in the sums over steps. */
static double training_seconds(struct state *s, const struct jm_sim_limits *limits, double factor)
{
	const struct jm_sim_gpu *gpu = jm_sim_registers_name(s->registers)->gpu;
	struct jm_sim_training_time time[JM_SIM_GPUS_MAX];
	double flop_rate[JM_SIM_GPUS_MAX], step, bus_rate;

	for (int i = 0; i < s->gpus; i++)
		flop_rate[i] = 1e12 * jm_sim_common_rate(gpu, s->response, &s->rate, &limits[i], 1);
	bus_rate = 1e9 * jm_sim_common_rate(gpu, s->link, &s->link_rate, limits, s->gpus);
	step = jm_sim_training_step(&s->training, s->gpus, flop_rate, bus_rate, time);
	count_step(s, step, factor, time);
	return step;
}

/* Seconds of the next step under the limits of this moment. */
static double step_seconds(struct state *s)
{
	const struct jm_sim_name *node = jm_sim_registers_name(s->registers);
	struct jm_sim_limits limits[JM_SIM_GPUS_MAX];
	double noise = s->noise * jm_sim_noise(s->load.seed, STREAM_STEP, s->steps++);
	double factor = s->factor * (1 + noise);

	for (int i = 0; i < s->gpus; i++)
		limits[i] = jm_sim_registers_limits(s->registers, i);
	if (s->link)
		return factor * training_seconds(s, limits, factor);
	return s->items * factor /
	       jm_sim_common_rate(node->gpu, s->response, &s->rate, limits, s->gpus);
}

static int sim_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct state *s = state;
	int64_t now = jm_clock_now(s->work->sleeper->clock);
	int rc = s->loaded ? 0 : jm_sim_registers_load(s->registers, &s->load, err);

	if (rc)
		return rc;
	/* the queue of a device continues while its host is a little late */
	if (!s->loaded || now - s->end_ns > LATE_NS)
		s->end_ns = now;
	s->loaded = true;
	s->end_ns += llround(step_seconds(s) * 1e9);
	if (jm_sleep_until(s->work->sleeper, s->end_ns))
		return jm_err_set(err, JM_EINTR, "The simulated step was interrupted.");
	*ret = (struct jm_step){
		.items = s->items * s->gpus,
		.flops_model = NAN,
		.flops_executed = NAN,
		.bytes = NAN,
		.loss = NAN,
	};
	return 0;
}

/* Steps end in order, so none is under way; the load ends here. */
static int sim_finish(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct state *s = state;

	(void)ret;
	(void)err;
	if (s->loaded)
		jm_sim_registers_unload(s->registers);
	s->loaded = false;
	return 1;
}

static json_t *communication_json(const struct state *s)
{
	struct jm_rank_time time[JM_SIM_GPUS_MAX];
	json_t *json = json_object();

	for (int i = 0; i < s->gpus; i++) {
		const struct jm_rank_time *sum = &s->sum[i];

		time[i] = (struct jm_rank_time){.step = sum->step / s->counted,
			.exposed = sum->exposed / s->counted,
			.exposed_tp = NAN,
			.stage = NAN};
		for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
			time[i].kind[k] = (struct jm_account_time){NAN, NAN};
		time[i].kind[JM_ACCOUNT_SUM] = (struct jm_account_time){
			sum->kind[JM_ACCOUNT_SUM].busy / s->counted, time[i].exposed};
	}
	jm_json_set_text(&json, "transport", "sim");
	jm_json_set_int(&json, "buckets", s->training.layers);
	jm_json_set_number(&json, "bytes_per_step", jm_sim_training_bytes(&s->training));
	jm_json_set_number(&json, "exposed_s_per_step", time[0].exposed);
	jm_json_set_number(&json, "tp_exposed_s_per_step", NAN);
	jm_json_set_number(&json, "concurrent_share", jm_rank_times_concurrent(time, s->gpus));
	jm_json_set(&json, "ranks", jm_rank_times_json(time, s->gpus, s->gpus));
	return json;
}

/* A simulation has no result to check; adds the exchange of a training to the record. */
static int sim_verify(void *state, struct jm_err *err)
{
	struct state *s = state;

	(void)err;
	if (s->link && s->gpus > 1 && s->counted && s->work->more)
		json_object_set_new(s->work->more, "communication", communication_json(s));
	return 0;
}

const struct jm_workload jm_workload_sim = {
	.name = "sim",
	.summary = "published work on a simulated node (--device sim:h100x4)",
	.unit = "item",
	.options = options,
	.no_precision = true,
	.check = sim_check,
	.setup = sim_setup,
	.step = sim_step,
	.finish = sim_finish,
	.verify = sim_verify,
	.teardown = sim_teardown,
};
