/* SPDX-License-Identifier: Apache-2.0 */
#include "top_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int jm_top_history_new(struct jm_top_history *h, int n_meters, struct jm_err *err)
{
	h->watts = calloc((size_t)n_meters + 1, sizeof(*h->watts));
	if (!h->watts)
		return jm_err_set(
			err, JM_ENOMEM, "Out of memory for the history of %d meters.", n_meters);
	h->n_meters = n_meters;
	for (int i = 0; i < n_meters; i++)
		for (int k = 0; k < JM_TOP_HISTORY; k++)
			h->watts[i][k] = NAN;
	return 0;
}

void jm_top_history_take(struct jm_top_history *h, struct jm_running *running)
{
	for (int i = 0; i < h->n_meters; i++) {
		memmove(h->watts[i], h->watts[i] + 1, sizeof(h->watts[i]) - sizeof(double));
		h->watts[i][JM_TOP_HISTORY - 1] = jm_running_of(running, i).watts;
	}
}

void jm_top_history_done(struct jm_top_history *h)
{
	free(h->watts);
	h->watts = NULL;
}

const char *jm_top_sort_name(enum jm_top_sort sort)
{
#define X(name, text) text,
	static const char *const names[] = {JM_TOP_SORTS(X)};
#undef X

	return names[sort];
}
