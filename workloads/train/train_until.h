/* SPDX-License-Identifier: Apache-2.0 */
/* Training until an evaluation finds a figure: --until top1=0.98, --until loss=0.3. */
#ifndef JM_TRAIN_UNTIL_H
#define JM_TRAIN_UNTIL_H

#include "run/workload.h"
#include "train_eval.h"

enum jm_until_figure { JM_UNTIL_NOTHING, JM_UNTIL_TOP1, JM_UNTIL_LOSS };

struct jm_until {
	const char *given; /* as the user gave it; NULL = it was not */
	enum jm_until_figure figure;
	double target;	  /* top1: at least; loss: at most */
	double best;	  /* that an evaluation found; NAN = none did */
	int64_t begun_ns; /* the first step, by the machine's clock; 0 = none yet */
	long steps;	  /* of this run until it was reached; 0 = it was not */
};

/* Reads what is given, if anything; JM_EUSAGE: it is no figure with its target. */
int jm_until_parse(struct jm_until *u, struct jm_err *err);
/* The same of a text alone, for the row of the option. */
int jm_until_check(const char *text, struct jm_err *err);
/* "top1 of 0.98" */
const char *jm_until_text(const struct jm_until *u, char *out, size_t size);
/* An evaluation behind so many steps of this run. True: what it found is enough. */
bool jm_until_judge(struct jm_until *u, const struct jm_evaluated *e, long steps);
/* Of a run of so many steps to its record. What is not reached is said, and has neither steps nor
 * seconds. */
void jm_until_keep(const struct jm_until *u, struct jm_work *work, long steps);

#endif
