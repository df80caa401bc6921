/* SPDX-License-Identifier: Apache-2.0 */
/* How long native work warms up and is measured. */
#ifndef JM_WORKER_LENGTHS_H
#define JM_WORKER_LENGTHS_H

#include <jansson.h>

#include "run/workload.h"

struct jm__lengths {
	double warm_steps, warm_s; /* both must be reached */
	double steps, seconds;	   /* NAN = not given; else both must be reached */
	long epoch_steps;	   /* 0 = no epochs */
};

/* What the parameters of a case say. */
/* Is the length --epochs without --epoch-steps? */
bool jm__lengths_by_epochs(const json_t *parameters);
void jm__lengths_read(const json_t *parameters, struct jm__lengths *l, struct jm_err *err);
/* Behind setup: epochs of the data that is learnt; work that ends by itself has no warm-up unless
 * one is given. */
int jm__lengths_fit(const json_t *parameters, const struct jm_work *work, struct jm__lengths *l,
	struct jm_err *err);

#endif
