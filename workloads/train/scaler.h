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

struct jm_scaler {
	bool dynamic;
	double start, scale;
	long good;     /* steps since the last change */
	long skipped;  /* steps without an update, in all */
	long in_a_row; /* of them the latest */
};

/* "512", "dynamic" or "dynamic:512". */
int jm_scaler_parse(const char *text, struct jm_scaler *ret, struct jm_err *err);
/* Called when the outcome of a step is known. finite: its gradient was finite; used: the scale that
 * it ran with. A step that was already under way when an earlier one failed does not halve the
 * scale again. */
void jm_scaler_step(struct jm_scaler *s, double used, bool finite);
/* Called before jm_scaler_step for a gradient that is not finite: may the scale be the reason, so
 * that the step is skipped? */
bool jm_scaler_forgives(const struct jm_scaler *s);

#endif
