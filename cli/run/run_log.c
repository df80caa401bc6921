/* SPDX-License-Identifier: Apache-2.0 */
/* The log of `run`: each line is printed once, however many cases log it, and not into the live
 * line. */
#include "run_log.h"

#include "base/ctx.h"
#include "cli/frame/screen.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Was the line printed before? From now on it was. */
static bool told_before(struct jm_run_log *l, const char *line)
{
	char **grown;

	for (int i = 0; i < l->n_told; i++)
		if (!strcmp(l->told[i], line))
			return true;
	grown = reallocarray(l->told, (size_t)l->n_told + 1, sizeof(*grown));
	if (grown) {
		l->told = grown;
		grown[l->n_told] = strdup(line);
		l->n_told += grown[l->n_told] != NULL;
	}
	return false;
}

static void log_once(void *arg, enum jm_level level, const char *line)
{
	struct jm_run_log *l = arg;

	pthread_mutex_lock(&l->lock);
	if (!told_before(l, line)) {
		if (l->live)
			jm_screen_clear_line();
		l->log(l->log_arg, level, line);
	}
	pthread_mutex_unlock(&l->lock);
}

void jm_run_log_begin(struct jm_run_log *l, struct jm_ctx *ctx, bool quiet)
{
	*l = (struct jm_run_log){.ctx = ctx,
		.log = ctx->log,
		.log_arg = ctx->log_arg,
		.live = isatty(STDERR_FILENO) && !quiet};
	pthread_mutex_init(&l->lock, NULL);
	if (l->log)
		jm_ctx_set_log(ctx, log_once, l);
}

void jm_run_log_end(struct jm_run_log *l)
{
	jm_ctx_set_log(l->ctx, l->log, l->log_arg);
	for (int i = 0; i < l->n_told; i++)
		free(l->told[i]);
	free(l->told);
	pthread_mutex_destroy(&l->lock);
}
