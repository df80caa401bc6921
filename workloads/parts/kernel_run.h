/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workloads of a few nodes share: a device and a graph that runs as often as it is asked,
 * operands of known values, steps that follow each other without a gap on devices that work by
 * themselves.
 *
 *	open     the device, an empty graph of the case's precision
 *	         ...the workload declares its nodes...
 *	ready    plan, memory, executables
 */
#ifndef JM_KERNEL_RUN_H
#define JM_KERNEL_RUN_H

#include "engine/run/program.h"
#include "run/workload.h"

#define JM_KERNEL_UNDER_WAY 2 /* steps at most: one that runs, one that waits for it */

struct jm_kernel {
	struct jm_work *work;
	int threads; /* on the host's processors; 0 = all that may be used */
	struct jm_device device;
	struct jm_graph *graph; /* its compute type and math are the precision's */
	enum jm_dtype
		factor; /* of products: e4m3 in fp8, whose results are bf16; else the compute type */
	struct jm_program *program;
	struct jm_step
		each; /* result of a step; the workload sets items, and values that differ from the plan's */
	struct jm_event done[JM_KERNEL_UNDER_WAY];
	uint64_t *
		stamp; /* [JM_KERNEL_UNDER_WAY], pinned: when a step was done; NULL = no time stamps */
	int first, under_way;
	long steps; /* that are done */
};

/* For a workload's check: the device and the precision's name; bf16-true has no meaning without
 * masters, and fp8 only for products. */
int jm_kernel_check(const char *device, const char *precision, struct jm_err *err);
int jm_kernel_check_products(const char *device, const char *precision, struct jm_err *err);
/* As a workload's setup: zeroed state of that size, which begins with its struct jm_kernel; options
 * are filled in. */
int jm_kernel_setup(struct jm_work *work, size_t size,
	int (*prepare)(void *state, struct jm_work *work, struct jm_err *err),
	void (*teardown)(void *state), void **ret_state, struct jm_err *err);
/* With the option JM_KERNEL_THREADS. */
int jm_kernel_open(struct jm_kernel *k, struct jm_work *work, struct jm_err *err);
int jm_kernel_ready(struct jm_kernel *k, struct jm_err *err);
/* Queues the nodes once on the compute queue, for a workload that counts its steps in k->steps
 * itself. */
int jm_kernel_queue(struct jm_kernel *k, struct jm_err *err);
/* A workload's own step, finish and, where it has nothing else, teardown. state: begins with a
 * jm_kernel. */
int jm_kernel_step(void *state, struct jm_step *ret, struct jm_err *err);
int jm_kernel_finish(void *state, struct jm_step *ret, struct jm_err *err);
void jm_kernel_teardown(void *state); /* takes NULL */

/* STRUCT: the workload's, with a struct jm_kernel kernel */
#define JM_KERNEL_THREADS(STRUCT)                                                                  \
	{                                                                                          \
		.name = "threads", JM_BIND(JM_INT, STRUCT, kernel.threads), .min = 0, .max = 1e5,  \
		.fallback = "0",                                                                   \
		.help = "threads on the host's processors; 0 = all that may be used"               \
	}

#define JM_KERNEL_SECONDS 0.02
/*
 * How often nodes of `flops` and `bytes` should stand in a step that is to take JM_KERNEL_SECONDS
 * at the device's peak, so that the host's part does not count; 1 to 256, and 1 where the peak is
 * not known.
 */
int jm_kernel_repeat(const struct jm_kernel *k, double flops, double bytes);

/* ---- operands -------------------------------------------------------------------------------- */

enum jm_values_kind { JM_VALUES_RANDOM, JM_VALUES_ZEROS, JM_VALUES_ONES, JM_VALUES_SPARSE };
extern const char *const jm_values_kinds[]; /* "random"..., NULL-terminated */

/* Random: normal with deviation 1, rounded to the type. Sparse: a share of them is zero. They
 * repeat after a prime number of elements, about 16.8 million. */
struct jm_operand {
	enum jm_values_kind kind;
	double share; /* sparse: of zeros */
	uint64_t seed;
};
double jm_operand_value(const struct jm_operand *o, enum jm_dtype type, int64_t i);
int jm_operand_write(
	struct jm_kernel *k, const struct jm_operand *o, struct jm_tensor *t, struct jm_err *err);

/* What a tensor holds when at least one step is done, to be freed; NULL and a reason. */
void *jm_kernel_read(struct jm_kernel *k, const struct jm_tensor *t, struct jm_err *err);

/* ---- verification ---------------------------------------------------------------------------- */

/* By how much a sum of products may be off that is `value` by f64 and whose terms' sizes add up to
 * `size`: the rounding of the result, and that of operands and sums by type and math. */
double jm_product_tolerance(const struct jm_kernel *k, double value, double size);

#endif
