/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract of a model: one file = one network, built only of engine ops (engine/graph/graph.h). A
 * preset is a named set of dimensions: "gpt-117m" is a preset of "gpt".
 */
#ifndef JM_MODEL_H
#define JM_MODEL_H

#include "graph.h"
#include "base/option.h"
#include "optimizer.h"
#include "layer_pages.h"
#include "rematerialize.h"
#include "weight_part.h"

struct json_t;

struct jm_preset {
	const char *name;
	const char *summary;
	const char *dims;   /* options of the model: "layers=12 hidden=768" */
	int64_t parameters; /* as published, for a test; 0 = unknown */
	const char *source; /* of the dimensions */
	/* the workload that trains it: `run PRESET` means this workload with model=PRESET */
	const char *workload;
};

/* The data that the host writes into an input before a micro-step. [batch,..]: the first dimension
 * is the batch. */
enum jm_fill {
	JM_FILL_TEXT,	/* i32[batch,seq]: a window of the text for each sample */
	JM_FILL_NORMAL, /* [batch,..], the compute type of the precision: random normal values */
	JM_FILL_CLASS,	/* i32[batch] or i32[batch,N]: random classes, or tokens */
	JM_FILL_ROW,	/* i32[batch]: the index of each sample in its batch, from 0 */
	JM_FILL_ZERO,	/* i32[batch]: 0 */
	/* [batch,N..,C], the compute type: C fields of heat on a periodic grid (heat_equation.h) */
	JM_FILL_HEAT,
};

/* What the pixel values 0 to 255 of a picture's three channels become. */
enum jm_colours {
	JM_COLOURS_IMAGENET, /* (value / 255 - mean) / deviation, as of ImageNet */
	JM_COLOURS_SIGNED,   /* -1 to 1 */
	JM_COLOURS_CLIP,     /* as of ImageNet, with CLIP's mean and deviation */
};
const struct jm_colour_scale *jm_colour_scale(enum jm_colours colours);

/* An input that `build` declares. With dropout "random.now" is filled, too. */
struct jm_input {
	const char *name;
	enum jm_fill fill;
	const char *below; /* TEXT, CLASS: the option that holds the number of tokens or classes */
	/* TEXT: the window begins this many tokens later; HEAT: the time is this many steps later.
	 * 1 for targets */
	int shift;
	/*
	 * The field of a data set that is written here in place of `fill` where there is one
	 * (--data): "image" into [batch,3,N,N], "class" into i32[batch], "caption" as ids of tokens
	 * into i32[batch,N], cut or padded to N; of conversations about pictures "ids" and
	 * "target" into i32[batch,seq], "picture" into i32[batch]; of fields on a grid "inputs" and
	 * "outputs" into [batch,N..,C]. NULL = none.
	 */
	const char *field;
	enum jm_colours colours; /* of "image" */
	int32_t pad;		 /* the token behind the end of "caption" */
};

#define JM_INPUTS_MAX 8

struct jm_model {
	const char *name;
	const char *summary;
	const char *item;	       /* the unit of throughput: "token", "image" */
	const struct jm_input *inputs; /* at most JM_INPUTS_MAX; terminated by name NULL */
	bool cuts; /* `build` cuts matrices where ranks share a model (tensor_parallel.h) */
	/* evaluations count correct answers: the loss is one softmax-xent of classes */
	bool wants_top1;
	/* The model's options, whose names differ from those of the workloads that run it. An
	 * option that neither a preset nor the user sets has the default given here, or none. */
	const struct jm_option *options;
	const struct jm_preset *presets; /* terminated by name NULL */
	/* Names in weights files, terminated by `of` NULL; optional: those of the graph. */
	const struct jm_weight_names *weights;
	/* Optional: the dimensions that the config.json of a folder of Hugging Face has. file: for
	 * errors. ret: values of the options, unset. */
	int (*config)(const char *file, const struct json_t *config, struct jm_values *ret,
		struct jm_err *err);
	/* Optional: a new config.json of this network, but for the type of its weights; null = none
	 * describes it; NULL = out of memory. */
	struct json_t *(*make_config)(const struct jm_values *dims);
	/* Optional: parameters that are never trained; patterns as in struct jm_freeze. */
	const char *frozen;
	/* Optional: the samples that a norm over the batch needs to have a variance. */
	int64_t least_batch;
	/* Optional, a pattern of fnmatch: the parameters whose rows are the classes. */
	const char *top;
	/*
	 * Optional: sets dimensions that neither preset nor user set (ffn = 4 hidden...). seq: the
	 * requested sequence, 0 = none. The caller reports dimensions that are still unset.
	 */
	int (*complete)(struct jm_values *dims, int64_t seq, struct jm_err *err);
	/* Optional: the default length of a sequence (1 without this function or if no input is
	 * text); also checks the dimensions. */
	int (*default_seq)(const struct jm_values *dims, int64_t *ret, struct jm_err *err);
	/*
	 * Declares the network for `batch` samples of `seq` items, with its inputs, and returns its
	 * loss: the scalar of jm_graph_softmax_xent, jm_graph_mse or jm_graph_relative_l2, or a sum
	 * of such scalars. Errors: JM_EUSAGE or JM_ERANGE for dimensions that do not match.
	 */
	int (*build)(struct jm_graph *g, const struct jm_values *dims, int64_t batch, int64_t seq,
		struct jm_tensor **ret_loss, struct jm_err *err);
	/*
	 * Optional: declares the network as a step of serving, with the inputs of jm_graph_flat,
	 * and returns the logits, of a linear layer: c[R,V] of each request's row in "last", or
	 * those of all T rows where T < R. Prefill, decode and steps that mix them are this one
	 * graph. Parameters have the names that `build` gives them.
	 */
	int (*step)(struct jm_graph *g, const struct jm_values *dims,
		const struct jm_step_shape *shape, struct jm_tensor **ret_logits,
		struct jm_err *err);
};

extern const struct jm_model *const jm_models[]; /* NULL-terminated, generated */

/* A row of a model's options, bound to a field: a whole number of at least 1. Where a table has
 * rows of several structs, their sizes differ. */
#define JM_MODEL_INT(STRUCT, FIELD, dim, most, text)                                               \
	{                                                                                          \
		.name = dim, JM_BIND(JM_INT, STRUCT, FIELD), .unit = "", .min = 1, .max = most,    \
		.help = text                                                                       \
	}

/* The same for a number within limits. */
#define JM_MODEL_REAL(STRUCT, FIELD, dim, least, most, text)                                       \
	{                                                                                          \
		.name = dim, JM_BIND(JM_REAL, STRUCT, FIELD), .unit = "", .min = least,            \
		.max = most, .help = text                                                          \
	}

/* For `complete`: reads a dimension as a whole number; sets a dimension that is not set. */
int64_t jm_dim(const struct jm_values *dims, const char *name);
int jm_dim_default(struct jm_values *dims, const char *name, int64_t value, struct jm_err *err);

/* True if any input is text, so that samples are sequences. */
bool jm_model_has_text(const struct jm_model *model);
/* True if any model has this option. */
bool jm_model_option_exists(const char *name);
/* The name of the workload that runs the preset; training for NULL, a model without preset. */
const char *jm_model_workload(const struct jm_preset *preset);
/* The option rows of a model, or of the model of a preset. */
int jm_model_options(const char *name, const struct jm_option **ret, struct jm_err *err);

/* Finds a preset or a model by name; *ret_preset is NULL for a model. An unknown name is an error
 * that suggests a similar one. */
int jm_model_find(const char *name, const struct jm_model **ret,
	const struct jm_preset **ret_preset, struct jm_err *err);
/*
 * The dimensions of the preset (may be NULL), overridden by `given` (may be NULL) and completed by
 * the model; `given` may hold other values, such as the requested sequence, "seq". To be freed by
 * jm_values_done.
 */
int jm_model_dims(const struct jm_model *model, const struct jm_preset *preset,
	const struct jm_values *given, struct jm_values *ret, struct jm_err *err);

/*
 * Is a tensor in the compute type, although the masters are in f32? AUTO: in bf16 and fp8 on a
 * device with memory of its own, where it saves time; gradients only where it loses nothing beside
 * PyTorch's autocast, which rounds those of matrices, too: not if they are summed over micro-steps
 * or ranks, nor with filters of convolutions, whose gradients are written in f32.
 */
enum jm_narrow { JM_NARROW_AUTO, JM_NARROW_NO, JM_NARROW_YES };
/* Of "auto", "f32" or "bf16". */
enum jm_narrow jm_narrow_of(const char *word);

/* The description of a training step. */
struct jm_training {
	const struct jm_model *model;
	const struct jm_values *dims;
	int64_t batch, seq; /* seq 0 = the model's default; filled in */
	enum jm_dtype precision;
	enum jm_math math;
	struct jm_adamw adamw;
	/* micro-steps of `batch` samples, whose gradients are summed before an update; 0 means 1 */
	int micro_steps;
	/* ranks that train together, each with `batch` samples in a micro-step; 0 means 1 */
	int ranks;
	int rank; /* the own one of these, from 0 */
	/* ranks that share each model (tensor_parallel.h); 0 means 1. `ranks` counts the models */
	int tp;
	int tp_rank; /* the own one of these, from 0 */
	bool sp;     /* sequence parallel, with tp and without dropout */
	/* ranks that have stages of each model, and parts of a stage (pipeline_parallel.h); 0 means
	 * 1 */
	int pp, chunks;
	int stage;	 /* the own one, from 0 */
	int last_blocks; /* of the last part of the network; 0 = chosen by FLOPs */
	/* smallest sum of gradients over ranks; 0 means JM_BUCKET_BYTES (reduce.h) */
	size_t bucket_bytes;
	bool by_host;	  /* ranks exchange data through the memory of the host (transport host) */
	bool rounds_sums; /* gradients travel between ranks in bf16 */
	/* with several ranks each updates a share of the parameters, where that is possible
	 * (jm_graph.whole_update) */
	bool shards_update;
	bool pure; /* no f32 masters: matrices, their gradients and moments, and the residual stream are in the
		    * compute type */
	bool fp8;		  /* linear layers inside blocks multiply in 8 bits: fp8.c */
	enum jm_narrow gradients; /* of matrices; not with several ranks */
	enum jm_narrow residual;  /* the residual stream of transformers */
	bool byte_pictures;	  /* "image" of a data set is u8, and is normalised on the device */
	bool own_memory;	  /* the device has some, whose traffic narrow types save */
	int64_t row_multiple; /* of the rows of vocabularies; 0 = 64 without f32 masters, else 1 */
	double dropout;	      /* share of dropped values, for models with dropout */
	bool recompute;	      /* blocks recompute their activations for gradients */
	bool keep_all;	      /* nothing is recomputed; used if recompute is false */
	struct jm_remake remake; /* used if both are false: the limits of rematerialization */
	/* The input "loss.scale", {S, 1/S}: the loss is multiplied by S before its gradients,
	 * and the update divides by S. A power of two changes no bit while nothing overflows. */
	bool scaled;
	const char
		*freeze;   /* patterns, as in struct jm_freeze; NULL = all parameters are trained */
	enum jm_init init; /* of the layers' weights; OWN = the model's */
	bool zero_gamma;   /* the last batch norm of each residual block starts at 0 */
};
/* f32, tf32 (f32 with products in tf32), bf16 and fp16 (masters in f32), bf16-true (no masters),
 * fp8 and fp8-true (as bf16 and bf16-true, with products in 8 bits), f64: sets t->precision,
 * t->math, t->pure and t->fp8. */
extern const char *const jm_precision_names[]; /* NULL-terminated */
int jm_precision_set(struct jm_training *t, const char *name, struct jm_err *err);
/* The network without gradients, on the same parameters: the scalar "loss" and, if the model wants
 * it, "top1", the share of correct answers. */
int jm_model_evaluate(const struct jm_training *t, struct jm_graph **ret, struct jm_err *err);
/*
 * A step of serving, with the scalar "token" i32[R] (greedy) and, if wanted, "logits" c[R,V]; of t
 * are used model, dims, precision and what a graph without gradients needs. JM_ENOSUP: the model
 * declares no such step.
 */
int jm_model_step(const struct jm_training *t, const struct jm_step_shape *shape,
	struct jm_graph **ret, struct jm_err *err);
/* Network, gradients and update as one graph, with input "adamw.now" and scalars "loss",
 * "grad.norm". */
int jm_model_train(struct jm_training *t, struct jm_graph **ret, struct jm_err *err);

#endif
