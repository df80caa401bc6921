/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving: requests of random tokens or of a text, answered by a model whose keys and values are in
 * pages. A step is one pass over the rows that the scheduler chose. With --steps-ahead 1 the next
 * step is begun before the tokens of this one are read, else the host waits for each.
 */
#include "serve_state.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/run/profile_start.h"
#include "engine/run/start_values.h"
#include "listen.h"
#include "rate_search.h"
#include "replicas.h"
#include "serve_phase.h"
#include "serve_requests.h"
#include "serve_results.h"
#include "serve_step.h"
#include "serve_usage.h"
#include "serve_verify.h"
#include "simulated_steps.h"
#include "workloads/parts/memory.h"
#include "workloads/parts/weights_config.h"
#include "workloads/parts/work_device.h"

#define NUMBER(text, field, most, value, what)                                                     \
	{                                                                                          \
		.name = text, JM_BIND(JM_INT, struct serve, field), .min = 1, .max = most,         \
		.fallback = value, .help = what                                                    \
	}

static const char *const phase_names[] = {"both", "prefill", "decode", NULL};

static const char *const by_device[] = {"auto", NULL};

static const struct jm_option options[] = {
	{.name = "model",
		JM_BIND(JM_TEXT, struct serve, model_name),
		.fallback = "llama",
		.argument = "NAME",
		.help = "what is served: a model that declares a step with a cache (llama), or one "
			"of its presets"},
	{.name = "from",
		JM_BIND(JM_TEXT, struct serve, source.from),
		.argument = "FILE|FOLDER",
		.help = "weights in the format safetensors, one file or a folder as Hugging Face "
			"lays it out, whose config.json gives the dimensions of the model; "
			"without it random ones"},
	{.name = "text",
		JM_BIND(JM_TEXT, struct serve, source.text),
		.argument = "FILE",
		.help = "prompts: each line that is not empty is one, and after the last the "
			"first is next; --input-tokens is not used then"},
	{.name = "tokenizer",
		JM_BIND(JM_TEXT, struct serve, source.tokenizer),
		.argument = "FILE",
		.help = "the tokenizer.json of the model, for --text and --listen; without it that "
			"of the folder of --from"},
	{.name = "answers",
		JM_BIND(JM_TEXT, struct serve, answers_file),
		.argument = "FILE",
		.use = JM_OPTION_WRITES | JM_OPTION_COMMAS,
		.help = "a line of JSON for each request that was done: tokens of its prompt and "
			"of its answer and, with --text, the text of both"},
	{.name = "temperature",
		JM_BIND(JM_REAL, struct serve, rule.temperature),
		.unit = "",
		.min = 0,
		.max = 1000,
		.fallback = "0",
		.help = "tokens are drawn from the softmax of logits / X; 0: the likeliest is "
			"taken"},
	{.name = "top-k",
		JM_BIND(JM_INT, struct serve, rule.top_k),
		.argument = "N",
		.min = 0,
		.max = 1e9,
		.fallback = "0",
		.help = "draw one of the N likeliest tokens; 0: of all"},
	{.name = "top-p",
		JM_BIND(JM_REAL, struct serve, rule.top_p),
		.unit = "",
		.min = 0,
		.max = 1,
		.fallback = "1",
		.help = "draw one of the likeliest tokens that together have this probability"},
	{.name = "phase",
		JM_BIND(JM_CHOICE, struct serve, phase),
		.choices = phase_names,
		.fallback = "both",
		.help = "what steps compute, so that the energy of each is measured: prompts alone "
			"(each makes one token), tokens of answers alone (a request follows "
			"another with the same prompt; needs --arrival closed), or both"},
	{.name = "listen",
		JM_BIND(JM_TEXT, struct serve, listen),
		.check = jm_listen_check,
		.argument = "ADDRESS:PORT",
		.help = "take the requests from clients over HTTP (/v1/completions) in place of "
			"those of --arrival; 127.0.0.1:8000 is for clients on this machine. With "
			"--ranks one server is before all replicas"},
	JM_LOAD_OPTIONS(struct serve),
	NUMBER("step-tokens", step_tokens, 8192, "256",
		"rows of a step at most: one of each answer under way, the rest for prompts"),
	NUMBER("cache-pages", pages, 1e8, NULL,
		"pages of 16 tokens in the cache; without it as many as all running requests need, "
		"or as the memory holds if that is less"),
	{.name = "kv",
		JM_BIND(JM_CHOICE, struct serve, kv),
		.choices = jm_cache_types,
		.fallback = "auto",
		.help = "type of the keys and values in the cache: the type in which --precision "
			"computes (auto), or e4m3 with the scale 1 "
			"(f8e4m3), whose 8 bits let the cache hold twice as many tokens as 16 bits "
			"do"},
	{.name = "steps-ahead",
		JM_BIND(JM_INT, struct serve, ahead_wanted),
		.argument = "N",
		.min = 0,
		.max = JM_SERVE_FLIGHTS - 1,
		.choices = by_device,
		.fallback = "auto",
		.help = "1: a step is launched before the tokens of the one before are known, so "
			"that the device does not wait for the host; requests join and leave a "
			"step later. auto: 1 on GPUs, 0 where the host itself computes"},
	NUMBER("profile-rows", profile, 8192, NULL,
		"time each node of the steps of this many rows (a size of a step: 1, 2, 4 ... 256, "
		"384, 512, 768 ...): FLOP/s, bytes/s "
		"and share of the roofline go into the record"),
	{.name = "ranks",
		.type = JM_INT,
		.min = 1,
		.max = JM_RANKS_MOST,
		.argument = "N",
		.help = "replicas of the model, each on a device of its own: --device names one "
			"for each, or one that all use. They take requests from one queue; "
			"--running, --step-tokens and --cache-pages are those of each"},
	NUMBER("threads", threads, 4096, NULL,
		"host threads of a rank; without it all that may be used, of which each rank has "
		"its share"),
	{0},
};

/* ---- setup ----------------------------------------------------------------------------------- */

static int choose_model(struct serve *s, struct jm_err *err)
{
	const struct jm_preset *preset;
	int code = jm_model_find(s->model_name, &s->training.model, &preset, err);

	if (!code)
		code = jm_weights_dims(
			s->training.model, preset, s->source.from, s->work->options, &s->dims, err);
	if (!code)
		code = jm_precision_set(&s->training, s->work->precision, err);
	s->training.pure = true; /* nothing is updated: no f32 masters */
	s->training.dims = &s->dims;
	s->training.batch = 1;
	return code;
}

/* Shape of the largest step; checks that requests fit into the model. */
static int choose_shape(struct serve *s, struct jm_step_shape *ret, struct jm_err *err)
{
	int64_t context = jm_dim(&s->dims, "context");
	int64_t most = s->listen ? context : s->load.arrivals.input.to + s->load.arrivals.output.to;
	int code;

	if (most > context)
		return jm_err_set(err, JM_EUSAGE,
			"Requests of up to %lld tokens exceed the model's context of %lld; give "
			"shorter prompts or answers (--input-tokens and --output-tokens, --lengths "
			"or --text).",
			(long long)most, (long long)context);
	code = jm_served_shape(s->step_tokens, s->running, most, ret, err);
	if (code)
		return code;
	/* a client of --listen is refused when it asks for so much */
	if (s->pages && s->pages < ret->pages_each && !s->listen)
		return jm_err_set(err, JM_EUSAGE,
			"Requests of up to %lld tokens need %lld pages of the cache; --cache-pages "
			"is %d.",
			(long long)most, (long long)ret->pages_each, s->pages);
	ret->narrow_cache = s->kv == JM_CACHE_F8E4M3;
	ret->pages = s->pages ? s->pages : ret->pages_each * s->running;
	ret->samples = s->rule.temperature > 0 || s->listen; /* a client may ask for draws */
	return 0;
}

struct to_plan {
	struct serve *serve;
	struct jm_step_shape *shape;
	size_t budget; /* bytes; 0 = unknown */
};

/* Plans with the pages of the shape. If the user gives none and the memory does not hold them, with
 * as many as it does. */
static int plan_served(void *what, struct jm_err *err)
{
	const struct to_plan *to = what;
	struct serve *s = to->serve;
	struct jm_step_shape *shape = to->shape;
	int code = jm_served_plan(&s->training, shape, &s->device, &s->served, err);
	size_t budget = to->budget, page, fixed, arena;

	if (code || s->pages || !budget)
		return code;
	page = jm_served_page_bytes(&s->served);
	fixed = jm_served_peak(&s->served, &arena) - (size_t)shape->pages * page;
	if (fixed + (size_t)shape->pages * page <= budget ||
		fixed + (size_t)shape->pages_each * page > budget)
		return 0; /* they fit, or not even those of one request do */
	shape->pages = (int64_t)((budget - fixed) / page);
	jm_served_close(&s->served);
	return jm_served_plan(&s->training, shape, &s->device, &s->served, err);
}

/* Rank 0 before the others, so that what is chosen by timing is chosen once. */
static int plan(struct serve *s, struct jm_step_shape *shape, struct jm_err *err)
{
	struct to_plan to = {.serve = s, .shape = shape};
	int code = jm_replicas_memory(s, &to.budget, err);

	if (!code)
		code = jm_gang_in_turn(&s->gang, plan_served, &to, err);
	return jm_work_device_planned(s->work, code);
}

static const char *weights_of(const struct serve *s)
{
	if (s->simulated)
		return "no";
	return s->from.path ? "given" : "random";
}

static void describe(struct serve *s)
{
	int replicas = jm_work_world(s->work);
	char of[32] = "";

	if (replicas > 1)
		snprintf(of, sizeof(of), ", each of %d replicas", replicas);
	snprintf(s->work->detail, sizeof(s->work->detail),
		"%s, %.1f M parameters, %s weights, %d requests at once, steps of %d tokens, %d "
		"pages of %d tokens%s",
		s->model_name, (double)jm_graph_parameters(s->served.program[0]->graph) / 1e6,
		weights_of(s), s->running, s->step_tokens, s->pages, JM_PAGE_TOKENS, of);
	s->work->n_devices = jm_gang_devices(s->work);
}

static int read_prompts(struct serve *s, struct jm_err *err)
{
	int code;

	s->vocab = s->source.vocab = jm_dim(&s->dims, "vocab");
	if (s->source.text && s->listen)
		return jm_err_set(err, JM_EUSAGE,
			"Clients of --listen bring prompts of their own; omit --text.");
	if (s->source.tokenizer && !s->source.text && !s->listen)
		return jm_err_set(err, JM_EUSAGE,
			"Random prompts need no --tokenizer; omit it, or give --text or --listen.");
	if (s->listen)
		code = jm_prompts_open_tokenizer(&s->source, &s->prompts, err);
	else
		code = s->source.text ? jm_prompts_open(&s->source, &s->prompts, err) : 0;
	if (s->source.text)
		s->load.arrivals.input = (struct range){s->prompts.shortest, s->prompts.longest};
	return code < 0 ? code : 0;
}

static int load_weights(struct serve *s, struct jm_err *err)
{
	const struct jm_network network = {s->training.model, &s->dims};
	struct jm_program *p = s->served.program[0];
	int code;

	if (!s->from.path)
		return jm_program_init(p, s->work->seed, err);
	code = jm_weights_load(p, network, &s->from, s->work->seed, &s->loaded, err);
	if (code)
		return code;
	jm_log(s->work->ctx, JM_INFO, "Weights from %s: %s.", s->from.path, s->loaded.what);
	if (s->work->more)
		json_object_set_new(s->work->more, "weights",
			jm_weights_json(s->from.path, &s->loaded, NULL, 0));
	return 0;
}

static int open_files(struct serve *s, struct jm_err *err)
{
	int code = s->source.from ? jm_safetensors_open(s->source.from, &s->from, err) : 0;

	if (!code && s->answers_file && !s->work->rank)
		code = jm_serve_open_answers(s, err);
	return code;
}

/* The program of steps of so many rows. */
static int start_profile(struct serve *s, struct jm_err *err)
{
	for (int i = 0; i < s->served.n_programs && s->profile; i++)
		if (s->profile == s->served.size[i])
			s->profiled = s->served.program[i];
	if (s->profiled)
		return jm_profile_start(s->profiled, err);
	return s->profile ? jm_err_set(err, JM_EUSAGE,
				    "There is no step of %d rows; give --profile-rows a power of "
				    "two or, from 384 on, 1.5 times one, up to --step-tokens.",
				    s->profile)
			  : 0;
}

/* Steps are padded where that costs no time, and else shortened to one of the sizes. */
static struct jm_scheduler_limits limits_of(const struct serve *s, int64_t pages_each)
{
	struct jm_scheduler_limits limits = {s->running, s->step_tokens, s->pages, JM_PAGE_TOKENS,
		(int)pages_each, s->served.size, s->served.n_programs};

	while (limits.n_sizes && limits.sizes[0] < JM_SERVED_FEW) {
		limits.sizes++;
		limits.n_sizes--;
	}
	return limits;
}

static int open_device(struct serve *s, struct jm_err *err)
{
	if (jm_simulated_wanted(s))
		return jm_simulated_open(s, err);
	return jm_work_device_open(s->work, jm_gang_threads(s->work, s->threads), &s->device, err);
}

/* What was planned. */
static int make(struct serve *s, struct jm_err *err)
{
	int code = jm_work_device_planned(s->work, jm_served_build(&s->served, err));

	if (!code)
		code = load_weights(s, err);
	return code ? code : start_profile(s, err);
}

static int prepare(struct serve *s, struct jm_err *err)
{
	struct jm_step_shape shape = {.pages = s->pages};
	int code = jm_load_open(&s->load, s->work, s->source.text, err);

	if (!code)
		code = jm_serve_phase_check(s, err);
	if (!code)
		code = jm_replicas_check(s, err);
	if (!code && s->listen)
		code = jm_listen_check_others(s->work->options, err);
	if (!code)
		code = choose_model(s, err);
	if (!code)
		code = open_files(s, err);
	if (!code)
		code = read_prompts(s, err);
	if (!code)
		code = choose_shape(s, &shape, err);
	if (!code)
		code = open_device(s, err);
	if (!code)
		code = jm_replicas_open(s, err);
	if (!code)
		code = plan(s, &shape, err);
	s->pages = (int)shape.pages;
	s->limits = limits_of(s, shape.pages_each);
	if (!code)
		code = jm_serve_phase_fits(s, err);
	if (!code)
		code = jm_scheduler_new(&s->limits, &s->scheduler, err);
	if (!code)
		code = jm_serve_steps_open(s, err);
	if (!code && !s->simulated)
		code = make(s, err);
	if (!code && s->listen)
		code = jm_replicas_meet(s, err); /* so that clients find all ready */
	if (!code && s->listen && !s->work->rank)
		code = jm_listen_open(s, err);
	if (!code)
		describe(s);
	return code;
}

/* ---- before the steps that count ------------------------------------------------------------- */

static int step_of_setup(void *state, struct jm_err *err)
{
	const struct serve *s = state;
	struct jm_step step;
	int code = jm_work_interrupted(s->work, err);

	return code ? code : jm_serve_step(state, &step, err);
}

/* All prompts are computed. */
static int fill_cache(struct serve *s, struct jm_err *err)
{
	struct jm_step step;
	int code = 0;

	while (!code && !jm_serve_phase_is_filled(s))
		code = step_of_setup(s, err);
	if (!code)
		code = jm_serve_finish(s, &step, err);
	s->usage = (struct jm_serve_usage){0};
	if (s->queue.shared)
		jm_queue_reset_tokens(&s->queue);
	return code;
}

static int restart(void *state, struct jm_err *err)
{
	struct serve *s = state;
	int code = jm_serve_give_up(s, err);

	jm_scheduler_free(s->scheduler);
	s->scheduler = NULL;
	s->awaited_more = false; /* the next step follows none of the requests before */
	if (!code)
		code = jm_scheduler_new(&s->limits, &s->scheduler, err);
	return code ? code : jm_replicas_restart(s, err);
}

static int unfinished(const void *state)
{
	return jm_serve_under_way(state);
}

/* The first request may load code, and of those in the queue each rank may take any: each answers
 * one of its own first. */
static int answer_one(struct serve *s, struct jm_err *err)
{
	struct jm_queue_shared *shared = s->queue.shared;
	int code = 0;

	s->queue.shared = NULL;
	jm_load_restart(&s->load, 1e6, 1);
	while (!code && (!s->load.answers.n || jm_serve_under_way(s)))
		code = step_of_setup(s, err);
	s->queue.shared = shared;
	return code;
}

static int find_rate(struct serve *s, struct jm_err *err)
{
	const struct jm_rate_gang gang = jm_replicas_of_search(s);
	const struct jm_rate_server server = {.arg = s,
		.load = &s->load,
		.clock = s->work->sleeper->clock,
		.restart = restart,
		.step = step_of_setup,
		.unfinished = unfinished,
		.warm_s = s->work->warm_s,
		.steady_s = s->work->steady_s,
		.gang = s->queue.shared ? &gang : NULL};
	int code = s->queue.shared ? answer_one(s, err) : 0;

	if (!code)
		code = jm_rate_search(&server, err);
	jm_load_note(&s->load, s->work);
	s->usage = (struct jm_serve_usage){0};
	s->n_timed = 0;
	s->timed_mask = 0;
	return code;
}

/* Options that were given and change nothing. */
static void note_unused(const struct serve *s, struct jm_work *work)
{
	const struct jm_values *o = work->options;
	bool chooses = !jm_values_is_default(o, "top-k") || !jm_values_is_default(o, "top-p");

	jm_load_note_unused(&s->load, work);
	if (chooses && s->rule.temperature <= 0 && !s->listen)
		jm_work_note(work, "With --temperature 0 --top-k and --top-p change nothing.");
}

static int serve_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct serve *s = calloc(1, sizeof(*s));
	int code;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	JM_FILL(work->options, s);
	s->work = work;
	s->running = s->load.answers.running;
	/* one request is under way; the other places only shorten its check */
	if (s->load.arrivals.kind == ARRIVE_SINGLE && s->running > s->step_tokens)
		s->running = s->step_tokens;
	*ret_state = s;
	code = prepare(s, err);
	if (!code && s->phase == JM_SERVE_DECODE)
		code = fill_cache(s, err);
	if (!code && s->load.finds_rate)
		code = find_rate(s, err);
	note_unused(s, work);
	if (!code && !s->simulated)
		jm_work_device_note(
			work, &s->device, s->training.fp8 ? JM_F8E4M3 : s->training.precision);
	return code;
}

/* With a step ahead the first call only launches one. Of several replicas a step has the tokens
 * that all have made since the one before, and the first one is returned with the second, so that
 * the last has those that are made until a phase has ended. */
static int serve_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct serve *s = state;
	int code = jm_serve_step(s, ret, err);
	bool several = jm_work_world(s->work) > 1, later = several || s->n_flights;

	if (!code && later && !s->owes) {
		s->owes = true;
		return 1;
	}
	if (!code && several)
		ret->items = jm_replicas_uncredited(s);
	return code;
}

/* The pause that may follow is none of the requests. */
static int serve_finish(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct serve *s = state;
	bool owed = s->owes;
	int code = jm_serve_finish(s, ret, err);

	jm_simulated_rest(s);
	s->owes = false;
	s->awaited_more = false;
	if (!code && owed && jm_work_world(s->work) > 1)
		ret->items = jm_replicas_uncredited(s);
	return code ? code : !owed;
}

static int serve_agree(void *state, void *value, size_t bytes, struct jm_err *err)
{
	(void)bytes; /* a bool: does the phase go on? */
	return jm_replicas_agree(state, value, err);
}

static void serve_teardown(void *state)
{
	struct serve *s = state;

	if (!s)
		return;
	jm_listen_close(s);
	jm_load_close(&s->load);
	jm_replicas_close(s);
	jm_scheduler_free(s->scheduler);
	jm_simulated_close(s);
	jm_serve_steps_close(s);
	jm_served_close(&s->served);
	jm_prompts_close(&s->prompts);
	jm_safetensors_close(&s->from);
	jm_values_done(&s->dims);
	if (s->device.backend)
		jm_device_close(&s->device);
	free(s);
}

/* Those of a model that can be served. */
static int served_options(const char *name, const struct jm_option **ret, struct jm_err *err)
{
	const struct jm_preset *preset;
	const struct jm_model *model = NULL;
	int code = jm_model_find(name, &model, &preset, err);

	if (code)
		return code;
	if (!model->step)
		return jm_err_set(err, JM_EUSAGE, "Model %s cannot be served; use --model llama.",
			model->name);
	*ret = model->options;
	return 0;
}

const struct jm_workload jm_workload_serve = {
	.name = "serve",
	.summary = "a language model answers requests: prefill, decode, cache in pages",
	.unit = "token",
	.options = options,
	.chooser = "model",
	.chosen_options = served_options,
	.setup = serve_setup,
	.step = serve_step,
	.finish = serve_finish,
	.agree = serve_agree,
	.verify = jm_serve_verify,
	.teardown = serve_teardown,
};
