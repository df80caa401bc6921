/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `train`, and what a step is made of by them. */
#include "train_options.h"
#include "engine/device/backend_find.h"
#include "engine/graph/init_rule.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/tensor.h"

#include <math.h>
#include <sched.h>
#include <string.h>

static const char *const batch_words[] = {"max", NULL};
static const char *const shard_words[] = {"auto", "on", "off", NULL};
static const char *const type_words[] = {"auto", "f32", "bf16", NULL};
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

const struct jm_option jm_train_options[] = {
	{.name = "model",
		.type = JM_TEXT,
		.fallback = "gpt-117m",
		.argument = "NAME",
		.help = "what is trained: a model or one of its presets, whose own options are "
			"shown by 'joulemark help NAME'"},
	{.name = "batch",
		.type = JM_INT,
		.min = 1,
		.max = 1e6,
		.fallback = "4",
		.choices = batch_words,
		.argument = "N|max",
		.help = "samples per step (per micro-step with --accumulate, and of each rank with "
			"--ranks); max = as many as fit "
			"into memory"},
	OPTION_INT("seq", 1, 1e8, NULL, "tokens per sequence; without it the model's context"),
	{.name = "text",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "what a language model learns from: any file, read as bytes, or a Megatron "
			"data set (NAME.bin with NAME.idx); English from this machine when not "
			"given"},
	OPTION_INT("eval-every", 0, 1e9, "0",
		"number of steps between two evaluations of the loss on held-out samples, without "
		"changing weights; 0 = never"),
	{.name = "eval-text",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "what --eval-every takes its samples from; without it the last tenth "
			"of --text, which is then not used for training"},
	OPTION_INT("eval-batches", 1, 1e6, "8",
		"batches of an evaluation, which uses the same ones each time"),
	OPTION_WORD("images", image_kinds, "once",
		"random samples of models that learn from no text: made once and used in each "
		"step, or fresh "
		"ones each time"),
	OPTION_WORD("init", jm_init_names, "model",
		"start values of the layers' weights: the model's own, or those of a paper"),
	{.name = "from",
		.type = JM_TEXT,
		.argument = "FILE|FOLDER",
		.help = "start values: weights in the format safetensors, one file or a folder as "
			"Hugging Face lays it out, with the names of the model's reference (see "
			"docs/weights.md). With another number of classes the last layer begins "
			"with new values"},
	{.name = "freeze",
		.type = JM_TEXT,
		.argument = "PATTERNS",
		.use = JM_OPTION_COMMAS,
		.help = "parameters that are not trained: patterns of their names, separated by "
			"commas ('conv1*,layer*'), as 'joulemark describe MODEL --graph' prints "
			"them or as weights files have them. They have no gradient, master or "
			"moment; batch norms among them use their running statistics"},
	{.name = "save",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "write the weights there after the last step, in the format safetensors; "
			"an old file is replaced when all of the new one is on the disk"},
	{.name = "checkpoint",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "write all that the next step depends on there: masters, moments, running "
			"statistics, loss scale and counters; after the last step, and during the "
			"run with --checkpoint-every"},
	{.name = "checkpoint-every",
		.type = JM_INT,
		.min = 0,
		.max = 1e9,
		.fallback = "0",
		.needs = "checkpoint",
		.help = "number of steps between two checkpoints, of which the newer replaces the "
			"older when all of it is on the disk; 0 = only after the last step"},
	{.name = "continue",
		.type = JM_TEXT,
		.argument = "FILE",
		.help = "go on behind the last step of a checkpoint, with the losses of a run that "
			"was not interrupted; --steps counts the steps of this run"},
	{.name = "zero-gamma",
		.type = JM_FLAG,
		.help = "the last batch norm of each residual block starts at zero (arXiv "
			"1706.02677)"},
	OPTION_WORD("optimizer", jm_update_names, "adamw",
		"optimizer of the parameters: AdamW, Adam, or SGD with momentum"),
	OPTION_REAL("lr", 1e-12, 1e3, "3e-4", "learning rate, the highest of the schedule"),
	OPTION_WORD("schedule", jm_lr_schedule_kinds, "constant",
		"how the learning rate falls after its warm-up"),
	OPTION_INT("lr-warmup", 0, 1e9, "0", "steps in which the learning rate rises to --lr"),
	OPTION_INT("lr-steps", 1, 1e9, "1000",
		"steps after which cosine and linear have reached --lr-min; with --schedule step: "
		"steps between two reductions"),
	OPTION_REAL("lr-min", 0, 1e3, "0", "learning rate at the end of cosine and linear"),
	OPTION_REAL("lr-factor", 1e-6, 1, "0.1",
		"with --schedule step: factor of the learning rate at each reduction"),
	OPTION_REAL("beta1", 0, 0.999999, "0.9",
		"Adam and AdamW: decay rate of the mean of gradients (first moment)"),
	OPTION_REAL("beta2", 0, 0.999999, "0.999",
		"Adam and AdamW: decay rate of the mean of squared gradients (second moment)"),
	OPTION_REAL("eps", 1e-16, 1, "1e-8",
		"Adam and AdamW: constant that is added to the denominator"),
	OPTION_REAL("momentum", 0, 0.999999, "0.9", "momentum of SGD"),
	{.name = "nesterov", .type = JM_FLAG, .help = "use Nesterov momentum in SGD"},
	OPTION_REAL("weight-decay", 0, 1e3, "0.1",
		"weight decay of matrices and filters; vectors have none"),
	OPTION_REAL("clip", 0, 1e9, "1",
		"largest global norm of the gradient, which is scaled down to it; 0 = no limit"),
	{.name = "loss-scale",
		.type = JM_TEXT,
		.argument = "X|dynamic[:START]",
		.help = "factor of the loss before its gradients are computed, which the update "
			"removes again; a power of two changes no bit of the result. dynamic: "
			"starts at 65536, doubles after 2000 good steps, halves and skips the "
			"update of a step whose gradient is not finite. When not given: dynamic in "
			"fp16, else 1"},
	OPTION_REAL("dropout", 0, 0.999, "0",
		"share of values dropped after embeddings and the parts of each block"),
	OPTION_INT("accumulate", 1, 1e6, "1",
		"micro-steps of --batch samples whose gradients add up before an update"),
	OPTION_WORD("gradients", type_words, "auto",
		"with --precision bf16 or fp8: type in which the gradients of matrices wait for "
		"the update. bf16 rounds them as PyTorch's autocast does; f32 does not. auto = "
		"bf16 on a device with its own memory, and f32 where they are summed over "
		"micro-steps or ranks, and in networks with convolutions"),
	OPTION_WORD("residual", type_words, "auto",
		"with --precision bf16 or fp8: type of the residual stream of transformers and of "
		"its gradient. f32 as in PyTorch's autocast; bf16 as in Megatron-LM without "
		"--fp32-residual-connection. auto = bf16 on a device with its own memory"),
	{.name = "recompute",
		.type = JM_FLAG,
		.help = "each block computes its activations again for its gradients: less memory, "
			"more work, the same results"},
	{.name = "keep-all",
		.type = JM_FLAG,
		.help = "norms, activations and compute copies are kept for gradients, not "
			"recomputed: more memory, fewer passes over it, the same results"},
	{.name = "remake",
		.type = JM_REAL,
		.argument = "PERCENT",
		.min = 0,
		.max = 100,
		.help = "largest share of a step's time, estimated from the device's peaks, to "
			"spend "
			"on recomputing norms, activations and compute copies instead of keeping "
			"them; those that free the most memory per unit of time come first. "
			"Activations that the kernel of their gradient can write again are "
			"always recomputed; at most half of the share counts as spent on them. "
			"When not given: on a device with its own memory 1/16 for transformers and "
			"1 "
			"for other models, or the least up to 10 with which the plan fits into it, "
			"and with --batch max the least from 1/16 on; else all of them are "
			"recomputed"},
	{.name = "keep-less",
		.type = JM_FLAG,
		.help = "norms, activations and compute copies are recomputed for gradients even "
			"if there is enough memory to keep them"},
	OPTION_REAL("memory", 0, 1e6, "0",
		"GB of memory that the plan may use; 0 = all that is free now"),
	{.name = "profile",
		.type = JM_FLAG,
		.help = "time each node: FLOP/s, bytes/s and share of the roofline go into the "
			"record"},
	{.name = "ranks",
		.type = JM_INT,
		.min = 1,
		.max = JM_RANKS_MOST,
		.help = "processes that train together, each --batch samples per step; their "
			"gradients are summed. --device names one device for all, or one for each"},
	{.name = "bucket",
		.type = JM_REAL,
		.min = 1e-3,
		.max = 1e6,
		.needs = "ranks",
		.help = "with --ranks: smallest size, in MiB, of a bucket of gradients that the "
			"ranks sum during the backward pass; if it exceeds all gradients, they are "
			"summed once after the backward pass. When not given: 25, and with a "
			"sharded update each bucket has twice the size of the one before"},
	{.name = "shard-update",
		.type = JM_CHOICE,
		.choices = shard_words,
		.fallback = "auto",
		.needs = "ranks",
		.help = "with --ranks: each rank receives the sum of a share of the gradients, "
			"updates this share of the parameters and keeps the optimizer's state for "
			"it only; then the ranks gather the parameters. auto = on, and off for a "
			"--precision without f32 masters (bf16-true, fp8-true)"},
	JM_GANG_TRANSPORT(", and rounds gradients in bf16 and fp8 on the way unless --gradients "
			  "f32 is given",
		"host for two ranks that train with a given --batch of many tokens in bf16 or "
		"fp8, else nccl"),
	OPTION_INT("threads", 0, 4096, "0",
		"threads of each rank on the host; 0 = all that may be used, divided among the "
		"ranks"),
	{0},
};

double jm_train_option(const struct train *s, const char *name)
{
	return jm_values_number(s->work->options, name);
}

static void choose_update(struct train *s)
{
	const struct jm_values *o = s->work->options;
	const char *kind = jm_values_text(o, "optimizer"), *fall = jm_values_text(o, "schedule");
	struct jm_adamw *a = &s->training.adamw;
	struct jm_lr_schedule *l = &s->schedule;

	*a = (struct jm_adamw){.beta1 = jm_train_option(s, "beta1"),
		.beta2 = jm_train_option(s, "beta2"),
		.eps = jm_train_option(s, "eps"),
		.momentum = jm_train_option(s, "momentum"),
		.nesterov = jm_train_option(s, "nesterov") > 0,
		.weight_decay = jm_train_option(s, "weight-decay"),
		.clip = jm_train_option(s, "clip")};
	while (strcmp(jm_update_names[a->kind], kind) != 0)
		a->kind++;
	*l = (struct jm_lr_schedule){.lr = jm_train_option(s, "lr"),
		.lr_min = jm_train_option(s, "lr-min"),
		.factor = jm_train_option(s, "lr-factor"),
		.warmup = (int64_t)jm_train_option(s, "lr-warmup"),
		.length = (int64_t)jm_train_option(s, "lr-steps"),
		.every = (int64_t)jm_train_option(s, "lr-steps")};
	while (strcmp(jm_lr_schedule_kinds[l->kind], fall) != 0)
		l->kind++;
}

/* Options of evaluations have no effect without evaluations. */
static int check_eval(const struct train *s, struct jm_err *err)
{
	if (s->eval.every || !jm_values_text(s->work->options, "eval-text"))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--eval-text is given and --eval-every is not, so nothing would be evaluated; give "
		"--eval-every N.");
}

static int check_update(const struct train *s, struct jm_err *err)
{
	const struct jm_lr_schedule *l = &s->schedule;

	if (l->lr_min > l->lr)
		return jm_err_set(err, JM_ERANGE,
			"--lr-min %g is above --lr %g; the learning rate can only fall.", l->lr_min,
			l->lr);
	if ((l->kind == JM_LR_COSINE || l->kind == JM_LR_LINEAR) && l->length <= l->warmup)
		return jm_err_set(err, JM_ERANGE,
			"--lr-steps %lld leaves no step after a warm-up of %lld; give more.",
			(long long)l->length, (long long)l->warmup);
	return 0;
}

/* Cores that this process may use; 0 = more than the set can hold. */
static int count_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);
}

int jm_train_threads(const struct train *s)
{
	int wanted = (int)jm_train_option(s, "threads"), world = jm_work_world(s->work);
	int each = count_cores() / world;

	if (wanted || world < 2)
		return wanted;
	return each > 0 ? each : 1;
}

static int check_threads(const struct train *s, struct jm_err *err)
{
	int wanted = (int)jm_train_option(s, "threads"), have = count_cores();

	if (wanted <= have || !have)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"%d threads are more than the %d core%s this program may use: they would wait for "
		"each other; give --threads %d or less, or 0 for all.",
		wanted, have, have == 1 ? "" : "s", have);
}

static int check_kept(const struct train *s, struct jm_err *err)
{
	if (isnan(s->remake) || s->may_keep)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--remake limits what is recomputed, and --keep-all, --keep-less and --recompute "
		"decide that already; omit one of them.");
}

/* Sums over micro-steps would be rounded each time. For ranks see choose_rounding. */
static int check_gradients(struct train *s, struct jm_err *err)
{
	const struct jm_training *t = &s->training;

	if (strcmp(jm_values_text(s->work->options, "gradients"), "bf16") != 0)
		return 0;
	if (t->precision != JM_BF16 || t->pure)
		return jm_err_set(err, JM_EUSAGE,
			"--gradients bf16 needs --precision bf16 or fp8, and this is %s; omit it.",
			s->work->precision);
	if (t->ranks < 2 && t->micro_steps > 1)
		return jm_err_set(err, JM_EUSAGE,
			"--gradients bf16 does not go with --accumulate, because sums of gradients "
			"are in f32; omit it.");
	return 0;
}

static int check_residual(struct train *s, struct jm_err *err)
{
	const struct jm_training *t = &s->training;
	const char *word = jm_values_text(s->work->options, "residual");

	if (!strcmp(word, "bf16") && t->precision != JM_BF16)
		return jm_err_set(err, JM_EUSAGE,
			"--residual bf16 needs --precision bf16 or fp8, and this is %s; omit it.",
			s->work->precision);
	if (!strcmp(word, "f32") && t->pure)
		return jm_err_set(err, JM_EUSAGE,
			"--residual f32 needs a --precision with f32 masters, and this is %s; omit "
			"it.",
			s->work->precision);
	return 0;
}

static bool has_files(const struct jm_values *o)
{
	return jm_values_text(o, "save") || jm_values_text(o, "checkpoint") ||
	       jm_values_text(o, "continue");
}

static int check_shard(const struct train *s, struct jm_err *err)
{
	bool on = !strcmp(jm_values_text(s->work->options, "shard-update"), "on");

	if (on && has_files(s->work->options))
		return jm_err_set(err, JM_EUSAGE,
			"--shard-update on does not go with --save, --checkpoint or --continue, "
			"because one rank has to have all values; omit it.");
	if (on && s->training.pure)
		return jm_err_set(err, JM_EUSAGE,
			"--shard-update on needs a --precision with f32 masters or f64, and %s has "
			"none; omit it.",
			s->work->precision);
	return 0;
}

static size_t bucket_bytes(double mib)
{
	return isnan(mib) ? 0 : (size_t)(mib * 1048576);
}

static int choose_model(struct train *s, struct jm_err *err)
{
	const struct jm_values *o = s->work->options;
	const char *scale = jm_values_text(o, "loss-scale");
	const struct jm_preset *preset;
	double seq = jm_train_option(s, "seq"), batch = jm_train_option(s, "batch");
	int code = jm_model_find(jm_values_text(o, "model"), &s->training.model, &preset, err);

	if (!code)
		code = jm_model_dims(s->training.model, preset, o, &s->dims, err);
	if (!code)
		code = jm_precision_set(&s->training, s->work->precision, err);
	s->training.dims = &s->dims;
	s->training.batch = isnan(batch) ? 0 : (int64_t)batch;
	s->training.seq = isnan(seq) ? 0 : (int64_t)seq;
	s->training.micro_steps = (int)jm_train_option(s, "accumulate");
	s->training.ranks = s->work->world;
	s->training.rank = s->work->rank;
	/* a file needs all masters and moments on one rank */
	s->training.shards_update =
		strcmp(jm_values_text(o, "shard-update"), "off") != 0 && !has_files(o);
	s->training.bucket_bytes = bucket_bytes(jm_train_option(s, "bucket"));
	s->training.dropout = jm_train_option(s, "dropout");
	s->training.recompute = jm_train_option(s, "recompute") > 0;
	s->training.keep_all = jm_train_option(s, "keep-all") > 0;
	s->may_keep = !s->training.keep_all && !s->training.recompute &&
		      jm_train_option(s, "keep-less") <= 0;
	s->remake = jm_train_option(s, "remake") / 100;
	s->training.init = jm_init_find(jm_values_text(o, "init"));
	s->training.zero_gamma = jm_train_option(s, "zero-gamma") > 0;
	s->training.freeze = jm_values_text(o, "freeze");
	s->eval.every = (long)jm_train_option(s, "eval-every");
	s->eval.batches = (int)jm_train_option(s, "eval-batches");
	choose_update(s);
	if (!code)
		code = jm_scaler_parse(scale				 ? scale
				       : s->training.precision == JM_F16 ? "dynamic"
									 : "1",
			&s->scaler, err);
	s->training.scaled = s->scaler.dynamic || s->scaler.scale != 1;
	if (!code)
		code = check_eval(s, err);
	if (!code)
		code = check_kept(s, err);
	if (!code)
		code = check_shard(s, err);
	if (!code)
		code = check_gradients(s, err);
	if (!code)
		code = check_residual(s, err);
	return code ? code : check_update(s, err);
}

int jm_train_choose(struct train *s, struct jm_err *err)
{
	int code = choose_model(s, err);

	return code ? code : check_threads(s, err);
}

int jm_train_check(const char *device, const char *precision, struct jm_err *err)
{
	struct jm_training t;
	int code = jm_precision_set(&t, precision, err);

	if (!code && t.precision == JM_F64 && strcmp(device, "ref") != 0)
		code = jm_err_set(err, JM_EUSAGE,
			"f64 is available on device ref only; use --device ref, or another "
			"--precision on %s.",
			device);
	return code ? code : jm_device_check(device, err);
}
