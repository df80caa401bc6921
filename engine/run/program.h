/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program: a graph made ready for one device.
 *
 *	jm_program_plan groups, choices, lifetimes, places: the peak is known, nothing is allocated
 *	jm_program_build    memory and executables
 *	jm_program_run      one step
 *
 * The graph and the device outlive it. A graph belongs to one program: planning settles its
 * layouts. Tensors that persist between steps belong to the weights, which several programs may
 * share.
 */
#ifndef JM_PROGRAM_H
#define JM_PROGRAM_H

#include "engine/plan/program_plan.h"

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
void jm_program_free(struct jm_program *p); /* takes NULL */

/* Read or write, between steps, whole tensors that persist (parameters, inputs, scalars...). On the
 * host they are plain, whatever their layout on the device is. The functions wait for the
 * device. */
int jm_program_write(
	struct jm_program *p, struct jm_tensor *t, const void *from, struct jm_err *err);
int jm_program_read(struct jm_program *p, const struct jm_tensor *t, void *to, struct jm_err *err);

#endif
