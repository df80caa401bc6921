/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a program: groups of nodes with their choices, in the order of execution, and their
 * places in memory. The passes of this room make it, each a file with its header; nothing is
 * allocated.
 */
#ifndef JM_PROGRAM_PLAN_H
#define JM_PROGRAM_PLAN_H

#include "engine/device/device.h"
#include "engine/device/weights.h"
#include "engine/graph/group.h"
#include "pipe_schedule.h"

/* A group and the choice that was made for it. */
struct jm_unit {
	struct jm_group group; /* the first member, so that a unit and its group have one address */
	int position;	       /* in the program */
	struct jm_unit *wait;  /* of an exchange beside computation: the unit that awaits it */
	const struct jm_node *awaited; /* the exchange that this unit awaits; NULL = none */
	struct jm_choice choice;
	struct jm_tensor *scratch, *saved; /* NULL = none */
	void *exec;
};

/* The parts of a step: units that run only after parameters were written, units before all
 * micro-steps, in each micro-step, and after the last one. */
enum jm_span { JM_SPAN_KEPT, JM_SPAN_ONCE, JM_SPAN_MICRO, JM_SPAN_UPDATE, JM_SPAN_COUNT };

/* What a rank with one of several stages keeps of micro-steps under way (pipe_schedule.h). The
 * units of each part of a micro-step follow each other: the forward passes of all chunks, then the
 * gradients of the last chunk, and so on to the first. */
struct jm_stage {
	struct jm_pipe pipe; /* stages 0: one rank has the whole model */
	struct jm_pipe_turn *turn;
	int n_turns;
	int end[2 * JM_CHUNKS_MOST]; /* units up to the end of each part */
	struct jm_stage_slots {
		int slots;
		size_t from, bytes; /* in the program's memory: the first slot, and each */
	} chunk[JM_CHUNKS_MOST];
	struct jm_tensor *in[2 * JM_CHUNKS_MOST], *out[2 * JM_CHUNKS_MOST]; /* of each part, or
									     * NULL */
};

/* Consecutive units that are started together: recorded as one exec, or one by one. */
struct jm_stretch {
	int from, to;
	void *captured; /* NULL = the units run one by one */
};

/* Bytes of a slab of gradients that belong to no gradient. */
struct jm_gap {
	const struct jm_tensor *slab;
	size_t from, bytes;
};
#define JM_GAPS_MOST 8 /* each is cleared in every step */

struct jm_program {
	struct jm_graph *graph;
	struct jm_device *device;
	struct jm_unit **unit; /* in the order of execution */
	int n_units, cap_units;
	int n_kept; /* units that make the copies which the update keeps up to date */
	int n_once; /* n_kept plus the units that run once before all micro-steps */
	/* n_once plus the units of a micro-step; the units after them are the update */
	int n_micro;
	/* bytes that persist between steps, bytes of the arena, and their sum */
	size_t persistent_bytes, arena_bytes, peak_bytes;
	size_t class_bytes
		[JM_CLASS_COUNT]; /* sums over tensors; those in the arena share memory over time */
	/* per step */
	double flops_model, flops_executed, bytes;
	struct jm_weights *weights;
	bool is_first;	     /* the first program of its weights, which defines their set */
	size_t weight_bytes; /* the offset of cells at which the program's own memory begins */
	char *memory;	     /* inputs and scalars */
	char *arena;
	/* gradients are in the arena, from their first unit to the step's end */
	bool gradients_move;
	struct jm_gap gap[JM_GAPS_MOST]; /* if they do: zero in every step */
	int n_gaps;
	bool has_arena; /* an own arena, because that of the weights was allocated before */
	/* of all units; a stretch ends at a span's end and at a sum over ranks */
	struct jm_stretch *stretch;
	int n_stretches;
	struct jm_tensor *gradients[2]; /* the slabs of gradients; NULL = none */
	int micro_now;			/* micro-steps begun in this step */
	int64_t copied; /* weights->written when the kept copies were made; -1 = never */
	struct jm_stage stage;
	struct jm_pipeline *pipeline;	/* pipeline.h; NULL = one stage */
	struct jm_waits *stage_waits;	/* for other stages (waits.h); NULL = one stage */
	struct jm_reduction *reduction; /* reduce.h; NULL = one rank */
	struct jm_profile *profile;	/* profile.h; NULL = times are not taken */
	const struct jm_uses *uses;	/* during select */
	struct jm_unit **unit_of; /* during select, [node]: the unit of the node; NULL = none yet */
	int cap_unit_of;
};

/* At least 1. */
static inline int jm_program_micro_steps(const struct jm_program *p)
{
	return jm_graph_micro_steps(p->graph);
}

/* The number of times that the unit runs in a step; 0: only after parameters were written. */
static inline int jm_program_times(const struct jm_program *p, int unit)
{
	if (unit < p->n_kept)
		return 0;
	return unit >= p->n_once && unit < p->n_micro ? jm_program_micro_steps(p) : 1;
}

#endif
