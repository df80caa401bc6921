/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a language model on a text file, byte by byte: a token is one of the values 0 to 255. */
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/model.h"
#include "engine/program.h"
#include "engine/rng.h"
#include "engine/tensor.h"

#define BYTE_VALUES 256

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
		.help = "sequences per step"},
	{.name = "seq",
		.type = JM_INT,
		.min = 1,
		.max = 1e8,
		.help = "tokens per sequence; the model's context when not given"},
	JM_MODEL_OPTIONS,
	{.name = "text",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "what it learns from: any file, taken as bytes; English from this machine "
			"when "
			"not given"},
	{.name = "lr",
		.type = JM_REAL,
		.min = 1e-12,
		.max = 1e3,
		.fallback = "3e-4",
		.help = "learning rate of AdamW"},
	{.name = "weight-decay",
		.type = JM_REAL,
		.min = 0,
		.max = 1e3,
		.fallback = "0.1",
		.help = "of matrices; vectors do not decay"},
	{.name = "clip",
		.type = JM_REAL,
		.min = 0,
		.max = 1e9,
		.fallback = "1",
		.help = "largest global norm of the gradient; 0 = any"},
	{.name = "threads",
		.type = JM_INT,
		.min = 0,
		.max = 4096,
		.fallback = "0",
		.help = "of the host; 0 = all that may be used"},
	{0},
};

/* English that Debian machines have, the best first. */
static const char *const texts[] = {
	"/usr/share/games/fortunes/literature",
	"/usr/share/common-licenses/GPL-3",
};

struct text {
	const unsigned char *bytes;
	size_t size;
};

struct state {
	struct text text;
	struct jm_values dims;
	struct jm_training training;
	struct jm_device device;
	struct jm_graph *graph;
	struct jm_program *program;
	struct jm_tensor *ids, *target, *now, *loss;
	int32_t *tokens; /* batch x (seq + 1) of the step, then one of ids or targets */
	double lr;
	uint64_t seed;
	long steps;
	double loss_first, loss_last;
};

static void train_teardown(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	jm_program_free(s->program);
	jm_graph_free(s->graph);
	jm_device_close(&s->device);
	jm_values_done(&s->dims);
	if (s->text.bytes)
		munmap((void *)(uintptr_t)s->text.bytes, s->text.size);
	free(s->tokens);
	free(s);
}

/* ---- the text ---------------------------------------------------------------------------------------- */

static int map_text(const char *path, struct text *ret, struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *map;

	if (fd < 0)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"Text %s cannot be opened: %s; give another with --text FILE.", path,
			strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !st.st_size) {
		close(fd);
		return jm_err_set(err, JM_EFORMAT,
			"Text %s is empty or not a regular file; give another with --text FILE.",
			path);
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return jm_err_set(
			err, JM_EIO, "Text %s cannot be read: %s.", path, strerror(errno));
	*ret = (struct text){map, (size_t)st.st_size};
	return 0;
}

static int find_text(struct jm_work *work, struct text *ret, struct jm_err *err)
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
	code = map_text(path, ret, err);
	if (!code)
		snprintf(work->detail, sizeof(work->detail), "text %.80s (xxh3 %016llx)", path,
			(unsigned long long)XXH3_64bits(ret->bytes, ret->size));
	return code;
}

static int check_text(const struct state *s, struct jm_err *err)
{
	int64_t vocab = (int64_t)jm_values_number(&s->dims, "vocab");

	if (vocab < BYTE_VALUES)
		return jm_err_set(err, JM_ERANGE,
			"A vocabulary of %lld cannot hold the %d values of a byte; give a --vocab "
			"of "
			"%d or more.",
			(long long)vocab, BYTE_VALUES, BYTE_VALUES);
	if (s->text.size < (size_t)s->training.seq + 1)
		return jm_err_set(err, JM_ERANGE,
			"The text has %zu bytes, and a sequence of %lld with its next token needs "
			"%lld; give a longer --text or a smaller --seq.",
			s->text.size, (long long)s->training.seq, (long long)s->training.seq + 1);
	return 0;
}

/* ---- setup --------------------------------------------------------------------------------------------- */

static int choose_model(struct state *s, const struct jm_work *work, struct jm_err *err)
{
	const struct jm_values *o = work->options;
	const struct jm_preset *preset;
	double seq = jm_values_number(o, "seq");
	int code = jm_model_find(jm_values_text(o, "model"), &s->training.model, &preset, err);

	if (!code && s->training.model->feed != JM_FEED_TOKENS)
		return jm_err_set(err, JM_ENOSUP,
			"Model %s learns from images, and there is no source of images yet; take a "
			"language model.",
			s->training.model->name);
	if (!code)
		code = jm_model_dims(s->training.model, preset, o, &s->dims, err);
	if (!code)
		code = jm_dtype_find(work->precision, &s->training.precision, err);
	s->training.dims = &s->dims;
	s->training.batch = (int64_t)jm_values_number(o, "batch");
	s->training.seq = isnan(seq) ? 0 : (int64_t)seq;
	s->training.adamw = (struct jm_adamw){.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.weight_decay = jm_values_number(o, "weight-decay"),
		.clip = jm_values_number(o, "clip")};
	return code;
}

static int make_program(struct state *s, struct jm_err *err)
{
	int code = jm_program_plan(s->graph, &s->device, &s->program, err);

	if (!code)
		code = jm_program_build(s->program, err);
	if (!code)
		code = jm_program_init(s->program, s->seed, err);
	if (code)
		return code;
	s->ids = jm_graph_find(s->graph, "ids");
	s->target = jm_graph_find(s->graph, "target");
	s->now = jm_graph_find(s->graph, "adamw.now");
	s->loss = jm_graph_find(s->graph, "loss");
	s->tokens = malloc(s->ids->bytes);
	return s->tokens ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a batch of tokens.");
}

static void describe(const struct state *s, struct jm_work *work)
{
	enum jm_dtype type = s->training.precision;
	size_t n = strlen(work->detail);

	work->n_devices = 1;
	snprintf(work->detail + n, sizeof(work->detail) - n,
		"; %.2f M parameters, peak %.3g GB, on %.90s",
		(double)jm_graph_parameters(s->graph) / 1e6, (double)s->program->peak_bytes / 1e9,
		s->device.props.name);
	if (!s->device.props.native[type])
		snprintf(work->note, sizeof(work->note),
			"%s has no %s instructions: the arithmetic is emulated, and its speed says "
			"little of %s elsewhere.",
			s->device.props.name, jm_dtype_name(type), jm_dtype_name(type));
}

static int set_up(struct state *s, struct jm_work *work, struct jm_err *err)
{
	int code = choose_model(s, work, err);

	s->seed = work->seed;
	s->lr = jm_values_number(work->options, "lr");
	if (!code)
		code = jm_model_train(&s->training, &s->graph, err);
	if (!code)
		code = find_text(work, &s->text, err);
	if (!code)
		code = check_text(s, err);
	if (!code)
		code = jm_device_open(work->device, (int)jm_values_number(work->options, "threads"),
			&s->device, err);
	if (!code)
		code = make_program(s, err);
	if (!code)
		describe(s, work);
	return code;
}

static int train_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int code;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the train workload.");
	s->loss_first = s->loss_last = NAN;
	code = set_up(s, work, err);
	if (code)
		train_teardown(s);
	else
		*ret_state = s;
	return code;
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

/* Copies the step's windows of text, `shift` bytes further, into the input. */
static int feed(struct state *s, struct jm_tensor *to, long step, size_t shift, struct jm_err *err)
{
	size_t batch = (size_t)s->training.batch, seq = (size_t)s->training.seq;
	size_t starts = s->text.size - seq;

	for (size_t b = 0; b < batch; b++) {
		size_t at = jm_rng(s->seed, (uint64_t)step * batch + b) % starts + shift;

		for (size_t i = 0; i < seq; i++)
			s->tokens[b * seq + i] = s->text.bytes[at + i];
	}
	return jm_program_write(s->program, to, s->tokens, err);
}

/* lr and the bias corrections of AdamW at step t = 1, 2... */
static int feed_now(struct state *s, double lr, long t, struct jm_err *err)
{
	double now[3] = {lr, 1 - pow(s->training.adamw.beta1, (double)t),
		1 - pow(s->training.adamw.beta2, (double)t)};
	double data[3];

	for (int i = 0; i < 3; i++)
		jm_element_set(s->now->type, data, i, now[i]);
	return jm_program_write(s->program, s->now, data, err);
}

/* One pass over the batch of that step. */
static int run(struct state *s, long step, double lr, double *ret_loss, struct jm_err *err)
{
	double data;
	int code = feed(s, s->ids, step, 0, err);

	if (!code)
		code = feed(s, s->target, step, 1, err);
	if (!code)
		code = feed_now(s, lr, s->steps + 1, err);
	if (!code)
		code = jm_program_run(s->program, err);
	if (!code)
		code = jm_program_read(s->program, s->loss, &data, err);
	if (!code)
		*ret_loss = jm_element_get(s->loss->type, &data, 0);
	return code;
}

static int train_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct state *s = state;
	double loss;
	int code = run(s, s->steps, s->lr, &loss, err);

	if (code)
		return code;
	if (!s->steps++)
		s->loss_first = loss;
	s->loss_last = loss;
	*ret = (struct jm_step){.items = (double)(s->training.batch * s->training.seq),
		.flops_model = s->program->flops_model,
		.flops_executed = s->program->flops_executed,
		.bytes = s->program->bytes,
		.loss = loss};
	return 0;
}

/* The first batch again, with nothing learned from it this time: its loss must have fallen. */
static int train_verify(void *state, struct jm_err *err)
{
	struct state *s = state;
	double again;
	int code;

	if (!s->steps)
		return jm_err_set(err, JM_EUSAGE, "Not one step was run, so nothing was learned.");
	if (!isfinite(s->loss_last))
		return jm_err_set(err, JM_ERANGE,
			"The loss is no number any more after %ld steps (it began at %g); give a "
			"smaller --lr or a --clip.",
			s->steps, s->loss_first);
	code = run(s, 0, 0, &again, err);
	if (code)
		return code;
	if (!(again < s->loss_first))
		return jm_err_set(err, JM_ERANGE,
			"The loss of the first batch has not fallen in %ld steps: %g then, %g now; "
			"give "
			"a smaller --lr.",
			s->steps, s->loss_first, again);
	return 0;
}

const struct jm_workload jm_workload_train = {
	.name = "train",
	.summary = "trains a language model on a text",
	.unit = "token",
	.options = options,
	.setup = train_setup,
	.step = train_step,
	.verify = train_verify,
	.teardown = train_teardown,
};
