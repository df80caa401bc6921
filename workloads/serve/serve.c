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
#include "serve_phase.h"
#include "serve_requests.h"
#include "serve_results.h"
#include "serve_step.h"
#include "serve_usage.h"
#include "workloads/parts/memory.h"
#include "workloads/parts/profile_json.h"
#include "workloads/parts/weights_config.h"
#include "workloads/parts/work_device.h"
#include "workloads/parts/work_output.h"

#define VERIFIED 8 /* requests that are repeated alone */
/* Shares of an answer's tokens; with the keys of another request nearly all differ. */
#define MAY_DIFFER 0.25 /* in 16 bits */
/* where rows were rounded to 8 bits: from here on the answers are wrong */
#define MUST_DIFFER_8 0.95

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
			"those of --arrival; 127.0.0.1:8000 is for clients on this machine"},
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
	NUMBER("threads", threads, 4096, NULL, "host threads; without it all that may be used"),
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
			"fewer --input-tokens or --output-tokens.",
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

/* Plans with the pages of the shape. If the user gives none and the memory does not hold them, with
 * as many as it does. */
static int plan_served(struct serve *s, struct jm_step_shape *shape, struct jm_err *err)
{
	int code = jm_served_plan(&s->training, shape, &s->device, &s->served, err);
	size_t budget = jm_fit_memory(s->work->ctx, &s->device), page, fixed, arena;

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

static void describe(struct serve *s)
{
	snprintf(s->work->detail, sizeof(s->work->detail),
		"%s, %.1f M parameters, %s weights, %d requests at once, steps of %d tokens, %d "
		"pages of %d tokens",
		s->model_name, (double)jm_graph_parameters(s->served.program[0]->graph) / 1e6,
		s->from.path ? "given" : "random", s->running, s->step_tokens, s->pages,
		JM_PAGE_TOKENS);
	s->work->n_devices = 1;
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

	if (!code && s->answers_file)
		code = jm_work_output(s->work, s->answers_file, s->answers_name, err);
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

static int prepare(struct serve *s, struct jm_err *err)
{
	struct jm_step_shape shape = {.pages = s->pages};
	int code = jm_load_open(&s->load, s->work, s->source.text, err);

	if (!code)
		code = jm_serve_phase_check(s, err);
	if (!code)
		code = choose_model(s, err);
	if (!code)
		code = open_files(s, err);
	if (!code)
		code = read_prompts(s, err);
	if (!code)
		code = choose_shape(s, &shape, err);
	if (!code)
		code = jm_work_device_open(s->work, s->threads, &s->device, err);
	if (!code)
		code = jm_work_device_planned(s->work, plan_served(s, &shape, err));
	s->pages = (int)shape.pages;
	s->limits = limits_of(s, shape.pages_each);
	if (!code)
		code = jm_serve_phase_fits(s, err);
	if (!code)
		code = jm_scheduler_new(&s->limits, &s->scheduler, err);
	if (!code)
		code = jm_serve_steps_open(s, err);
	if (!code)
		code = jm_work_device_planned(s->work, jm_served_build(&s->served, err));
	if (!code)
		code = load_weights(s, err);
	if (!code)
		code = start_profile(s, err);
	if (!code && s->listen)
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
	return code;
}

static int restart(void *state, struct jm_err *err)
{
	struct serve *s = state;
	int code = jm_serve_give_up(s, err);

	jm_scheduler_free(s->scheduler);
	s->scheduler = NULL;
	s->awaited_more = false; /* the next step follows none of the requests before */
	return code ? code : jm_scheduler_new(&s->limits, &s->scheduler, err);
}

static int unfinished(const void *state)
{
	return jm_serve_under_way(state);
}

static int find_rate(struct serve *s, struct jm_err *err)
{
	const struct jm_rate_server server = {.arg = s,
		.load = &s->load,
		.clock = s->work->sleeper->clock,
		.restart = restart,
		.step = step_of_setup,
		.unfinished = unfinished};
	int code = jm_rate_search(&server, err);

	jm_load_note(&s->load, s->work->note, sizeof(s->work->note));
	s->usage = (struct jm_serve_usage){0};
	return code;
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
	*ret_state = s;
	code = prepare(s, err);
	if (!code && s->phase == JM_SERVE_DECODE)
		code = fill_cache(s, err);
	if (!code && s->load.finds_rate)
		code = find_rate(s, err);
	if (!code)
		jm_work_device_note(
			work, &s->device, s->training.fp8 ? JM_F8E4M3 : s->training.precision);
	return code;
}

/* Writes the rows of the request from position `at` on; they are alone in the step. */
static void lay_out_alone(struct serve *s, int number, int at, int n)
{
	struct jm_served_model *c = &s->served;

	for (int i = 0; i < n; i++) {
		c->ids[i] = jm_serve_token(s, number, at + i);
		c->position[i] = at + i;
		c->request[i] = 0;
	}
	for (int i = 0; i < c->shape.requests; i++)
		c->last[i] = i < n ? i : 0;
	for (int i = 0; i < n && i < c->shape.requests; i++)
		jm_serve_rule(s, number, at + i + 1, i);
}

/*
 * Computes the request again, alone, and counts how many tokens of its answer differ from what
 * follows the tokens before them: those of the answer, so that one difference does not change what
 * comes after it.
 */
static int repeat(struct serve *s, int number, int *ret_differ, struct jm_err *err)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, number);
	int answer = r->input - 1, end = answer + r->output, code = 0, n;

	*ret_differ = 0;
	for (int i = 0; i < s->served.shape.pages_each; i++)
		s->served.page[i] = i;
	memset(s->served.used_pages, 0,
		(size_t)s->served.shape.requests * sizeof(*s->served.used_pages));
	s->served.used_pages[0] = (int32_t)s->served.shape.pages_each;
	for (int at = 0; at < end && !code; at += n) {
		int left = at < answer ? answer - at : end - at;
		int most = at < answer ? s->step_tokens : s->running;

		n = left < most ? left : most;
		lay_out_alone(s, number, at, n);
		code = jm_served_run(&s->served, n, err);
		for (int i = 0; i < n && at >= answer && !code; i++)
			*ret_differ += s->served.token[i] != jm_serve_token(s, number, at + i + 1);
	}
	return code;
}

/*
 * In 16 bits the order of sums, which differs with the rows of a step, decides between logits that
 * are nearly equal, and moves the bounds between drawn tokens; in 8 bits it moves the rounding of
 * whole rows (63 of 100 tokens differed for llama3-8b with random weights on an H200). 1: this
 * cannot be judged. drawn: some of them were, not all the likeliest ones.
 */
static int judge(const struct serve *s, int differing, int tokens, bool drawn, struct jm_err *err)
{
	bool narrow = s->kv == JM_CACHE_F8E4M3;
	double most = s->training.precision == JM_F32 && !narrow ? 0 : MAY_DIFFER;

	if (differing <= most * tokens)
		return 0;
	if (most == 0 || !(drawn || (s->training.fp8 && differing < MUST_DIFFER_8 * tokens)))
		return jm_err_set(err, JM_ERANGE,
			"%d of %d tokens of answers are others when their requests are served "
			"alone.",
			differing, tokens);
	jm_err_set(err, JM_ERANGE,
		"%d of %d tokens are others when their requests are served alone, which rounding "
		"in %d bits may cause; verify with --precision %s%s%s.",
		differing, tokens, s->training.fp8 || narrow ? 8 : 16,
		s->training.fp8 && !drawn ? "bf16 or f32" : "f32", narrow ? " --kv auto" : "",
		drawn ? " or --temperature 0" : "");
	return 1;
}

static int repeat_some(struct serve *s, struct jm_err *err)
{
	int code = 0, tested = 0, differing = 0, tokens = 0, differ;
	bool drawn = false;

	for (int i = 0; i < jm_scheduler_requests(s->scheduler) && tested < VERIFIED && !code;
		i++) {
		if (!jm_serve_is_done(s, i))
			continue;
		code = repeat(s, i, &differ, err);
		differing += differ;
		tokens += jm_scheduler_request(s->scheduler, i)->output;
		drawn = drawn || jm_serve_rule_of(s, i).temperature > 0;
		tested++;
	}
	if (!code && !tested) {
		jm_err_set(err, JM_EUSAGE, "No request was done; measure longer.");
		return 1;
	}
	return code ? code : judge(s, differing, tokens, drawn, err);
}

/* With a step ahead the first call only launches one. */
static int serve_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct serve *s = state;
	int code = jm_serve_step(s, ret, err);

	if (code || !s->n_flights || s->owes)
		return code;
	s->owes = true;
	return 1;
}

/* The pause that may follow is none of the requests. */
static int serve_finish(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct serve *s = state;
	bool owed = s->owes;
	int code = jm_serve_finish(s, ret, err);

	s->owes = false;
	s->awaited_more = false;
	return code ? code : !owed;
}

/* Unfinished requests lose what the cache has of them: nothing runs after this. */
static int serve_verify(void *state, struct jm_err *err)
{
	struct serve *s = state;
	int code = s->listener ? jm_listen_finish(s, err) : 0;

	if (!code)
		code = jm_load_finish(&s->load, s->work, err);
	if (!code && s->answers_file)
		code = jm_serve_write_answers(s, err);
	if (s->work->more)
		jm_serve_record(s);
	if (s->work->more && s->profiled)
		json_object_set_new(s->work->more, "profile", jm_profile_json(s->profiled));
	return code ? code : repeat_some(s, err);
}

static void serve_teardown(void *state)
{
	struct serve *s = state;

	if (!s)
		return;
	jm_listen_close(s);
	jm_load_close(&s->load);
	jm_scheduler_free(s->scheduler);
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
	.verify = serve_verify,
	.teardown = serve_teardown,
};
