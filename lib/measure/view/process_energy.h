/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The energy of processors and GPUs divided among the processes that run now, from look to look:
 * that of processors by processor time, that of a GPU by its use as its driver reports it. An
 * estimate: every second of processor time, and every use of a GPU, is assumed to draw the same
 * power at one moment. A process that has ended leaves the list.
 */
#ifndef JM_PROCESS_ENERGY_H
#define JM_PROCESS_ENERGY_H

#include "measure/command/running.h"
#include "measure/session/session.h"

struct jm_process_energy;

struct jm_process_row {
	pid_t pid;
	bool outside;	   /* a driver named it, and its id is one of another namespace than ours */
	char name[32];	   /* its kernel's name for it: "python3"; "" = unknown */
	double processors; /* that it kept busy since the look before: 1.0 = one; NAN = unknown */
	double use;	   /* of its GPUs together, 1.0 = one; NAN = unknown, or it uses none */
	double bytes;	   /* of the memory of GPUs; NAN = unknown, or it uses none */
	double joules;	   /* since the first look; NAN = unknown, or no meter reads what it uses */
	int n_devices;
	int device; /* meter of the first GPU that it uses; -1 = none */
};

/* Both must outlive it. The session has started. */
int jm_process_energy_new(struct jm_ctx *ctx, struct jm_session *s, struct jm_running *running,
	struct jm_process_energy **ret, struct jm_err *err);
/* Reads all processes and asks the drivers; within a second of the look before it does nothing.
 * JM_ENOMEM alone. */
int jm_process_energy_look(struct jm_process_energy *p, struct jm_err *err);
/* By process id; valid until the next look. */
const struct jm_process_row *jm_process_energy_rows(const struct jm_process_energy *p, int *ret_n);
/* Why the processes of a GPU are not known, for the first such GPU; "" = all are. */
const char *jm_process_energy_note(const struct jm_process_energy *p);
void jm_process_energy_free(struct jm_process_energy *p); /* takes NULL */

#endif
