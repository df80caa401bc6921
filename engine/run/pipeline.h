/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the micro-steps of a rank that has one stage of a model (graph/pipeline_parallel.h), in the
 * turns of plan/pipe_schedule.h. The units of a chunk are built once for each of its slots, because
 * addresses differ. Transfers are on the device's compute queue, or in host memory.
 */
#ifndef JM_PIPELINE_H
#define JM_PIPELINE_H

#include "comm/comm.h"
#include "engine/plan/program_plan.h"

/* What the caller does before each part of micro-step `micro`, and when its loss is known. */
struct jm_pipeline_hooks {
	int (*before)(void *arg, int micro, struct jm_err *err);
	int (*loss)(void *arg, int micro, struct jm_err *err);
	void *arg;
};

/* Builds all units of a program with stages, as part of jm_program_build. */
int jm_pipeline_build(struct jm_program *p, struct jm_err *err);
void jm_pipeline_free(struct jm_program *p); /* a program without stages is allowed */
/* comm: of all ranks, open as long as the program; the rank of the next stage is `apart` higher. */
int jm_pipeline_open(
	struct jm_program *p, const struct jm_comm *comm, int apart, struct jm_err *err);
/* Bytes that the rank sends to other stages in a step. */
double jm_pipeline_sent(const struct jm_program *p);
/* Mean of the steps so far: seconds of a step that the rank waits for other stages, exchanges
 * included; NAN = unknown, or there are no stages. Waits for the device. */
double jm_pipeline_waited(struct jm_program *p);
void jm_pipeline_reset(struct jm_program *p); /* discards the steps so far */
/* All micro-steps of a step, between jm_program_begin and jm_program_update. */
int jm_pipeline_run(
	struct jm_program *p, const struct jm_pipeline_hooks *hooks, struct jm_err *err);

#endif
