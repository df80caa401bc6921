/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that read, decode, crop and normalise pictures ahead of the steps, or read values on
 * grids, which are called pictures, too. Sample i of epoch e depends on the seed alone: neither on
 * the number of threads or ranks, nor on where a run goes on.
 */
#ifndef JM_PICTURE_LOADER_H
#define JM_PICTURE_LOADER_H

#include "data/sets/data_set.h"
#include "data/sets/talk_rows.h"
#include "data/sets/token_rows.h"
#include "engine/graph/model.h"
#include "engine/graph/tensor.h"
#include "picture_crop.h"

/* What of each sample is loaded. */
struct jm_loader_part {
	enum jm_data_type type;
	size_t bytes;			    /* of a sample */
	enum jm_dtype value;		    /* of JM_DATA_INPUTS, JM_DATA_OUTPUTS */
	const struct jm_token_rows *tokens; /* of JM_DATA_TEXT; outlive the loader */
	const struct jm_talk_rows *talks;   /* of JM_DATA_TALK_...; the same */
};

struct jm_loader_way {
	const struct jm_data_set *set; /* outlives the loader */
	struct jm_loader_part part[JM_INPUTS_MAX];
	int parts;
	struct jm_crop crop; /* of JM_DATA_PICTURE */
	/* in training: conversations, of which each `group` in their random order are sorted by
	 * their tokens; outlive the loader; NULL = they keep that order */
	const struct jm_talk_rows *sorted;
	int64_t group; /* at least 1 */
	uint64_t seed;
	int64_t batch;
	struct jm_nvjpeg *gpu; /* decodes JPEG files; NULL = the host does; outlives the loader */
	int threads;	       /* at least 1 */
	size_t memory;	       /* bytes that batches ahead may take; 2 are made at least */
	int world;	       /* batches number, number + world... are taken; at least 1 */
	/* a damaged file is an error; else another picture takes its place, and it is counted */
	bool strict;
	/*
	 * 0, training: each epoch is a new random order of all pictures, and batches go on over its
	 * end. Else of an evaluation, which then begins anew: pictures in their order; places of
	 * damaged pictures and those behind the last one hold the first picture that can be read.
	 */
	int64_t batches;
};

/* Since the loader was opened. */
struct jm_loader_cost {
	int64_t pictures;		 /* decoded */
	int64_t by[JM_PICTURE_BY_COUNT]; /* of these; of grids none */
	int64_t engine_failed;		 /* the GPU's engine for JPEG did, at pictures */
	int64_t bytes;			 /* of their files */
	int64_t corrupt;		 /* files that could not be read */
	int64_t fillers;     /* of the samples that were taken: not the picture of their place */
	double decode_s;     /* of all threads: reading, decoding, cropping */
	double decode_cpu_s; /* the processor time of these threads in it */
	double wait_s;	     /* that jm_picture_loader_take waited */
	int depth;	     /* batches that may be prepared ahead */
};

struct jm_picture_loader;

/* JM_EFORMAT: no picture can be read. */
int jm_picture_loader_open(
	const struct jm_loader_way *way, struct jm_picture_loader **ret, struct jm_err *err);
void jm_picture_loader_close(struct jm_picture_loader *l); /* takes NULL */

/*
 * The batch of micro-step `number`, counted over all ranks: to[parts], each [batch] of what a part
 * has. Those that follow are being prepared, more of them once it had to wait although the threads
 * had stood idle; another one than the next is prepared anew. JM_EFORMAT, JM_ENOENT: strict, and a
 * file is damaged or vanished.
 */
int jm_picture_loader_take(
	struct jm_picture_loader *l, int64_t number, void *const to[], struct jm_err *err);

struct jm_loader_cost jm_picture_loader_cost(struct jm_picture_loader *l);

/* Batches that have all pictures, and one more, which holds the first one alone. */
int64_t jm_loader_batches(const struct jm_data_set *set, int64_t batch);

#endif
