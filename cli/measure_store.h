/* SPDX-License-Identifier: Apache-2.0 */
/* A measurement in a store: a case of the command, one more repeat each time. */
#ifndef JM_MEASURE_STORE_H
#define JM_MEASURE_STORE_H

#include "base/option.h"
#include "run/plan.h"
#include "store/store.h"

struct jm_measure_store {
	struct jm_store *store; /* NULL = none */
	bool is_new;		/* the file was made by this call */
	bool finished;		/* the record is stored */
	struct jm_plan plan;
	json_t *job;
};

/* How items are found in a command's output (regex, json, unit), as in the request of a plan. */
json_t *jm_command_throughput(const struct jm_values *values);
/* command, throughput: as in the request of a plan. Takes both. */
int jm_measure_store_open(struct jm_measure_store *s, const char *path, json_t *command,
	json_t *throughput, struct jm_err *err);
/* When the meters are known; then each chunk of the trace. */
int jm_measure_store_begin(
	struct jm_measure_store *s, const struct jm_meters *meters, struct jm_err *err);
int jm_measure_store_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err);
/* Makes the record one of a case, and stores it. */
int jm_measure_store_finish(struct jm_measure_store *s, json_t *record, struct jm_err *err);
/* A store that was made for nothing is removed. */
int jm_measure_store_close(struct jm_measure_store *s, struct jm_err *err);

#endif
