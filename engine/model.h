/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract of a model: one file = one network, written only in engine ops (engine/graph.h).
 * A preset is a set of its dimensions with a name of its own: "gpt-117m" is a preset of "gpt".
 */
#ifndef JM_MODEL_H
#define JM_MODEL_H

#include "graph.h"
#include "base/option.h"

struct jm_preset {
	const char *name;
	const char *summary;
	const char *dims;   /* options of the model: "layers=12 hidden=768" */
	int64_t parameters; /* as published, so that a test can compare; 0 = unknown */
	const char *source; /* of the dimensions */
	const char
		*workload; /* that trains it: `run PRESET` means this workload with model=PRESET */
};

/* What the host writes into an input before a micro-step. [batch,..]: the first dimension is the batch. */
enum jm_fill {
	JM_FILL_TEXT,	/* i32[batch,seq]: a window of the text for each sample */
	JM_FILL_NORMAL, /* [batch,..], the compute type of the precision: random normal values */
	JM_FILL_CLASS,	/* i32[batch]: a random class for each sample */
	JM_FILL_ROW,	/* i32[batch]: the place of each sample in its batch, 0... */
};

/* An input that `build` declares. Where a model drops out, "random.now" is filled besides. */
struct jm_input {
	const char *name;
	enum jm_fill fill;
	const char *below; /* TEXT, CLASS: the option that holds the number of tokens or classes */
	int shift; /* TEXT: the window begins as many tokens later; what should come out has 1 */
};

#define JM_INPUTS_MAX 8

struct jm_model {
	const char *name;
	const char *summary;
	const char *item;	       /* what throughput counts: "token", "image" */
	const struct jm_input *inputs; /* at most JM_INPUTS_MAX; terminated by name NULL */
	bool wants_top1; /* evaluations count right answers: the loss is one softmax-xent of classes */
	/* Its own, with other names than those of the workloads that run it; what neither a preset nor the user
	 * sets has no value or the default here. */
	const struct jm_option *options;
	const struct jm_preset *presets; /* terminated by name NULL */
	/*
	 * Optional: sets what neither preset nor user set (ffn = 4 hidden...). seq: the sequence asked
	 * for, 0 = none. What stays unset is an error of the caller's.
	 */
	int (*complete)(struct jm_values *dims, int64_t seq, struct jm_err *err);
	/* Optional: the length of a sequence when none is asked for (without it, and where no input is text, 1); also
	 * checks the dimensions. */
	int (*default_seq)(const struct jm_values *dims, int64_t *ret, struct jm_err *err);
	/*
	 * Declares the network for `batch` samples of `seq` items, with its inputs, and returns its loss: the
	 * scalar of jm_graph_softmax_xent, jm_graph_mse, or a sum of such. Dimensions that do not fit are
	 * JM_EUSAGE or JM_ERANGE.
	 */
	int (*build)(struct jm_graph *g, const struct jm_values *dims, int64_t batch, int64_t seq,
		struct jm_tensor **ret_loss, struct jm_err *err);
};

extern const struct jm_model *const jm_models[]; /* NULL-terminated, generated */

/* The usual row of a model's options: a whole number from 1 on. */
#define JM_MODEL_INT(dim, most, text)                                                              \
	{                                                                                          \
		.name = dim, .type = JM_INT, .unit = "", .min = 1, .max = most, .help = text       \
	}

/* For models: a dimension as a whole number, and setting one that is not set. */
int64_t jm_dim(const struct jm_values *dims, const char *name);
int jm_dim_default(struct jm_values *dims, const char *name, int64_t value, struct jm_err *err);

/* Is any input text, so that samples are sequences? */
bool jm_model_has_text(const struct jm_model *model);
/* Has any model such an option? */
bool jm_model_option_exists(const char *name);
/* The name of the workload that runs it; NULL, a model as it is: training. */
const char *jm_model_workload(const struct jm_preset *preset);
/* The rows of a model or of a preset's model, as workloads pass them on. */
int jm_model_options(const char *name, const struct jm_option **ret, struct jm_err *err);

/* NULL when there is no preset of that name. */
const struct jm_preset *jm_model_find_preset(const char *name);
/* A preset's or a model's name; *ret_preset is NULL for a model's. 'Did you mean' otherwise. */
int jm_model_find(const char *name, const struct jm_model **ret,
	const struct jm_preset **ret_preset, struct jm_err *err);
/* The preset's dimensions (preset may be NULL) with those that `given` (may be NULL) sets on top,
 * completed by the model; `given` may hold more, such as the sequence asked for, "seq". End with
 * jm_values_done. */
int jm_model_dims(const struct jm_model *model, const struct jm_preset *preset,
	const struct jm_values *given, struct jm_values *ret, struct jm_err *err);

/* What a step of training is made of. */
struct jm_training {
	const struct jm_model *model;
	const struct jm_values *dims;
	int64_t batch, seq; /* seq 0 = the model's default; filled in */
	enum jm_dtype precision;
	enum jm_math math;
	struct jm_adamw adamw;
	int micro_steps; /* of `batch` each, whose gradients add up before an update; 0 is 1 */
	int ranks;	 /* that train together, each `batch` samples in a micro-step; 0 is 1 */
	bool pure; /* no f32 masters: matrices, their gradients and moments, and the residual stream are in the
		    * compute type */
	bool fp8; /* linear layers inside blocks multiply in 8 bits: fp8.c */
	int64_t row_multiple; /* of the rows of vocabularies; 0 = 64 where matrices have no f32 masters, else 1 */
	double dropout;		 /* share of values that models with dropout drop */
	bool recompute;		 /* blocks recompute their activations for their gradients */
	bool keep_all;		 /* nothing is recomputed for gradients; if not recompute */
	struct jm_remake remake; /* if neither: how much of it */
	/* The input "loss.scale", {S, 1/S}: the loss is multiplied by S before its gradients,
	 * and the update divides by S. A power of two changes no bit while nothing overflows. */
	bool scaled;
	enum jm_init init; /* of the layers' weights; OWN = the model's */
	bool zero_gamma;   /* the last batch norm of each residual block starts at 0 */
};
/* f32, tf32 (f32 with products in tf32), bf16 and fp16 (masters in f32), bf16-true (no masters), fp8 and fp8-true
 * (as bf16 and bf16-true, with products in 8 bits), f64: sets t->precision, t->math, t->pure and t->fp8. */
extern const char *const jm_precision_names[]; /* NULL-terminated */
int jm_precision_set(struct jm_training *t, const char *name, struct jm_err *err);
/* The network alone, on the same parameters: the scalar "loss" and, where the model wants it, "top1", the share
 * of right answers. */
int jm_model_evaluate(const struct jm_training *t, struct jm_graph **ret, struct jm_err *err);
/* Network, gradients and update as one graph, with input "adamw.now" and scalars "loss", "grad.norm". */
int jm_model_train(struct jm_training *t, struct jm_graph **ret, struct jm_err *err);

#endif
