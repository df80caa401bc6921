/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program: a graph made ready for one device.
 *
 *	jm_program_plan     groups, choices, lifetimes, places: the peak is known, nothing is allocated
 *	jm_program_build    memory and executables
 *	jm_program_run      one step
 *
 * The graph and the device outlive it. A graph belongs to one program: planning settles its
 * layouts. Tensors that persist between steps belong to the weights, which several programs may
 * share.
 */
#ifndef JM_PROGRAM_H
#define JM_PROGRAM_H

#include "device.h"
#include "graph.h"
#include "weights.h"

/* A group with what was decided for it. */
struct jm_unit {
	struct jm_group group; /* first: a unit's group and the unit have one address */
	int position;	       /* in the program */
	struct jm_choice choice;
	struct jm_tensor *scratch, *saved; /* NULL = none */
	void *exec;
};

/* Units that run at a time: before all micro-steps, in each of them, behind the last. */
enum jm_span { JM_SPAN_ONCE, JM_SPAN_MICRO, JM_SPAN_UPDATE, JM_SPAN_COUNT };

/* Units that follow each other and run at a time: recorded as one exec, or one by one. */
struct jm_stretch {
	int from, to;
	void *captured; /* NULL = unit by unit */
};

struct jm_program {
	struct jm_graph *graph;
	struct jm_device *device;
	struct jm_unit **unit; /* in the order of running */
	int n_units, cap_units;
	int n_once;  /* units that run once before all micro-steps */
	int n_micro; /* those and the units of a micro-step; what is behind them is the update */
	/* bytes: what stays between steps, what is planned over the step, both together */
	size_t persistent_bytes, arena_bytes, peak_bytes;
	size_t class_bytes
		[JM_CLASS_COUNT]; /* sums over tensors; those of the arena overlap in time */
	/* per step */
	double flops_model, flops_executed, bytes;
	struct jm_weights *weights;
	bool is_first;	     /* of its weights: it says what there is */
	size_t weight_bytes; /* where the program's own memory begins, as offsets of cells count */
	char *memory;	     /* inputs and scalars */
	char *arena;
	bool gradients_move; /* they are in the arena, each from its first unit to the step's end */
	bool has_arena; /* of its own: that of the weights was made before this program was known */
	struct jm_stretch *stretch; /* of all units; none crosses a span, nor a sum over ranks */
	int n_stretches;
	struct jm_tensor *gradients[2]; /* their slabs; NULL = there is none */
	int micro_now;			/* micro-steps of this step that were begun */
	struct jm_reduction *reduction; /* reduce.h; NULL = one rank */
	struct jm_profile *profile;	/* profile.h; NULL = times are not taken */
	const int *uses; /* during select: operands that name each tensor of the canonical graph */
	struct jm_unit **unit_of; /* during select, [node]: the unit it is in; NULL = in none yet */
	int cap_unit_of;
};

/* At least 1. */
static inline int jm_program_micro_steps(const struct jm_program *p)
{
	return jm_graph_micro_steps(p->graph);
}

/* How often the unit runs in a step. */
static inline int jm_program_times(const struct jm_program *p, int unit)
{
	return unit >= p->n_once && unit < p->n_micro ? jm_program_micro_steps(p) : 1;
}

int jm_program_plan(
	struct jm_graph *g, struct jm_device *device, struct jm_program **ret, struct jm_err *err);
/* One more program on the weights of another, which was planned before: evaluation beside training. */
int jm_program_plan_beside(struct jm_graph *g, const struct jm_program *other,
	struct jm_program **ret, struct jm_err *err);
/* Bytes of both together on the device. */
size_t jm_program_peak_beside(const struct jm_program *p, const struct jm_program *other);
int jm_program_build(struct jm_program *p, struct jm_err *err);
/* Runs all units and waits for the device: a step of one micro-step. */
int jm_program_run(struct jm_program *p, struct jm_err *err);
/* A step of one or several micro-steps: begin, then for each its inputs and micro, then update. They only
 * queue the work; an event, or jm_device_sync, tells when it is done. */
int jm_program_begin(struct jm_program *p, struct jm_err *err);
int jm_program_micro(struct jm_program *p, struct jm_err *err);
int jm_program_update(struct jm_program *p, struct jm_err *err);
/* reduce.c: a unit by itself */
int jm_program_run_unit(struct jm_program *p, int unit, struct jm_err *err);
/* find_nonfinite.c: in place of micro, looks at every value that it makes. 1 and half a sentence on where the first
 * that is not finite appeared; 0 = all are finite. */
int jm_program_find_nonfinite(struct jm_program *p, char *ret, size_t size, struct jm_err *err);
void jm_program_free(struct jm_program *p); /* takes NULL */

/* Between steps: tensors that stay (parameters, inputs, scalars...), whole; for the host they
 * are plain, whatever their layout on the device is. The functions wait for the device. */
int jm_program_write(
	struct jm_program *p, struct jm_tensor *t, const void *from, struct jm_err *err);
int jm_program_read(struct jm_program *p, const struct jm_tensor *t, void *to, struct jm_err *err);
/* Start values of all parameters, rounded to f32 whatever the precision; the same for the same seed. */
int jm_program_init(struct jm_program *p, uint64_t seed, struct jm_err *err);

/* ---- the passes, each a file ----------------------------------------------------------------------- */

/* group.c: how many nodes from graph->node[i] on, and before node[end], the largest cover takes. uses:
 * how many operands name each tensor, by id. Marks the tensors inside as virtual. */
int jm_group_cover(struct jm_graph *g, int i, int end, const int *uses);
void jm_group_uncover(struct jm_graph *g, int i, int n);
/* schedule.c: nodes that are made again to right before their first readers */
int jm_graph_schedule(struct jm_graph *g, struct jm_err *err);
/* A group of canonical nodes and what was chosen for it. */
struct jm_advice {
	struct jm_group group;
	struct jm_choice choice;
	bool chosen; /* false: the backend refused where it was asked; ask again */
	unsigned
		apart; /* the choice is for the node without these results, as bits, which nodes of their own
			 * bring home: sums that the backend cannot add, */
	bool narrow; /* and the first, which it writes in the type of its operands */
};
/* layout_search.c: the choices of n groups that together cost least; leaves the graph as it is */
int jm_program_search_layouts(
	struct jm_program *p, struct jm_advice *advice, int n, struct jm_err *err);
/* cost.c: seconds of a choice with the reorders of operands as they lie now; infinite where results cannot
 * be left so. c NULL: the group is refused, its nodes run one by one. apart: as bits, the sums of a single
 * node that are added by nodes of their own. */
double jm_choice_cost(const struct jm_program *p, const struct jm_group *group,
	const struct jm_choice *c, unsigned apart);
/* A copy that no group has read yet may still be made in another layout. */
bool jm_choice_is_open(const struct jm_program *p, const struct jm_tensor *t);
/* param_layout.c: layouts of parameters and their gradients */
void jm_program_lay_parameters(struct jm_program *p);
/* apply_choices.c: fills p->unit */
int jm_program_apply_choices(struct jm_program *p, struct jm_err *err);
/* hoist_copies.c: copies of parameters before the micro-steps, where there are several; and how long they live */
int jm_program_hoist_copies(struct jm_program *p, struct jm_err *err);
void jm_program_keep_hoisted(struct jm_program *p);
/* schedule.c: the order of units; liveness and places of the best that was found */
int jm_program_schedule(struct jm_program *p, struct jm_err *err);
/* arena.c: liveness and places in the order that the units have now */
int jm_program_places(struct jm_program *p, struct jm_err *err);
/* liveness.c: first, last and alias of every cell */
void jm_program_liveness(struct jm_program *p);
/* arena.c: the most bytes planned over the step that are alive at a time, below which no arena can be, and
 * the unit where they are; whether a tensor is among those alive at a unit */
size_t jm_program_live(const struct jm_program *p, int *ret_unit);
bool jm_program_is_live(const struct jm_cell *c, int unit);

#endif
