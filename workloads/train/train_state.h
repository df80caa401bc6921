/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a training: what the user gives, what was made of it, and how far it is. */
#ifndef JM_TRAIN_STATE_H
#define JM_TRAIN_STATE_H

#include "run/workload.h"

#include "base/clock.h"
#include "engine/graph/model.h"
#include "engine/run/program.h"
#include "batch_feed.h"
#include "data/sets/data_set.h"
#include "data/sets/token_rows.h"
#include "picture_loader.h"
#include "workloads/parts/gang.h"
#include "workloads/parts/weights_load.h"
#include "scaler.h"
#include "lr_schedule.h"
#include "train_eval.h"
#include "train_results.h"
#include "train_until.h"

/* What a user gives that is used once, or as it is; texts: NULL = not given. */
struct train_given {
	const char *model, *text, *eval_text, *images, *init, *from, *loss_scale;
	const char *gradients, *residual, *shard_update, *transport, *account;
	double memory; /* GB; 0 = what is free */
	double bucket; /* MiB; NAN = not given */
	int threads;   /* 0 = all */
	bool keep_less, profile;
};

/* Files of weights: what it starts from, and what it saves. */
struct jm_train_weights {
	struct jm_safetensors from; /* zeroed = it starts from random values */
	struct jm_weights_loaded found;
	const char *save; /* NULL = nothing is saved */
	size_t made;  /* the topmost folder of `save` that the run made (jm_output_folder_new) */
	double shard; /* GB of a file of a folder at most */
	const char *checkpoint, *go_on; /* files of --checkpoint and --continue; NULL = none */
	long every;			/* steps between two checkpoints; 0 = one at the end */
	long written;			/* the step after which one was written last; 0 = none */
	int64_t batches; /* that norms had counted before the first step of this run */
};

/* The pictures that it learns from and is evaluated on. */
struct jm_train_pictures {
	const char *data, *eval_data; /* NULL = not given */
	const char *tokenizer;	      /* of captions; NULL = not given */
	const char *augment;	      /* "on", "off" */
	const char *pixels;	      /* "bytes", "values" */
	const char *decode;	      /* "host", "device" */
	int threads;		      /* 0 = the rank's share of the cores less one */
	long group;		      /* samples that are sorted by length at a time; 0 = none */
	bool strict;
	bool each_epoch; /* evaluations follow epochs, as no number of steps is given */
	struct jm_data_set set, held_out;
	/* of captions, and of conversations: of `set`, of `held_out` */
	struct jm_token_rows tokens[2];
	struct jm_talk_rows talks[2];
	struct jm_nvjpeg *gpu; /* decodes; NULL = the host does */
	struct jm_picture_loader *loader, *eval_loader;
};

struct train {
	struct jm_work *work;
	struct train_given given;
	struct jm_values dims;
	struct jm_training training;
	bool may_keep; /* neither the user nor recomputation decides what is kept for gradients */
	bool largest;  /* --batch max: no larger batch could use the memory that is left */
	double remake; /* share of a step's time for what is recomputed; NAN = by the device */
	struct jm_lr_schedule schedule;
	struct jm_scaler scaler;
	struct jm_device device;
	struct jm_gang gang;
	struct jm_graph *graph;
	struct jm_program *program;
	struct jm_batch_feed feed;
	struct jm_tensor *now, *scale; /* scale: NULL = the loss is as it is */
	struct jm_staging settings;    /* of each step: now, scale */
	struct jm_results results;
	struct jm_evaluation eval;
	struct jm_until until;
	double eval_best; /* the least loss of an evaluation; NAN = none */
	struct jm_train_weights weights;
	struct jm_train_pictures pictures;
	uint64_t data_digest; /* of the text, or of the data set (jm_data_set_digest) */
	struct jm_step taken[JM_STEPS_UNDER_WAY]; /* done, and not returned yet */
	int n_taken;
	size_t memory;				   /* bytes that the plan may take; 0 = unknown */
	struct jm_room room;			   /* of rank 0's device */
	double open_s;				   /* that opening the device took */
	double plan_s;				   /* that choosing and planning took */
	double flops_model, flops_executed, bytes; /* of all ranks in a step */
	long first;    /* steps that were done before this run (--continue) */
	long begun;    /* steps, with these */
	long now_step; /* that is being queued, with stages */
	long steps;    /* of them done */
	double loss_first;
	double loss_begin; /* of the first micro-steps of the first step */
};

static inline double jm_train_seconds_since(int64_t start_ns)
{
	return 1e-9 * (double)(jm_clock_now(jm_clock_real()) - start_ns);
}

#endif
