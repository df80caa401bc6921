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

/* A group and the choice that was made for it. */
struct jm_unit {
	struct jm_group group; /* the first member, so that a unit and its group have one address */
	int position;	       /* in the program */
	struct jm_choice choice;
	struct jm_tensor *scratch, *saved; /* NULL = none */
	void *exec;
};

/* The parts of a step: units that run only after parameters were written, units before all
 * micro-steps, in each micro-step, and after the last one. */
enum jm_span { JM_SPAN_KEPT, JM_SPAN_ONCE, JM_SPAN_MICRO, JM_SPAN_UPDATE, JM_SPAN_COUNT };

/* Consecutive units that are started together: recorded as one exec, or one by one. */
struct jm_stretch {
	int from, to;
	void *captured; /* NULL = the units run one by one */
};

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
	bool has_arena; /* an own arena, because that of the weights was allocated before */
	/* of all units; a stretch ends at a span's end and at a sum over ranks */
	struct jm_stretch *stretch;
	int n_stretches;
	struct jm_tensor *gradients[2]; /* the slabs of gradients; NULL = none */
	int micro_now;			/* micro-steps begun in this step */
	int64_t copied; /* weights->written when the kept copies were made; -1 = never */
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

int jm_program_plan(
	struct jm_graph *g, struct jm_device *device, struct jm_program **ret, struct jm_err *err);
/* Plans another program on the weights of one that is planned already: evaluation beside
 * training. */
int jm_program_plan_beside(struct jm_graph *g, const struct jm_program *other,
	struct jm_program **ret, struct jm_err *err);
/* The bytes that both programs together need on the device. */
size_t jm_program_peak_beside(const struct jm_program *p, const struct jm_program *other);
int jm_program_build(struct jm_program *p, struct jm_err *err);
/* Runs all units and waits for the device: a step of one micro-step. */
int jm_program_run(struct jm_program *p, struct jm_err *err);
/* A step of one or several micro-steps: begin; for each micro-step write its inputs and call micro;
 * then update. The functions queue the work; an event, or jm_device_sync, tells when it is done. */
int jm_program_begin(struct jm_program *p, struct jm_err *err);
int jm_program_micro(struct jm_program *p, struct jm_err *err);
int jm_program_update(struct jm_program *p, struct jm_err *err);
/* Runs one unit; used by reduce.c. */
int jm_program_run_unit(struct jm_program *p, int unit, struct jm_err *err);
/* find_nonfinite.c: runs a micro-step and checks every value. 1 = a value is not finite, and ret
 * holds a clause that says where the first one appeared; 0 = all are finite. */
int jm_program_find_nonfinite(struct jm_program *p, char *ret, size_t size, struct jm_err *err);
void jm_program_free(struct jm_program *p); /* takes NULL */

/* Read or write, between steps, whole tensors that persist (parameters, inputs, scalars...). On the
 * host they are plain, whatever their layout on the device is. The functions wait for the
 * device. */
int jm_program_write(
	struct jm_program *p, struct jm_tensor *t, const void *from, struct jm_err *err);
int jm_program_read(struct jm_program *p, const struct jm_tensor *t, void *to, struct jm_err *err);
/* Writes the start values of all parameters, rounded to f32 in every precision; the same seed gives
 * the same values. */
int jm_program_init(struct jm_program *p, uint64_t seed, struct jm_err *err);

/* ---- the passes, each a file ----------------------------------------------------------------------- */

/* Who names each tensor, when the graph had n_nodes nodes: the number of operands, and the last node. By id. */
struct jm_uses {
	int n_nodes, *count, *last;
};

/*
 * group.c: the number of nodes of the largest cover that begins at graph->node[i] and ends before
 * node[end]. Marks internal tensors as virtual.
 */
int jm_group_cover(struct jm_graph *g, int i, int end, const struct jm_uses *uses);
void jm_group_uncover(struct jm_graph *g, int i, int n);
/* The result of the group that may replace the first operand of its first node; NULL = none. */
struct jm_tensor *jm_group_replaces(const struct jm_group *group);
/* The bytes of all operands of the group's nodes; those of an operand that they share count once. */
double jm_group_bytes(const struct jm_group *group);
/* The linear-wgrad that may join the group that begins with node i, to compute the gradient of its bias; NULL = there is
 * none. */
const struct jm_node *jm_group_wgrad(const struct jm_graph *g, int i);
/* schedule.c: moves recomputed nodes to directly before their first readers */
int jm_graph_schedule(struct jm_graph *g, struct jm_err *err);
/* schedule.c: true if a and then b give the same results as b and then a: neither writes what the other uses */
bool jm_nodes_may_swap(const struct jm_node *a, const struct jm_node *b);
/* A group of canonical nodes and the choice for it. */
struct jm_advice {
	struct jm_group group;
	struct jm_choice choice;
	/* false: the backend refused the group in the search; select is called again */
	bool chosen;
	/* bits: the results that the node writes to separate tensors, because the backend cannot
	 * add to them; other nodes add them */
	unsigned apart;
	bool narrow; /* the first result is written in the type of the operands */
};
/* layout_search.c: finds the choices of n groups with the lowest total cost; does not change the
 * graph */
int jm_program_search_layouts(
	struct jm_program *p, struct jm_advice *advice, int n, struct jm_err *err);
/*
 * cost.c: seconds of a choice, including reorders of operands from their current layouts; infinite
 * if the layouts of results are not allowed. c NULL: the group is refused, and its nodes run one by
 * one. apart: bits, the sums of a single node that separate nodes add.
 */
double jm_choice_cost(const struct jm_program *p, const struct jm_group *group,
	const struct jm_choice *c, unsigned apart);
/* True for a copy that no group has read yet, whose layout can still change. */
bool jm_choice_is_open(const struct jm_program *p, const struct jm_tensor *t);
/* param_layout.c: layouts of parameters and their gradients */
void jm_program_lay_parameters(struct jm_program *p);
/* apply_choices.c: fills p->unit */
int jm_program_apply_choices(struct jm_program *p, struct jm_err *err);
/* keep_copies.c: lets the update write copies of parameters, where the device has memory of its own */
int jm_program_keep_copies(struct jm_program *p, struct jm_err *err);
/* hoist_copies.c: moves copies of parameters before the micro-steps if there are several, and sets
 * their lifetime */
int jm_program_hoist_copies(struct jm_program *p, struct jm_err *err);
void jm_program_keep_hoisted(struct jm_program *p);
/* schedule.c: finds the order of units, with its liveness and places */
int jm_program_schedule(struct jm_program *p, struct jm_err *err);
/* arena.c: liveness and places for the current order of units */
int jm_program_places(struct jm_program *p, struct jm_err *err);
/* liveness.c: first, last and alias of every cell */
void jm_program_liveness(struct jm_program *p);
/* arena.c: the largest number of bytes that are live at a unit, a lower bound of the arena, and
 * that unit; whether a tensor is live at a unit */
size_t jm_program_live(const struct jm_program *p, int *ret_unit);
bool jm_program_is_live(const struct jm_cell *c, int unit);

#endif
