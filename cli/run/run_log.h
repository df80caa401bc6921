/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_CLI_RUN_LOG_H
#define JM_CLI_RUN_LOG_H

#include "joulemark.h"

#include <pthread.h>
#include <stdbool.h>

struct jm_run_log {
	struct jm_ctx *ctx;
	void (*log)(void *arg, enum jm_level level, const char *line);
	void *log_arg;
	bool live; /* stderr shows a live line */
	pthread_mutex_t lock;
	char **told;
	int n_told;
};

/* Takes over the context's log until jm_run_log_end. No guard may be there at either, because its
 * thread logs. */
void jm_run_log_begin(struct jm_run_log *l, struct jm_ctx *ctx, bool quiet);
void jm_run_log_end(struct jm_run_log *l);

#endif
