/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a model: a language model on a text, a vision model on images of random normal values. */
#include "workload.h"

#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/model.h"
#include "engine/profile.h"
#include "engine/program.h"
#include "engine/tensor.h"
#include "workloads/fit.h"
#include "workloads/schedule.h"
#include "workloads/supply.h"
#include "workloads/train_profile.h"

#define BYTE_VALUES 256
#define HASHED	    ((size_t)256 << 20) /* bytes of a text, at most */

static const char *const batch_words[] = {"max", NULL};
static const char *const image_kinds[] = {"once", "fresh", NULL};

#define OPTION_INT(text, low, high, value, what)                                                   \
	{                                                                                          \
		.name = text, .type = JM_INT, .min = low, .max = high, .fallback = value,          \
		.help = what                                                                       \
	}
#define OPTION_REAL(text, low, high, value, what)                                                  \
	{                                                                                          \
		.name = text, .type = JM_REAL, .min = low, .max = high, .fallback = value,         \
		.help = what                                                                       \
	}
#define OPTION_WORD(text, words, value, what)                                                      \
	{                                                                                          \
		.name = text, .type = JM_CHOICE, .choices = words, .fallback = value, .help = what \
	}

static const struct jm_option options[] = {
	{.name = "model",
		.type = JM_TEXT,
		.fallback = "gpt-117m",
		.argument = "NAME",
		.help = "what is trained: a model or one of its presets"},
	{.name = "batch",
		.type = JM_INT,
		.min = 1,
		.max = 1e6,
		.fallback = "4",
		.choices = batch_words,
		.argument = "N|max",
		.help = "samples per step (per micro-step with --accumulate); max = as many as fit "
			"into memory"},
	OPTION_INT("seq", 1, 1e8, NULL, "tokens per sequence; the model's context when not given"),
	JM_MODEL_OPTIONS,
	{.name = "text",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "what a language model learns from: any file, taken as bytes, or a "
			"Megatron "
			"data set (NAME.bin with NAME.idx); English from this machine when not "
			"given"},
	OPTION_WORD("images", image_kinds, "once",
		"random normal values, made once and used in each step, or fresh ones each time"),
	OPTION_WORD("optimizer", jm_update_names, "adamw",
		"of the parameters: AdamW, Adam, or SGD with momentum"),
	OPTION_REAL("lr", 1e-12, 1e3, "3e-4", "learning rate, the highest of the schedule"),
	OPTION_WORD("schedule", jm_schedule_kinds, "constant",
		"how the learning rate falls after its warm-up"),
	OPTION_INT("lr-warmup", 0, 1e9, "0", "steps in which the learning rate rises to --lr"),
	OPTION_INT("lr-steps", 1, 1e9, "1000",
		"steps after which cosine and linear have reached --lr-min, and between two steps "
		"of "
		"step"),
	OPTION_REAL("lr-min", 0, 1e3, "0", "where cosine and linear end"),
	OPTION_REAL("lr-factor", 1e-6, 1, "0.1", "of each step of step"),
	OPTION_REAL("beta1", 0, 0.999999, "0.9", "of Adam and AdamW: memory of the gradient"),
	OPTION_REAL("beta2", 0, 0.999999, "0.999", "of Adam and AdamW: memory of its square"),
	OPTION_REAL("eps", 1e-16, 1, "1e-8", "of Adam and AdamW"),
	OPTION_REAL("momentum", 0, 0.999999, "0.9", "of SGD"),
	{.name = "nesterov", .type = JM_FLAG, .help = "SGD looks ahead by its momentum"},
	OPTION_REAL("weight-decay", 0, 1e3, "0.1", "of matrices and filters; vectors do not decay"),
	OPTION_REAL("clip", 0, 1e9, "1", "largest global norm of the gradient; 0 = any"),
	OPTION_REAL("loss-scale", 1, 1e9, "1",
		"multiplies the loss before its gradients, taken out again in the update; a power "
		"of "
		"two changes no bit"),
	OPTION_REAL("dropout", 0, 0.999, "0",
		"share of values dropped after embeddings and the parts of each block"),
	OPTION_INT("accumulate", 1, 1e6, "1",
		"micro-steps of --batch samples whose gradients add up before an update"),
	{.name = "recompute",
		.type = JM_FLAG,
		.help = "each block computes its activations again for its gradients: less memory, "
			"more work, the same results"},
	{.name = "lean",
		.type = JM_FLAG,
		.help = "norms and activations are made again for their gradients: less memory, "
			"more passes over it, the same results"},
	OPTION_REAL("memory", 0, 1e6, "0", "GB that the plan may take; 0 = what is free now"),
	{.name = "profile",
		.type = JM_FLAG,
		.help = "time each node: FLOP/s, bytes/s and share of the roofline go into the "
			"record"},
	OPTION_INT("threads", 0, 4096, "0", "of the host; 0 = all that may be used"),
	{0},
};

/* English that Debian machines have, the best first. */
static const char *const texts[] = {
	"/usr/share/games/fortunes/literature",
	"/usr/share/common-licenses/GPL-3",
};

struct state {
	struct jm_work *work;
	struct jm_values dims;
	struct jm_training training;
	struct jm_schedule schedule;
	struct jm_device device;
	struct jm_graph *graph;
	struct jm_program *program;
	struct jm_supply supply;
	struct jm_tensor *now, *loss, *norm;
	size_t memory; /* bytes that the plan may take; 0 = unknown */
	double plan_s; /* that choosing and planning took */
	long steps;
	double loss_first, loss_last;
};

static double option(const struct state *s, const char *name)
{
	return jm_values_number(s->work->options, name);
}

static void train_teardown(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_supply_close(&s->supply);
	jm_program_free(s->program);
	jm_graph_free(s->graph);
	jm_device_close(&s->device);
	jm_values_done(&s->dims);
	free(s);
}

/* ---- the text ---------------------------------------------------------------------------------------- */

static void describe_text(struct jm_work *work, const char *path, const struct jm_corpus *c)
{
	size_t n = c->bytes < HASHED ? c->bytes : HASHED;

	snprintf(work->detail, sizeof(work->detail), "text %.80s (%sxxh3 %016llx)", path,
		n < c->bytes ? "first 256 MiB " : "", (unsigned long long)XXH3_64bits(c->data, n));
}

static int find_text(struct jm_work *work, struct jm_corpus *ret, struct jm_err *err)
{
	const char *path = jm_values_text(work->options, "text");
	int code;

	for (size_t i = 0; !path && i < sizeof(texts) / sizeof(*texts); i++)
		if (!access(texts[i], R_OK))
			path = texts[i];
	if (!path)
		return jm_err_set(err, JM_ENOENT,
			"No text to learn from: %s and the like are not there; give one with "
			"--text FILE.",
			texts[0]);
	code = jm_corpus_open(path, ret, err);
	if (!code)
		describe_text(work, path, ret);
	return code;
}

static int check_text(const struct state *s, struct jm_err *err)
{
	const struct jm_corpus *c = &s->supply.corpus;

	if (!c->start && s->supply.kinds < BYTE_VALUES)
		return jm_err_set(err, JM_ERANGE,
			"A vocabulary of %lld cannot hold the %d values of a byte; give a --vocab "
			"of "
			"%d or more.",
			(long long)s->supply.kinds, BYTE_VALUES, BYTE_VALUES);
	if (c->tokens < s->training.seq + 1)
		return jm_err_set(err, JM_ERANGE,
			"The text has %lld %s, and a sequence of %lld with its next token needs "
			"%lld; "
			"give a longer --text or a smaller --seq.",
			(long long)c->tokens, c->start ? "tokens" : "bytes",
			(long long)s->training.seq, (long long)s->training.seq + 1);
	return 0;
}

/* ---- setup --------------------------------------------------------------------------------------------- */

static void choose_update(struct state *s)
{
	const struct jm_values *o = s->work->options;
	const char *kind = jm_values_text(o, "optimizer"), *fall = jm_values_text(o, "schedule");
	struct jm_adamw *a = &s->training.adamw;
	struct jm_schedule *l = &s->schedule;

	*a = (struct jm_adamw){.beta1 = option(s, "beta1"),
		.beta2 = option(s, "beta2"),
		.eps = option(s, "eps"),
		.momentum = option(s, "momentum"),
		.nesterov = option(s, "nesterov") > 0,
		.weight_decay = option(s, "weight-decay"),
		.clip = option(s, "clip"),
		.loss_scale = option(s, "loss-scale")};
	while (strcmp(jm_update_names[a->kind], kind) != 0)
		a->kind++;
	*l = (struct jm_schedule){.lr = option(s, "lr"),
		.lr_min = option(s, "lr-min"),
		.factor = option(s, "lr-factor"),
		.warmup = (int64_t)option(s, "lr-warmup"),
		.length = (int64_t)option(s, "lr-steps"),
		.every = (int64_t)option(s, "lr-steps")};
	while (strcmp(jm_schedule_kinds[l->kind], fall) != 0)
		l->kind++;
}

static int check_update(const struct state *s, struct jm_err *err)
{
	const struct jm_schedule *l = &s->schedule;

	if (l->lr_min > l->lr)
		return jm_err_set(err, JM_ERANGE,
			"--lr-min %g lies above --lr %g; the learning rate can only fall.",
			l->lr_min, l->lr);
	if ((l->kind == JM_SCHEDULE_COSINE || l->kind == JM_SCHEDULE_LINEAR) &&
		l->length <= l->warmup)
		return jm_err_set(err, JM_ERANGE,
			"--lr-steps %lld leaves no step after a warm-up of %lld; give more.",
			(long long)l->length, (long long)l->warmup);
	return 0;
}

static int check_threads(const struct state *s, struct jm_err *err)
{
	int wanted = (int)option(s, "threads"), have;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 0; /* more cores than the set can hold: let it be */
	have = CPU_COUNT(&set);
	if (wanted <= have)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"%d threads are more than the %d core%s this program may use: they would wait for "
		"each "
		"other; give --threads %d or less, or 0 for all.",
		wanted, have, have == 1 ? "" : "s", have);
}

static int choose_model(struct state *s, struct jm_err *err)
{
	const struct jm_values *o = s->work->options;
	const struct jm_preset *preset;
	double seq = option(s, "seq"), batch = option(s, "batch");
	int code = jm_model_find(jm_values_text(o, "model"), &s->training.model, &preset, err);

	if (!code)
		code = jm_model_dims(s->training.model, preset, o, &s->dims, err);
	s->training.pure = !strcmp(s->work->precision, "bf16-true");
	if (!code)
		code = jm_dtype_find(s->training.pure ? "bf16" : s->work->precision,
			&s->training.precision, err);
	s->training.dims = &s->dims;
	s->training.batch = isnan(batch) ? 0 : (int64_t)batch;
	s->training.seq = isnan(seq) ? 0 : (int64_t)seq;
	s->training.micro_steps = (int)option(s, "accumulate");
	s->training.dropout = option(s, "dropout");
	s->training.recompute = option(s, "recompute") > 0;
	s->training.lean = option(s, "lean") > 0;
	choose_update(s);
	return code ? code : check_update(s, err);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The program on paper: nothing is allocated yet. */
static int plan(struct state *s, struct jm_err *err)
{
	double gb = option(s, "memory"), start = now_s();
	int code = 0;

	s->memory = gb > 0 ? (size_t)(gb * 1e9) : jm_fit_memory(s->work->ctx, &s->device);
	if (!s->training.batch)
		code = jm_fit_batch(&s->training, &s->device, s->memory, err);
	if (!code)
		code = jm_model_train(&s->training, &s->graph, err);
	if (!code && s->training.dropout > 0 && !jm_graph_find(s->graph, "random.now"))
		code = jm_err_set(err, JM_EUSAGE,
			"Model %s drops nothing out, by its paper; leave --dropout away.",
			s->training.model->name);
	if (!code)
		code = jm_program_plan(s->graph, &s->device, &s->program, err);
	s->plan_s = now_s() - start;
	return code;
}

/* Told before the first byte is taken, and kept also when it does not fit. */
static void tell_plan(const struct state *s)
{
	const struct jm_program *p = s->program;

	jm_log(s->work->ctx, JM_INFO,
		"Batch %lld needs %.3f GB at most (%.3f GB stay, %.3f GB of activations and "
		"scratch), "
		"planned in %.0f ms; %.3f GB may be taken.",
		(long long)s->training.batch, (double)p->peak_bytes / 1e9,
		(double)p->persistent_bytes / 1e9, (double)p->arena_bytes / 1e9, s->plan_s * 1e3,
		(double)s->memory / 1e9);
	if (s->work->more)
		json_object_set_new(s->work->more, "plan",
			json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "batch",
				(json_int_t)s->training.batch, "parameters",
				(json_int_t)jm_graph_parameters(s->graph), "peak_bytes",
				(json_int_t)p->peak_bytes, "persistent_bytes",
				(json_int_t)p->persistent_bytes, "memory_bytes",
				(json_int_t)s->memory, "plan_s", s->plan_s));
}

static int check_memory(const struct state *s, struct jm_err *err)
{
	const struct jm_program *p = s->program;

	if (!s->memory || p->peak_bytes <= s->memory)
		return 0;
	return jm_err_set(err, JM_ENOMEM,
		"Out of memory before the first step: batch %lld needs %.2f GB (%.2f GB stay, %.2f "
		"GB "
		"of activations and scratch), and %.2f GB may be taken; take a smaller batch "
		"(--batch "
		"max finds the largest), sequence or model, or --recompute.",
		(long long)s->training.batch, (double)p->peak_bytes / 1e9,
		(double)p->persistent_bytes / 1e9, (double)p->arena_bytes / 1e9,
		(double)s->memory / 1e9);
}

static int make_program(struct state *s, struct jm_err *err)
{
	const char *update = jm_update_names[s->training.adamw.kind];
	char now[32];
	int code = jm_program_build(s->program, err);

	if (!code)
		code = jm_program_init(s->program, s->work->seed, err);
	if (!code && option(s, "profile") > 0)
		code = jm_profile_start(s->program, err);
	snprintf(now, sizeof(now), "%s.now", update);
	s->now = jm_graph_find(s->graph, now);
	s->loss = jm_graph_find(s->graph, "loss");
	s->norm = jm_graph_find(s->graph, "grad.norm");
	return code ? code : jm_supply_open(&s->supply, s->program, err);
}

static int choose_supply(struct state *s, struct jm_err *err)
{
	bool text = jm_graph_find(s->graph, "ids");
	int code;

	s->supply.seed = s->work->seed;
	s->supply.fresh = jm_values_text(s->work->options, "images")[0] == 'f';
	s->supply.kinds = (int64_t)jm_values_number(&s->dims, text ? "vocab" : "classes");
	if (!text) {
		snprintf(s->work->detail, sizeof(s->work->detail), "random normal images, %s",
			s->supply.fresh ? "fresh in each step" : "made once");
		return 0;
	}
	code = find_text(s->work, &s->supply.corpus, err);
	return code ? code : check_text(s, err);
}

static void describe(const struct state *s)
{
	enum jm_dtype type = s->training.precision;
	struct jm_work *work = s->work;
	size_t n = strlen(work->detail);

	work->n_devices = 1;
	work->unit = s->training.model->item;
	snprintf(work->detail + n, sizeof(work->detail) - n,
		"; %.2f M parameters, batch %lld, peak %.3g GB, on %.70s",
		(double)jm_graph_parameters(s->graph) / 1e6, (long long)s->training.batch,
		(double)s->program->peak_bytes / 1e9, s->device.props.name);
	if (!s->device.props.native[type])
		snprintf(work->note, sizeof(work->note),
			"%s has no %s instructions: the arithmetic is emulated, and its speed says "
			"little of %s elsewhere.",
			s->device.props.name, jm_dtype_name(type), jm_dtype_name(type));
}

static int set_up(struct state *s, struct jm_err *err)
{
	int code = choose_model(s, err);

	if (!code)
		code = check_threads(s, err);
	if (!code)
		code = jm_device_open(s->work->device, (int)option(s, "threads"), &s->device, err);
	if (!code)
		code = plan(s, err);
	if (!code)
		code = choose_supply(s, err);
	if (code)
		return code;
	tell_plan(s);
	code = check_memory(s, err);
	if (!code)
		code = make_program(s, err);
	if (!code)
		describe(s);
	return code;
}

static int train_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int code;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the train workload.");
	s->work = work;
	s->loss_first = s->loss_last = NAN;
	code = set_up(s, err);
	if (code)
		train_teardown(s);
	else
		*ret_state = s;
	return code;
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

/* lr and the bias corrections of Adam at step t = 1, 2... */
static int feed_now(struct state *s, long t, struct jm_err *err)
{
	bool sgd = s->training.adamw.kind == JM_UPDATE_SGD;
	double lr = jm_schedule_lr(&s->schedule, t - 1);
	double now[4] = {sgd ? lr / s->training.adamw.loss_scale : lr,
		sgd ? (double)t : 1 - pow(s->training.adamw.beta1, (double)t),
		1 - pow(s->training.adamw.beta2, (double)t), (double)t};
	double data[4] = {0};

	for (int i = 0; i < jm_tensor_count(s->now); i++)
		jm_element_set(s->now->type, data, i, now[i]);
	return jm_program_write(s->program, s->now, data, err);
}

static int read_scalar(struct state *s, const struct jm_tensor *t, double *ret, struct jm_err *err)
{
	double data;
	int code = jm_program_read(s->program, t, &data, err);

	if (!code)
		*ret = jm_element_get(t->type, &data, 0);
	return code;
}

static int not_finite(struct state *s, const char *what, struct jm_err *err)
{
	char where[192];
	int code = jm_program_birth(s->program, where, sizeof(where), err);

	if (code)
		return code;
	return jm_err_set(err, JM_ERANGE,
		"The %s of step %ld is not a number or infinite: %s; give a smaller --lr or a "
		"--clip.",
		what, s->steps + 1, where);
}

/* All micro-steps of a step; the mean of their losses. */
static int run(struct state *s, long step, double *ret_loss, struct jm_err *err)
{
	int n = jm_program_micro_steps(s->program);
	double sum = 0, loss = 0;
	int code = jm_program_begin(s->program, err);

	for (int i = 0; i < n && !code; i++) {
		code = jm_supply_feed(&s->supply, (int64_t)step * n + i, err);
		if (!code)
			code = jm_program_micro(s->program, err);
		if (!code)
			code = read_scalar(s, s->loss, &loss, err);
		if (!code && !isfinite(loss))
			code = not_finite(s, "loss", err);
		sum += loss;
	}
	if (!code)
		*ret_loss = sum / n;
	return code;
}

static int update(struct state *s, struct jm_err *err)
{
	double norm;
	int code = feed_now(s, s->steps + 1, err);

	if (!code)
		code = jm_program_update(s->program, err);
	if (!code)
		code = read_scalar(s, s->norm, &norm, err);
	if (!code && !isfinite(norm))
		code = not_finite(s, "gradient", err);
	return code;
}

static int train_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct state *s = state;
	double loss, items = (double)(s->training.batch * s->training.seq);
	int code = run(s, s->steps, &loss, err);

	if (!code)
		code = update(s, err);
	if (code)
		return code;
	if (!s->steps++) {
		s->loss_first = loss;
		jm_profile_reset(s->program); /* the first step warms caches */
	}
	s->loss_last = loss;
	*ret = (struct jm_step){.items = items * jm_program_micro_steps(s->program),
		.flops_model = s->program->flops_model,
		.flops_executed = s->program->flops_executed,
		.bytes = s->program->bytes,
		.loss = loss};
	return 0;
}

static void keep_profile(struct state *s)
{
	if (s->program->profile && s->work->more && s->steps > 1)
		json_object_set_new(s->work->more, "profile", jm_train_profile(s->program));
}

/* The first batch again: its loss must have fallen. Of images that are new each time nothing can be learned. */
static int train_verify(void *state, struct jm_err *err)
{
	struct state *s = state;
	double again;
	int code;

	if (!s->steps)
		return jm_err_set(err, JM_EUSAGE, "Not one step was run, so nothing was learned.");
	keep_profile(s);
	code = run(s, 0, &again, err);
	if (code || (s->supply.image && s->supply.fresh))
		return code;
	if (!(again < s->loss_first))
		return jm_err_set(err, JM_ERANGE,
			"The loss of the first batch has not fallen in %ld steps: %g then, %g now; "
			"give a smaller --lr.",
			s->steps, s->loss_first, again);
	return 0;
}

const struct jm_workload jm_workload_train = {
	.name = "train",
	.summary = "trains a language model on a text, or a vision model on random images",
	.unit = "token",
	.options = options,
	.setup = train_setup,
	.step = train_step,
	.verify = train_verify,
	.teardown = train_teardown,
};
