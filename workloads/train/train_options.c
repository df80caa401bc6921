/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `train`, and what a step is made of by them. */
#include "train_options.h"
#include "base/process/cpu_list.h"
#include "engine/graph/init_rule.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/tensor.h"
#include "idle_options.h"
#include "train_parts.h"
#include "train_pictures.h"
#include "train_text.h"

#include <math.h>
#include <string.h>

static const char *const batch_words[] = {"max", NULL};
static const char *const account_words[] = {"on", "off", NULL};
static const char *const shard_words[] = {"auto", "on", "off", NULL};
static const char *const type_words[] = {"auto", "f32", "bf16", NULL};
static const char *const on_off[] = {"on", "off", NULL};
static const char *const pixel_words[] = {"bytes", "values", NULL};
static const char *const decode_words[] = {"host", "device", NULL};
static const char *const image_kinds[] = {"once", "fresh", NULL};

#define OPTION_INT(text, field, low, high, value, what)                                            \
	{                                                                                          \
		.name = text, JM_BIND(JM_INT, struct train, field), .min = low, .max = high,       \
		.fallback = value, .help = what                                                    \
	}
#define OPTION_REAL(text, field, low, high, value, what)                                           \
	{                                                                                          \
		.name = text, JM_BIND(JM_REAL, struct train, field), .min = low, .max = high,      \
		.fallback = value, .help = what                                                    \
	}
#define OPTION_WORD(text, field, words, value, what)                                               \
	{                                                                                          \
		.name = text, JM_BIND(JM_CHOICE, struct train, field), .choices = words,           \
		.fallback = value, .help = what                                                    \
	}

const struct jm_option jm_train_options[] = {
	{.name = "model",
		JM_BIND(JM_TEXT, struct train, given.model),
		.fallback = "gpt-117m",
		.argument = "NAME",
		.help = "what is trained: a model or one of its presets, whose own options are "
			"shown by 'joulemark help NAME'"},
	{.name = "batch",
		JM_BIND(JM_INT, struct train, training.batch),
		.min = 1,
		.max = 1e6,
		.fallback = "4",
		.choices = batch_words,
		.argument = "N|max",
		.help = "samples per step (per micro-step with --accumulate, and of each rank with "
			"--ranks); max = as many as fit "
			"into memory"},
	OPTION_INT("seq", training.seq, 1, 1e8, NULL,
		"tokens per sequence; without it the model's context"),
	{.name = "text",
		JM_BIND(JM_TEXT, struct train, given.text),
		.argument = "FILE",
		.help = "what a language model learns from: any file, read as bytes, or a Megatron "
			"data set (NAME.bin with NAME.idx); English from this machine when not "
			"given"},
	{.name = "data",
		JM_BIND(JM_TEXT, struct train, pictures.data),
		.argument = "DIR",
		.help = "pictures that a model of pictures learns from: a folder with one folder "
			"of JPEG or PNG files per class, or with a caption for each picture, "
			"NAME.json with conversations about pictures, or "
			"the files of CIFAR or IDX (MNIST); or NAME.h5 with fields on grids, as "
			"'inputs' and 'outputs', for a model of fields. Random values when not "
			"given. --classes or the grid follows from it, and with "
			"--epochs the steps of an epoch"},
	{.name = "eval-data",
		JM_BIND(JM_TEXT, struct train, pictures.eval_data),
		.argument = "DIR",
		.help = "held-out samples, with the same classes or grid, all of which are "
			"evaluated after each epoch (or each --eval-every steps); without "
			"classes as many as fill whole batches. May be the DIR of --data if it has "
			"both parts: folders train and val, or files of both"},
	{.name = "tokenizer",
		JM_BIND(JM_TEXT, struct train, pictures.tokenizer),
		.argument = "FILE",
		.needs = "data",
		.help = "the tokenizer.json that turns captions or conversations of --data into "
			"tokens, for a model that reads them"},
	{.name = "data-threads",
		JM_BIND(JM_INT, struct train, pictures.threads),
		.min = 0,
		.max = 1024,
		.fallback = "0",
		.needs = "data",
		.help = "threads that read pictures ahead of the steps; 0 = the cores that this "
			"process may use, shared among ranks, less one"},
	{.name = "group-by-length",
		JM_BIND(JM_INT, struct train, pictures.group),
		.min = 0,
		.max = 1e9,
		.fallback = "0",
		.needs = "data",
		.help = "with conversations: each N samples in the random order of an epoch are "
			"sorted by their tokens, the longest first, so that a batch has samples of "
			"similar length; 0 = not. A step computes rows of --seq in any case"},
	{.name = "augment",
		JM_BIND(JM_CHOICE, struct train, pictures.augment),
		.choices = on_off,
		.fallback = "on",
		.needs = "data",
		.help = "cut pictures at random places and mirror every other one while "
			"training; off for pictures that a mirror makes wrong, such as digits"},
	{.name = "pixels",
		JM_BIND(JM_CHOICE, struct train, pictures.pixels),
		.choices = pixel_words,
		.fallback = "bytes",
		.needs = "data",
		.help = "how pictures go to the device: as bytes, which are normalised "
			"there, or as values of the precision, which threads normalise"},
	{.name = "decode",
		JM_BIND(JM_CHOICE, struct train, pictures.decode),
		.choices = decode_words,
		.fallback = "host",
		.needs = "data",
		.help = "who decodes JPEG files: threads of the host by libjpeg-turbo, or the GPU "
			"that trains by nvJPEG, a library of the CUDA toolkit. Pixels differ "
			"slightly; the threads read, crop and resize pictures in either case"},
	{.name = "strict-data",
		JM_BIND(JM_FLAG, struct train, pictures.strict),
		.needs = "data",
		.help = "end with an error at the first picture that cannot be read; else it is "
			"counted, and another takes its place"},
	OPTION_INT("eval-every", eval.every, 0, 1e9, "0",
		"number of steps between two evaluations of the loss on held-out samples, without "
		"changing weights; 0 = never"),
	{.name = "eval-text",
		JM_BIND(JM_TEXT, struct train, given.eval_text),
		.argument = "FILE",
		.help = "what --eval-every takes its samples from; without it the last tenth "
			"of --text, which is then not used for training"},
	OPTION_INT("eval-batches", eval.batches, 1, 1e6, "8",
		"batches of an evaluation, which uses the same ones each time"),
	{.name = "until",
		JM_BIND(JM_TEXT, struct train, until.given),
		.check = jm_until_check,
		.argument = "top1=X|loss=X",
		.help = "end as soon as an evaluation finds a share of right answers of at least "
			"X, "
			"or a loss of at most X; --epochs, --steps or --seconds is the most. All "
			"steps "
			"are measured: without --warmup there is none. The record has the steps, "
			"epochs, seconds and joules until then"},
	OPTION_WORD("images", given.images, image_kinds, "once",
		"random samples of models that learn from no text: made once and used in each "
		"step, or fresh "
		"ones each time"),
	OPTION_WORD("init", given.init, jm_init_names, "model",
		"start values of the layers' weights: the model's own, or those of a paper"),
	{.name = "from",
		JM_BIND(JM_TEXT, struct train, given.from),
		.argument = "FILE|FOLDER",
		.help = "start values: weights in the format safetensors, one file or a folder as "
			"Hugging Face lays it out, whose config.json gives the dimensions of a "
			"llama or gpt, with the names of the model's reference (see "
			"docs/weights.md). With another number of classes the last layer begins "
			"with new values"},
	{.name = "freeze",
		JM_BIND(JM_TEXT, struct train, training.freeze),
		.argument = "PATTERNS",
		.use = JM_OPTION_COMMAS,
		.help = "parameters that are not trained: patterns of their names, separated by "
			"commas ('conv1*,layer*'), as 'joulemark describe MODEL --graph' prints "
			"them or as weights files have them. They have no gradient, master or "
			"moment; batch norms among them use their running statistics"},
	{.name = "save",
		JM_BIND(JM_TEXT, struct train, weights.save),
		.argument = "FILE|FOLDER/",
		.use = JM_OPTION_WRITES | JM_OPTION_COMMAS,
		.help = "write the weights there after the last step, in the format safetensors; "
			"an old file is replaced when all of the new one is on the disk. A folder, "
			"whose name ends in / if there is none yet, gets model.safetensors, or "
			"shards with their index, and config.json of a llama or gpt, as Hugging "
			"Face has them"},
	{.name = "save-shard",
		JM_BIND(JM_REAL, struct train, weights.shard),
		.unit = "",
		.min = 1e-6,
		.max = 1e6,
		.fallback = "5",
		.argument = "GB",
		.needs = "save",
		.help = "size of a file of the folder of --save at most, in GB"},
	{.name = "checkpoint",
		JM_BIND(JM_TEXT, struct train, weights.checkpoint),
		.argument = "FILE",
		.use = JM_OPTION_WRITES | JM_OPTION_COMMAS,
		.help = "write all that the next step depends on there: masters, moments, running "
			"statistics, loss scale and counters; after the last step, and during the "
			"run with --checkpoint-every. Of several ranks one file, which another "
			"number of them may go on from"},
	{.name = "checkpoint-every",
		JM_BIND(JM_INT, struct train, weights.every),
		.min = 0,
		.max = 1e9,
		.fallback = "0",
		.needs = "checkpoint",
		.help = "number of steps between two checkpoints, of which the newer replaces the "
			"older when all of it is on the disk; 0 = only after the last step"},
	{.name = "continue",
		JM_BIND(JM_TEXT, struct train, weights.go_on),
		.argument = "FILE",
		.help = "go on behind the last step of a checkpoint, with the losses of a run that "
			"was not interrupted; --steps and --epochs count those of this run alone. "
			"--ranks may be another number if --batch x --accumulate x --ranks is the "
			"same"},
	{.name = "zero-gamma",
		JM_BIND(JM_FLAG, struct train, training.zero_gamma),
		.help = "the last batch norm of each residual block starts at zero (arXiv "
			"1706.02677)"},
	OPTION_WORD("optimizer", training.adamw.kind, jm_update_names, "adamw",
		"optimizer of the parameters: AdamW, Adam, or SGD with momentum"),
	OPTION_REAL("lr", schedule.lr, 1e-12, 1e3, "3e-4",
		"learning rate, the highest of the schedule"),
	OPTION_WORD("schedule", schedule.kind, jm_lr_schedule_kinds, "constant",
		"how the learning rate falls after its warm-up"),
	OPTION_INT("lr-warmup", schedule.warmup, 0, 1e9, "0",
		"steps in which the learning rate rises to --lr"),
	OPTION_INT("lr-steps", schedule.length, 1, 1e9, "1000",
		"steps after which cosine and linear have reached --lr-min; with --schedule step: "
		"steps between two reductions"),
	OPTION_REAL("lr-min", schedule.lr_min, 0, 1e3, "0",
		"learning rate at the end of cosine and linear"),
	OPTION_REAL("lr-factor", schedule.factor, 1e-6, 1, "0.1",
		"with --schedule step: factor of the learning rate at each reduction"),
	OPTION_REAL("beta1", training.adamw.beta1, 0, 0.999999, "0.9",
		"Adam and AdamW: decay rate of the mean of gradients (first moment)"),
	OPTION_REAL("beta2", training.adamw.beta2, 0, 0.999999, "0.999",
		"Adam and AdamW: decay rate of the mean of squared gradients (second moment)"),
	OPTION_REAL("eps", training.adamw.eps, 1e-16, 1, "1e-8",
		"Adam and AdamW: constant that is added to the denominator"),
	OPTION_REAL("momentum", training.adamw.momentum, 0, 0.999999, "0.9", "momentum of SGD"),
	{.name = "nesterov",
		JM_BIND(JM_FLAG, struct train, training.adamw.nesterov),
		.help = "use Nesterov momentum in SGD"},
	OPTION_REAL("ema", training.adamw.average, 0, 0.9999999, "0",
		"keep a mean of the parameters, of which each update leaves this share (less in "
		"the first ones) and takes the rest from the new parameters; --save writes the "
		"mean; 0 = none"),
	OPTION_REAL("weight-decay", training.adamw.weight_decay, 0, 1e3, "0.1",
		"weight decay of matrices and filters; vectors have none"),
	OPTION_REAL("clip", training.adamw.clip, 0, 1e9, "1",
		"largest global norm of the gradient, which is scaled down to it; 0 = no limit"),
	{.name = "loss-scale",
		JM_BIND(JM_TEXT, struct train, given.loss_scale),
		.argument = "X|dynamic[:START]",
		.help = "factor of the loss before its gradients are computed, which the update "
			"removes again; a power of two changes no bit of the result. dynamic: "
			"starts at 65536, doubles after 2000 good steps, halves and skips the "
			"update of a step whose gradient is not finite. When not given: dynamic in "
			"fp16, else 1"},
	OPTION_REAL("dropout", training.dropout, 0, 0.999, "0",
		"share of values dropped: of transformers after embeddings and the parts of each "
		"block, of AlexNet and VGG beside the first two linear layers"),
	OPTION_INT("accumulate", training.micro_steps, 1, 1e6, "1",
		"micro-steps of --batch samples whose gradients add up before an update"),
	OPTION_WORD("gradients", given.gradients, type_words, "auto",
		"with --precision bf16 or fp8: type in which the gradients of matrices wait for "
		"the update. bf16 rounds them as PyTorch's autocast does; f32 does not. auto = "
		"bf16 on a device with its own memory, and f32 where they are summed over "
		"micro-steps or ranks, and in networks with convolutions"),
	OPTION_WORD("residual", given.residual, type_words, "auto",
		"with --precision bf16 or fp8: type of the residual stream of transformers and of "
		"its gradient. f32 as in PyTorch's autocast; bf16 as in Megatron-LM without "
		"--fp32-residual-connection. auto = bf16 on a device with its own memory"),
	{.name = "recompute",
		JM_BIND(JM_FLAG, struct train, training.recompute),
		.help = "each block computes its activations again for its gradients: less memory, "
			"more work, the same results"},
	{.name = "keep-all",
		JM_BIND(JM_FLAG, struct train, training.keep_all),
		.help = "norms, activations and compute copies are kept for gradients, not "
			"recomputed: more memory, fewer passes over it, the same results"},
	{.name = "remake",
		JM_BIND(JM_REAL, struct train, remake),
		.argument = "PERCENT",
		.min = 0,
		.max = 100,
		.help = "largest share of a step's time, estimated from the device's peaks, to "
			"spend "
			"on recomputing norms, activations and compute copies instead of keeping "
			"them, and above the usual share also attention and products; those that "
			"free the most memory per unit of time come first. "
			"Activations that the kernel of their gradient can write again are "
			"always recomputed; at most half of the share counts as spent on them. "
			"When not given: on a device with its own memory 1/16 for transformers, "
			"1.6 for networks of images with residual sums and 1 for others, or the "
			"least up to 10 with which the plan fits into it, and with --batch max the "
			"least from 1/16 on; else all of them are recomputed"},
	{.name = "keep-less",
		JM_BIND(JM_FLAG, struct train, given.keep_less),
		.help = "norms, activations and compute copies are recomputed for gradients even "
			"if there is enough memory to keep them"},
	OPTION_REAL("memory", given.memory, 0, 1e6, "0",
		"GB of memory that the plan may use; 0 = all that is free now"),
	{.name = "profile",
		JM_BIND(JM_FLAG, struct train, given.profile),
		.help = "time each node: FLOP/s, bytes/s and share of the roofline go into the "
			"record"},
	{.name = "ranks",
		.type = JM_INT,
		.min = 1,
		.max = JM_RANKS_MOST,
		.help = "processes that train together, each --batch samples per step; their "
			"gradients are summed. --device names one device for all, or one for each"},
	{.name = "tp",
		JM_BIND(JM_INT, struct train, training.tp),
		.min = 1,
		.max = JM_RANKS_MOST,
		.fallback = "1",
		.needs = "ranks",
		.help = "with --ranks, for llama and gpt: so many ranks share each model, and each "
			"of them computes a part of every block (tensor parallel); the other "
			"factor of --ranks is models with samples of their own"},
	{.name = "sequence-parallel",
		JM_BIND(JM_FLAG, struct train, training.sp),
		.needs = "tp",
		.help = "with --tp: between the products that are divided each rank has a part of "
			"the rows, and rows are gathered for products: less memory, the same "
			"results"},
	{.name = "pp",
		JM_BIND(JM_INT, struct train, training.pp),
		.min = 1,
		.max = JM_RANKS_MOST,
		.fallback = "1",
		.needs = "ranks",
		.help = "with --ranks, for llama and gpt: so many ranks have a stage of each "
			"model, "
			"its share of the blocks (pipeline parallel). The micro-steps of "
			"--accumulate go from stage to stage, forward and backward in turn (1F1B). "
			"With --tp each stage is shared by as many ranks"},
	{.name = "pp-chunks",
		JM_BIND(JM_INT, struct train, training.chunks),
		.min = 1,
		.max = JM_CHUNKS_MOST,
		.fallback = "1",
		.needs = "pp",
		.help = "with --pp: a stage is so many parts of the network, so that micro-steps "
			"come "
			"through each rank as often (interleaved 1F1B): ranks wait less and send "
			"more. The stages divide --accumulate"},
	{.name = "pp-last",
		JM_BIND(JM_INT, struct train, training.last_blocks),
		.min = 1,
		.max = 100000,
		.needs = "pp",
		.help = "with --pp: blocks of the last part of the network, which computes the "
			"loss, too; the other parts share the rest, the first ones one more where "
			"it does not divide. When not given, as many as make the FLOPs of the "
			"stages differ least"},
	{.name = "bucket",
		JM_BIND(JM_REAL, struct train, given.bucket),
		.min = 1e-3,
		.max = 1e6,
		.needs = "ranks",
		.help = "with --ranks: smallest size, in MiB, of a bucket of gradients that the "
			"ranks sum during the backward pass; if it exceeds all gradients, they are "
			"summed once after the backward pass. When not given: 25, and with a "
			"sharded update each bucket has twice the size of the one before"},
	{.name = "shard-update",
		JM_BIND(JM_CHOICE, struct train, given.shard_update),
		.choices = shard_words,
		.fallback = "auto",
		.needs = "ranks",
		.help = "with --ranks: each rank receives the sum of a share of the gradients, "
			"updates this share of the parameters and keeps the optimizer's state for "
			"it only; then the ranks gather the parameters. auto = on, and off for "
			"--precision fp8-true, and for bf16-true with --transport host"},
	{.name = "account",
		JM_BIND(JM_CHOICE, struct train, given.account),
		.choices = account_words,
		.fallback = "on",
		.needs = "ranks",
		.help = "with --ranks: the record says where the time of a step went, by events of "
			"the device around transfers; off = without them"},
	JM_GANG_TRANSPORT(struct train, given.transport,
		", and rounds gradients in bf16 and fp8 on the way unless --gradients "
		"f32 is given",
		"host for two ranks that train with a given --batch of many tokens in bf16 or "
		"fp8, else nccl"),
	OPTION_INT("threads", given.threads, 0, 4096, "0",
		"threads of each rank on the host; 0 = all that may be used, divided among the "
		"ranks"),
	{0},
};

static int check_until(struct train *s, struct jm_err *err)
{
	int code = jm_until_parse(&s->until, err);

	if (code || !s->until.given)
		return code;
	if (!s->eval.every)
		return jm_err_set(err, JM_EUSAGE,
			"--until %.40s is judged by evaluations, and there are none; give "
			"--eval-data "
			"DIR or --eval-every N.",
			s->until.given);
	if (s->until.figure == JM_UNTIL_TOP1 && !s->training.model->wants_top1)
		return jm_err_set(err, JM_EUSAGE,
			"Model %s does not classify, so it has no top1; give --until loss=X.",
			s->training.model->name);
	s->work->may_end = true;
	return 0;
}

/* Options of evaluations have no effect without evaluations. */
static int check_eval(const struct train *s, struct jm_err *err)
{
	if (s->eval.every || !s->given.eval_text)
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

int jm_train_threads(const struct train *s)
{
	return jm_gang_threads(s->work, s->given.threads);
}

static int check_threads(const struct train *s, struct jm_err *err)
{
	int wanted = s->given.threads, have = jm_cpus_usable();

	if (wanted <= have || !have)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"%d threads are more than the %d core%s this program may use: they would wait for "
		"each other; give --threads %d or less, or 0 for all.",
		wanted, have, have == 1 ? "" : "s", have);
}

static int check_kept(const struct train *s, struct jm_err *err)
{
	if (s->training.keep_all && s->given.keep_less)
		return jm_err_set(err, JM_EUSAGE,
			"--keep-all and --keep-less contradict each other; omit one of them.");
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

	if (strcmp(s->given.gradients, "bf16") != 0)
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
	const char *word = s->given.residual;

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

static int check_shard(const struct train *s, struct jm_err *err)
{
	bool on = !strcmp(s->given.shard_update, "on");

	/* one rank alone is the reference of a sweep */
	if (on && s->training.ranks == 1 && jm_work_world(s->work) > 1)
		return jm_err_set(err, JM_EUSAGE,
			"--shard-update on has no effect, because --tp and --pp make one model of "
			"all ranks; give more --ranks, or omit it.");
	if (on && s->training.pure && (s->training.fp8 || !strcmp(s->given.transport, "host")))
		return jm_err_set(err, JM_EUSAGE,
			"--shard-update on does not go with --precision %s%s; omit it.",
			s->work->precision, s->training.fp8 ? "" : " and --transport host");
	return 0;
}

static size_t bucket_bytes(double mib)
{
	return isnan(mib) ? 0 : (size_t)(mib * 1048576);
}

/* Whether the options go together. */
static int check_together(struct train *s, struct jm_err *err)
{
	int code = check_eval(s, err);

	if (!code)
		code = check_until(s, err);
	if (!code)
		code = check_kept(s, err);
	if (!code)
		code = check_shard(s, err);
	if (!code)
		code = jm_train_check_parts(s, err);
	if (!code)
		code = check_gradients(s, err);
	if (!code)
		code = check_residual(s, err);
	if (!code)
		code = check_update(s, err);
	if (!code)
		jm_train_note_idle(s);
	return code;
}

static int choose_model(struct train *s, struct jm_err *err)
{
	struct jm_training *t = &s->training;
	const struct train_given *o = &s->given;
	const struct jm_preset *preset;
	int code;

	JM_FILL(s->work->options, s);
	code = jm_model_find(o->model, &t->model, &preset, err);
	if (!code)
		code = jm_train_pictures_open(s, err);
	if (!code)
		code = jm_train_pictures_dims(s, preset, err);
	if (!code)
		code = jm_precision_set(t, s->work->precision, err);
	if (!code)
		code = jm_train_text_check(s, err);
	t->dims = &s->dims;
	jm_train_choose_seat(s);
	t->shards_update = strcmp(o->shard_update, "off") != 0;
	t->bucket_bytes = bucket_bytes(o->bucket);
	t->init = jm_init_find(o->init);
	s->may_keep = !t->keep_all && !t->recompute && !o->keep_less;
	s->remake /= 100;
	s->schedule.every = s->schedule.length;
	if (!code)
		code = jm_scaler_parse(o->loss_scale		? o->loss_scale
				       : t->precision == JM_F16 ? "dynamic"
								: "1",
			&s->scaler, err);
	t->scaled = s->scaler.dynamic || s->scaler.scale != 1;
	return code ? code : check_together(s, err);
}

int jm_train_choose(struct train *s, struct jm_err *err)
{
	int code = choose_model(s, err);

	return code ? code : check_threads(s, err);
}
