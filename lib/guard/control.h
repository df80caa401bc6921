/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a control: one file = one kind of knob (power limit, clock...). Only the guard writes. */
#ifndef JM_CONTROL_H
#define JM_CONTROL_H

#include "meter/meter.h"
#include "meter/source.h"

/* One knob of one device. */
struct jm_knob {
	char name[32];		/* "gpu.power" */
	char unit[8];		/* "W" */
	char device[JM_ID_MAX]; /* stable id: GPU UUID, sysfs path */
	char label[64];		/* "GPU 0 NVIDIA H200" */
	double min, max, step;	/* in unit; step 0 = any */
	double fallback;	/* the vendor's default; NAN = unknown */
};

struct jm_knobs {
	struct jm_knob *knob;
	int n;
};

struct jm_control {
	const char *name;
	const char *summary;
	const char *argument; /* what may follow "name:"; NULL = nothing */
	enum jm_origin
		origin; /* JM_MEASURED = acts on the machine, JM_SIMULATED = on the simulated node */
	/* The argument that selects every device again, independent of the current environment;
	 * NULL = the one that was given. */
	const char *restore_argument;
	bool lost_at_reboot; /* a reboot resets every knob to its default */
	int (*open)(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
		struct jm_err *err);
	/* i: index among the knobs this control added. accepted: the requested value that the
	 * device accepted, which a restore sets again; enforced: the value that the device applies
	 * now (NAN = unknown). */
	int (*get)(
		void *state, int i, double *ret_accepted, double *ret_enforced, struct jm_err *err);
	int (*set)(void *state, int i, double value, struct jm_err *err);
	void (*close)(void *state);					   /* takes NULL */
	void (*doctor)(struct jm_ctx *ctx, jm_finding_fn *say, void *arg); /* optional */
};

extern const struct jm_control *const jm_controls[]; /* NULL-terminated, generated */

const struct jm_control *jm_control_find(const char *name, struct jm_err *err);
int jm_knobs_add(struct jm_knobs *set, const struct jm_knob *knob, struct jm_err *err);
void jm_knobs_done(struct jm_knobs *set);

#endif
