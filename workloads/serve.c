/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving: requests of random tokens or of a text, answered greedily by a model whose keys and values are in pages. A step is one
 * pass over the rows that the scheduler chose. The host waits for each step, because its tokens are the next one's input.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/rng.h"
#include "engine/run/cache.h"
#include "base/files/output.h"
#include "engine/run/profile_start.h"
#include "engine/run/start_values.h"
#include "run/workload.h"
#include "serving/scheduler.h"
#include "workloads/parts/profile_json.h"
#include "workloads/parts/prompts.h"
#include "workloads/parts/weights_config.h"
#include "workloads/parts/weights_load.h"
#include "workloads/parts/work_device.h"

#define VERIFIED 4 /* requests that are repeated alone */
#define MAY_DIFFER                                                                                 \
	0.25 /* of an answer's tokens in 16 bits; with the keys of another request nearly all do */

enum arrival { ARRIVE_ALL, ARRIVE_SINGLE, ARRIVE_CLOSED };
static const char *const arrivals[] = {"all", "single", "closed", NULL};

struct range {
	int from, to;
};

/* What the scheduler does not know of a request. Times: ns of the clock; 0 = not yet. */
struct answer {
	int64_t arrived, first, end;
	int32_t *token; /* [output] */
};

struct state {
	struct jm_work *work;
	const char *model_name, *input_text, *output_text, *csv, *answers;
	struct jm_prompts_source source;
	struct jm_prompts prompts;
	struct jm_safetensors from;
	struct jm_weights_loaded loaded;
	int requests, running, step_tokens, pages, threads, profile;
	struct jm_program *profiled; /* NULL = none */
	enum arrival arrival;
	struct range input, output;
	struct jm_values dims;
	struct jm_training training;
	struct jm_device device;
	struct jm_cache cache;
	struct jm_scheduler *scheduler;
	struct answer *answer; /* [requests of the scheduler] */
	int cap;
	int64_t vocab;
};

#define NUMBER(text, field, most, value, what)                                                     \
	{                                                                                          \
		.name = text, JM_BIND(JM_INT, struct state, field), .min = 1, .max = most,         \
		.fallback = value, .help = what                                                    \
	}

static const struct jm_option options[] = {
	{.name = "model",
		JM_BIND(JM_TEXT, struct state, model_name),
		.fallback = "llama",
		.argument = "NAME",
		.help = "what is served: a model that declares a step with a cache (llama), or one "
			"of its presets"},
	{.name = "from",
		JM_BIND(JM_TEXT, struct state, source.from),
		.argument = "FILE|FOLDER",
		.help = "weights in the format safetensors, one file or a folder as Hugging Face "
			"lays it out, whose config.json gives the dimensions of the model; "
			"without it random ones"},
	{.name = "text",
		JM_BIND(JM_TEXT, struct state, source.text),
		.argument = "FILE",
		.help = "prompts: each line that is not empty is one, and after the last the "
			"first is next; --input-tokens is not used then"},
	{.name = "tokenizer",
		JM_BIND(JM_TEXT, struct state, source.tokenizer),
		.argument = "FILE",
		.needs = "text",
		.help = "the tokenizer.json of the model; without it that of the folder of --from"},
	{.name = "answers",
		JM_BIND(JM_TEXT, struct state, answers),
		.argument = "FILE",
		.help = "a line of JSON for each request that was done: tokens of its prompt and "
			"of its answer and, with --text, the text of both"},
	{.name = "arrival",
		JM_BIND(JM_CHOICE, struct state, arrival),
		.choices = arrivals,
		.fallback = "all",
		.help = "when requests arrive: all at once, again when all are done; one at a "
			"time; or a "
			"new one for each that is done, so that --running are under way"},
	NUMBER("requests", requests, 1e6, "64", "requests that arrive at once with --arrival all"),
	NUMBER("running", running, 4096, "16", "requests that a step serves at most"),
	{.name = "input-tokens",
		JM_BIND(JM_TEXT, struct state, input_text),
		.fallback = "128",
		.argument = "N|N:M",
		.help = "tokens of a prompt: exactly N, or uniform from N to M"},
	{.name = "output-tokens",
		JM_BIND(JM_TEXT, struct state, output_text),
		.fallback = "32",
		.argument = "N|N:M",
		.help = "tokens of an answer: exactly N, or uniform from N to M"},
	NUMBER("step-tokens", step_tokens, 8192, "256",
		"rows of a step at most: one of each answer under way, the rest for prompts"),
	NUMBER("cache-pages", pages, 1e8, NULL,
		"pages of 16 tokens in the cache; without it as many as all running requests need"),
	{.name = "requests-csv",
		JM_BIND(JM_TEXT, struct state, csv),
		.argument = "FILE",
		.help = "a line for each request: tokens, arrival, time to the first token, "
			"latency"},
	NUMBER("profile", profile, 8192, NULL,
		"time each node of the steps of this many rows (a power of two): FLOP/s, bytes/s "
		"and "
		"share of the roofline go into the record"),
	NUMBER("threads", threads, 4096, NULL, "host threads; without it all that may be used"),
	{0},
};

/* ---- setup ---------------------------------------------------------------------------------------------- */

static int read_range(const char *text, const char *name, struct range *ret, struct jm_err *err)
{
	char rest = 0;
	int n = sscanf(text, "%d:%d%c", &ret->from, &ret->to, &rest);

	if (n == 1 && !strchr(text, ':') && strspn(text, "0123456789") == strlen(text))
		ret->to = ret->from;
	else if (n != 2)
		ret->from = 0;
	if (ret->from >= 1 && ret->to >= ret->from && ret->to <= 1000000)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--%s is '%s'; give a number of tokens, or the smallest and the largest: 1:1024.",
		name, text);
}

static int choose_model(struct state *s, struct jm_err *err)
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
static int choose_shape(struct state *s, struct jm_step_shape *ret, struct jm_err *err)
{
	int64_t most = s->input.to + s->output.to, context = jm_dim(&s->dims, "context");
	int64_t each = (most - 1 + JM_PAGE_TOKENS - 1) / JM_PAGE_TOKENS;

	if (most > context)
		return jm_err_set(err, JM_EUSAGE,
			"Requests of up to %lld tokens exceed the model's context of %lld; give "
			"fewer "
			"--input-tokens or --output-tokens.",
			(long long)most, (long long)context);
	if (s->step_tokens < s->running)
		return jm_err_set(err, JM_EUSAGE,
			"A step of %d tokens cannot serve %d requests; give --step-tokens at least "
			"as "
			"large as --running.",
			s->step_tokens, s->running);
	if (!s->pages)
		s->pages = (int)(each * s->running);
	*ret = (struct jm_step_shape){.tokens = s->step_tokens,
		.requests = s->running,
		.pages = s->pages,
		.pages_each = each};
	return 0;
}

static void describe(struct state *s)
{
	snprintf(s->work->detail, sizeof(s->work->detail),
		"%s, %.1f M parameters, %s weights, %d requests at once, steps of %d tokens, "
		"%d "
		"pages of %d tokens",
		s->model_name, (double)jm_graph_parameters(s->cache.program[0]->graph) / 1e6,
		s->from.path ? "given" : "random", s->running, s->step_tokens, s->pages,
		JM_PAGE_TOKENS);
	s->work->n_devices = 1;
}

static int read_prompts(struct state *s, struct jm_err *err)
{
	int code;

	s->vocab = s->source.vocab = jm_dim(&s->dims, "vocab");
	if (!s->source.text)
		return 0;
	code = jm_prompts_open(&s->source, &s->prompts, err);
	s->input = (struct range){s->prompts.shortest, s->prompts.longest};
	return code;
}

static int load_weights(struct state *s, struct jm_err *err)
{
	const struct jm_network network = {s->training.model, &s->dims};
	struct jm_program *p = s->cache.program[0];
	int code;

	if (!s->from.path)
		return jm_program_init(p, s->work->seed, err);
	code = jm_weights_load(p, network, &s->from, s->work->seed, &s->loaded, err);
	if (code)
		return code;
	jm_log(s->work->ctx, JM_INFO, "Weights from %s: %s.", s->from.path, s->loaded.what);
	if (s->work->more)
		json_object_set_new(s->work->more, "weights",
			json_pack("{s:s, s:I, s:f, s:b, s:n, s:i}", "from", s->from.path, "bytes",
				(json_int_t)s->loaded.bytes, "load_s", s->loaded.seconds, "new_top",
				0, "continued", "first_step", 0));
	return 0;
}

static int open_files(struct state *s, struct jm_err *err)
{
	int code = s->source.from ? jm_safetensors_open(s->source.from, &s->from, err) : 0;

	return code || !s->answers ? code : jm_output_try(s->answers, err);
}

/* The program of steps of so many rows. */
static int start_profile(struct state *s, struct jm_err *err)
{
	for (int i = 0; i < s->cache.n_programs && s->profile; i++)
		if (s->profile == 1 << i)
			s->profiled = s->cache.program[i];
	if (s->profiled)
		return jm_profile_start(s->profiled, err);
	return s->profile ? jm_err_set(err, JM_EUSAGE,
				    "There is no step of %d rows; give --profile a power of two up "
				    "to --step-tokens.",
				    s->profile)
			  : 0;
}

static int prepare(struct state *s, struct jm_err *err)
{
	struct jm_step_shape shape;
	int code = read_range(s->input_text, "input-tokens", &s->input, err);

	if (!code)
		code = read_range(s->output_text, "output-tokens", &s->output, err);
	if (!code)
		code = choose_model(s, err);
	if (!code && !s->training.model->step)
		code = jm_err_set(err, JM_EUSAGE, "Model %s cannot be served; use --model llama.",
			s->training.model->name);
	if (!code)
		code = open_files(s, err);
	if (!code)
		code = read_prompts(s, err);
	if (!code)
		code = choose_shape(s, &shape, err);
	if (!code)
		code = jm_scheduler_new(&(struct jm_scheduler_limits){s->running, s->step_tokens,
						s->pages, JM_PAGE_TOKENS, (int)shape.pages_each},
			&s->scheduler, err);
	if (!code)
		code = jm_work_device_open(s->work, s->threads, &s->device, err);
	if (!code)
		code = jm_work_device_planned(
			s->work, jm_cache_plan(&s->training, &shape, &s->device, &s->cache, err));
	if (!code)
		code = jm_work_device_planned(s->work, jm_cache_build(&s->cache, err));
	if (!code)
		code = load_weights(s, err);
	if (!code)
		code = start_profile(s, err);
	if (!code)
		describe(s);
	return code;
}

static int serve_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	JM_FILL(work->options, s);
	s->work = work;
	*ret_state = s;
	return prepare(s, err);
}

/* ---- requests ------------------------------------------------------------------------------------------- */

static int draw(const struct state *s, const struct range *r, int number, uint64_t what)
{
	uint64_t bits = jm_rng(jm_rng(s->work->seed, (uint64_t)number), what);

	return r->from + (int)(bits % (uint64_t)(r->to - r->from + 1));
}

/* The tokens of the prompt of a request, from --text. */
static const int32_t *prompt_of(const struct state *s, int number, int *ret_n)
{
	return jm_prompts_tokens(&s->prompts, number % s->prompts.n, ret_n);
}

/* Without --text, tokens of a prompt are random numbers of its request; those of an answer were made. */
static int32_t token_of(const struct state *s, int number, int position)
{
	int input = jm_scheduler_request(s->scheduler, number)->input;

	if (position >= input)
		return s->answer[number].token[position - input];
	if (s->prompts.n)
		return prompt_of(s, number, &input)[position];
	return (int32_t)(jm_rng(jm_rng(s->work->seed, (uint64_t)number), 2 + (uint64_t)position) %
			 (uint64_t)s->vocab);
}

static bool grow(struct state *s)
{
	int cap = s->cap ? 2 * s->cap : 256;
	struct answer *more = realloc(s->answer, (size_t)cap * sizeof(*more));

	if (!more)
		return false;
	s->answer = more;
	s->cap = cap;
	return true;
}

static int arrive(struct state *s, struct jm_err *err)
{
	int number = jm_scheduler_requests(s->scheduler);
	int input = draw(s, &s->input, number, 0), output = draw(s, &s->output, number, 1);
	int32_t *token = calloc((size_t)output, sizeof(*token));

	if (!token || (number == s->cap && !grow(s))) {
		free(token);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	}
	if (s->prompts.n)
		prompt_of(s, number, &input);
	s->answer[number] =
		(struct answer){.arrived = jm_clock_now(s->work->sleeper->clock), .token = token};
	return jm_scheduler_add(s->scheduler, input, output, &number, err);
}

static int arrive_all(struct state *s, struct jm_err *err)
{
	int unfinished = jm_scheduler_unfinished(s->scheduler), wanted = 0, code = 0;

	if (s->arrival == ARRIVE_CLOSED)
		wanted = s->running - unfinished;
	else if (!unfinished)
		wanted = s->arrival == ARRIVE_ALL ? s->requests : 1;
	while (wanted-- > 0 && !code)
		code = arrive(s, err);
	return code;
}

/* ---- a step --------------------------------------------------------------------------------------------- */

/* Writes the rows of a step; returns their number. */
static int64_t lay_out(struct state *s, const struct jm_piece *piece, int n)
{
	struct jm_cache *c = &s->cache;
	int64_t rows = 0;

	for (int i = 0; i < n; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, piece[i].request);
		int32_t *page = c->page + r->slot * c->shape.pages_each;

		for (int k = 0; k < r->n_pages; k++)
			page[k] = r->page[k];
		for (int k = 0; k < piece[i].n; k++, rows++) {
			c->ids[rows] = token_of(s, piece[i].request, piece[i].from + k);
			c->position[rows] = piece[i].from + k;
			c->request[rows] = r->slot;
		}
		c->last[r->slot] = (int32_t)(rows - 1);
	}
	return rows;
}

/* Takes the tokens that the step made; returns how many. */
static int take_tokens(struct state *s, const struct jm_piece *piece, int n)
{
	int64_t now = jm_clock_now(s->work->sleeper->clock);
	int made = 0;

	for (int i = 0; i < n; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, piece[i].request);
		struct answer *a = &s->answer[piece[i].request];

		if (!piece[i].makes)
			continue;
		a->token[r->made] = s->cache.token[r->slot];
		if (!r->made)
			a->first = now;
		if (r->made + 1 == r->output)
			a->end = now;
		made++;
	}
	return made;
}

static int serve_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct state *s = state;
	const struct jm_piece *piece;
	int code = arrive_all(s, err), n;

	if (code)
		return code;
	n = jm_scheduler_step(s->scheduler, &piece);
	memset(s->cache.last, 0, (size_t)s->cache.shape.requests * sizeof(*s->cache.last));
	code = jm_cache_run(&s->cache, lay_out(s, piece, n), err);
	if (code)
		return code;
	*ret = (struct jm_step){.items = take_tokens(s, piece, n),
		.flops_model = NAN,
		.flops_executed = NAN,
		.bytes = NAN,
		.loss = NAN};
	jm_scheduler_complete(s->scheduler);
	return 0;
}

/* ---- results -------------------------------------------------------------------------------------------- */

static double seconds(int64_t from, int64_t to)
{
	return (double)(to - from) / 1e9;
}

static bool is_done(const struct state *s, int number)
{
	return jm_scheduler_request(s->scheduler, number)->state == JM_REQUEST_DONE;
}

static double ttft(const struct state *s, int number)
{
	return seconds(s->answer[number].arrived, s->answer[number].first);
}

/* NAN for an answer of one token. */
static double tpot(const struct state *s, int number)
{
	int output = jm_scheduler_request(s->scheduler, number)->output;

	return output > 1 ? seconds(s->answer[number].first, s->answer[number].end) / (output - 1)
			  : NAN;
}

static double latency(const struct state *s, int number)
{
	return seconds(s->answer[number].arrived, s->answer[number].end);
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Linear between the two nearest, as numpy.percentile does by default. x is sorted, n above 0. */
static double percentile(const double *x, int n, double percent)
{
	double at = percent / 100 * (n - 1);
	int below = (int)at, above = below + 1 < n ? below + 1 : below;

	return x[below] + (at - below) * (x[above] - x[below]);
}

/* {"mean", "p50", "p90", "p99", "max"} in seconds of all that is done; null if nothing is. */
static json_t *distribution(const struct state *s, double (*of)(const struct state *s, int number))
{
	int all = jm_scheduler_requests(s->scheduler), n = 0;
	double *x = calloc((size_t)all + 1, sizeof(*x)), sum = 0;
	json_t *ret = NULL;

	for (int i = 0; x && i < all; i++)
		if (is_done(s, i) && !isnan(of(s, i)))
			sum += x[n++] = of(s, i);
	if (n) {
		qsort(x, (size_t)n, sizeof(*x), by_size);
		ret = json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", sum / n, "p50",
			percentile(x, n, 50), "p90", percentile(x, n, 90), "p99",
			percentile(x, n, 99), "max", x[n - 1]);
	}
	free(x);
	return ret ? ret : json_null();
}

static void record(const struct state *s)
{
	json_int_t done = 0, preempted = 0, in = 0, out = 0;
	int all = jm_scheduler_requests(s->scheduler);

	for (int i = 0; i < all; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, i);

		done += is_done(s, i);
		preempted += r->preempted;
		in += is_done(s, i) ? r->input : 0;
		out += is_done(s, i) ? r->output : 0;
	}
	json_object_set_new(s->work->more, "serving",
		json_pack("{s:i, s:I, s:i, s:I, s:I, s:I, s:o, s:o, s:o}", "requests_offered", all,
			"requests_done", done, "requests_failed", 0, "preemptions", preempted,
			"tokens_in", in, "tokens_out", out, "ttft", distribution(s, ttft), "tpot",
			distribution(s, tpot), "latency", distribution(s, latency)));
}

static int write_csv(const struct state *s, struct jm_err *err)
{
	FILE *f = fopen(s->csv, "w");
	bool good = f != NULL;

	if (f)
		fprintf(f,
			"request,input_tokens,output_tokens,arrival_s,ttft_s,tpot_s,latency_s\n");
	for (int i = 0; f && i < jm_scheduler_requests(s->scheduler); i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, i);

		if (!is_done(s, i))
			continue;
		fprintf(f, "%d,%d,%d,%.9f,%.9f,", i, r->input, r->output,
			seconds(s->answer[0].arrived, s->answer[i].arrived), ttft(s, i));
		if (r->output > 1)
			fprintf(f, "%.12f", tpot(s, i)); /* a mean of ns */
		fprintf(f, ",%.9f\n", latency(s, i));
	}
	if (f && (ferror(f) | fclose(f)))
		good = false;
	return good ? 0
		    : jm_err_set(err, JM_EIO, "The file '%s' of --requests-csv cannot be written.",
			      s->csv);
}

static json_t *tokens_of(const struct state *s, int number, int from, int n)
{
	json_t *ret = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(ret, json_integer(token_of(s, number, from + i)));
	return ret;
}

static json_t *answer_json(const struct state *s, int number)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, number);
	json_t *ret = json_pack("{s:i, s:o, s:o}", "request", number, "prompt_tokens",
		tokens_of(s, number, 0, r->input), "tokens",
		tokens_of(s, number, r->input, r->output));
	int n;

	if (s->prompts.n) {
		const int32_t *prompt = prompt_of(s, number, &n);

		json_object_set_new(ret, "prompt", jm_prompts_text(&s->prompts, prompt, n));
		json_object_set_new(ret, "text",
			jm_prompts_text(&s->prompts, s->answer[number].token, r->output));
	}
	return ret;
}

static bool put_answers(const void *what, FILE *f)
{
	const struct state *s = what;

	for (int i = 0; i < jm_scheduler_requests(s->scheduler) && !ferror(f); i++) {
		json_t *line = is_done(s, i) ? answer_json(s, i) : NULL;

		if (line && !json_dumpf(line, f, JSON_COMPACT))
			fputc('\n', f);
		json_decref(line);
	}
	return !ferror(f);
}

/* Writes the rows of the request from position `at` on; they are alone in the step. */
static void lay_out_alone(struct state *s, int number, int at, int n)
{
	struct jm_cache *c = &s->cache;

	for (int i = 0; i < n; i++) {
		c->ids[i] = token_of(s, number, at + i);
		c->position[i] = at + i;
		c->request[i] = 0;
	}
	for (int i = 0; i < c->shape.requests; i++)
		c->last[i] = i < n ? i : 0;
}

/*
 * Computes the request again, alone, and counts how many tokens of its answer differ from what follows the tokens before
 * them: those of the answer, so that one difference does not change what comes after it.
 */
static int repeat(struct state *s, int number, int *ret_differ, struct jm_err *err)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, number);
	int answer = r->input - 1, end = answer + r->output, code = 0, n;

	*ret_differ = 0;
	for (int i = 0; i < s->cache.shape.pages_each; i++)
		s->cache.page[i] = i;
	for (int at = 0; at < end && !code; at += n) {
		int left = at < answer ? answer - at : end - at;
		int most = at < answer ? s->step_tokens : s->running;

		n = left < most ? left : most;
		lay_out_alone(s, number, at, n);
		code = jm_cache_run(&s->cache, n, err);
		for (int i = 0; i < n && at >= answer && !code; i++)
			*ret_differ += s->cache.token[i] != token_of(s, number, at + i + 1);
	}
	return code;
}

/* In 16 bits the order of sums, which differs with the rows of a step, decides between logits that are nearly equal. */
static int check_answer(struct state *s, int number, struct jm_err *err)
{
	int output = jm_scheduler_request(s->scheduler, number)->output, differ;
	double most = s->training.precision == JM_F32 ? 0 : MAY_DIFFER;
	int code = repeat(s, number, &differ, err);

	if (code || differ <= most * output)
		return code;
	return jm_err_set(err, JM_EIO,
		"%d of %d tokens of the answer to request %d are others when it is served alone.",
		differ, output, number);
}

/* Unfinished requests lose what the cache has of them: nothing runs after this. */
static int serve_verify(void *state, struct jm_err *err)
{
	struct state *s = state;
	int code = s->csv ? write_csv(s, err) : 0, tested = 0;

	if (!code && s->answers)
		code = jm_output_by(s->answers, put_answers, s, err);
	if (s->work->more)
		record(s);
	if (s->work->more && s->profiled)
		json_object_set_new(s->work->more, "profile", jm_profile_json(s->profiled));
	for (int i = 0; i < jm_scheduler_requests(s->scheduler) && tested < VERIFIED && !code;
		i++) {
		if (!is_done(s, i))
			continue;
		code = check_answer(s, i, err);
		tested++;
	}
	if (!code && !tested) {
		jm_err_set(err, JM_EUSAGE, "No request was done; measure longer.");
		return 1;
	}
	return code;
}

static void serve_teardown(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	for (int i = 0; s->scheduler && i < jm_scheduler_requests(s->scheduler); i++)
		free(s->answer[i].token);
	free(s->answer);
	jm_scheduler_free(s->scheduler);
	jm_cache_close(&s->cache);
	jm_prompts_close(&s->prompts);
	jm_safetensors_close(&s->from);
	jm_values_done(&s->dims);
	if (s->device.backend)
		jm_device_close(&s->device);
	free(s);
}

const struct jm_workload jm_workload_serve = {
	.name = "serve",
	.summary = "a language model answers requests: prefill, decode, cache in pages",
	.unit = "token",
	.options = options,
	.chooser = "model",
	.chosen_options = jm_model_options,
	.setup = serve_setup,
	.step = serve_step,
	.verify = serve_verify,
	.teardown = serve_teardown,
};
