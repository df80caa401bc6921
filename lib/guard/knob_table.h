/* SPDX-License-Identifier: Apache-2.0 */
/* All opened controls and their knobs as one table. Used by the guard and by those who only look. */
#ifndef JM_KNOB_TABLE_H
#define JM_KNOB_TABLE_H

#include "guard/control.h"

#define JM_SPEC_MAX 96 /* "sim:h100x4", "nvml:all" */

struct jm_board_member {
	const struct jm_control *control;
	void *state;
	char restore_spec[JM_SPEC_MAX]; /* opens its devices again, in whatever environment */
	int first, n;			/* its knobs in the table */
};

struct jm_board {
	struct jm_knobs knobs;
	struct jm_board_member *member;
	int n;
};

/* specs: "nvml", "sim:h100x4", several with commas; NULL = all of the machine itself that open. */
int jm_board_open(struct jm_ctx *ctx, const char *specs, struct jm_board *ret, struct jm_err *err);
void jm_board_close(struct jm_board *board);
/* Knob i of the table; requested and enforced as in jm_control.get. */
int jm_board_get(const struct jm_board *board, int i, double *ret_requested, double *ret_enforced,
	struct jm_err *err);
int jm_board_set(const struct jm_board *board, int i, double value, struct jm_err *err);
const struct jm_board_member *jm_board_member_of(const struct jm_board *board, int i);
/* The index of a knob by name and device, or -1. */
int jm_board_find(const struct jm_board *board, const char *knob, const char *device);

#endif
