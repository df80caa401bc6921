/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loss is multiplied by before its gradients, so that small ones do not vanish in a narrow
 * type (Micikevicius et al., arXiv 1710.03740): fixed, or found by trying. The constants are
 * PyTorch's.
 */
#ifndef JM_SCALER_H
#define JM_SCALER_H

#include "joulemark.h"

#define JM_SCALER_START	   65536.0
#define JM_SCALER_MOST	   0x1p100 /* 1/S times a clip factor down to 2^-26 is a normal f32 */
#define JM_SCALER_INTERVAL 2000	   /* good steps in a row, after which it doubles */
#define JM_SCALER_IN_A_ROW 20	   /* bad steps that are no longer the scale's fault */

#define JM_SCALER_LATE 2 /* steps, at most, whose outcome is known and not heeded yet */

/* Of a step. */
struct jm_outcome {
	long step;
	double scale; /* that it ran with */
	bool finite;  /* its gradient was, so it was an update; else it was skipped */
};

struct jm_scaler {
	bool dynamic;
	double start, scale;
	long good;     /* steps since the last change */
	long skipped;  /* steps without an update, in all */
	long in_a_row; /* of them the latest */
	long updates;  /* the other steps */
	struct jm_outcome late[JM_SCALER_LATE];
	int n_late;
};

/* "512", "dynamic" or "dynamic:512". */
int jm_scaler_parse(const char *text, struct jm_scaler *ret, struct jm_err *err);
/* Heeds the outcome of a step. One that was already under way when an earlier one failed does not
 * halve the scale again. */
void jm_scaler_step(struct jm_scaler *s, struct jm_outcome outcome);
/*
 * The outcome of the next step is known. A dynamic scale heeds it in jm_scaler_heed, so that it
 * changes at the same steps whenever the host waits for the device, as it does for a checkpoint.
 */
void jm_scaler_add(struct jm_scaler *s, struct jm_outcome outcome);
/* Heeds what is known of the steps before this one. */
void jm_scaler_heed(struct jm_scaler *s, long step);
/* As it is when all that is known is heeded. */
struct jm_scaler jm_scaler_known(struct jm_scaler s);
/* Called before jm_scaler_add for a gradient that is not finite: may the scale be the reason, so
 * that the step is skipped? */
bool jm_scaler_forgives(const struct jm_scaler *s);

#endif
