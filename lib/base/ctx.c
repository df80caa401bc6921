/* SPDX-License-Identifier: Apache-2.0 */
/* The context: root folder, log callback, clock. */
#include "base/ctx.h"
#include "base/printable.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *jm_version(void)
{
	return JM_VERSION;
}

int jm_ctx_init(struct jm_ctx *ctx, struct jm_err *err)
{
	const char *root = secure_getenv("JM_ROOT");

	*ctx = (struct jm_ctx){.clock = jm_clock_real()};
	if (!root)
		return 0;
	if (strlen(root) >= sizeof(ctx->root))
		return jm_err_set(err, JM_EUSAGE,
			"JM_ROOT is longer than %zu characters; use a shorter path.",
			sizeof(ctx->root) - 1);
	memcpy(ctx->root, root, strlen(root) + 1);
	return 0;
}

size_t jm_ctx_bytes(void)
{
	return sizeof(struct jm_ctx);
}

int jm_ctx_new(struct jm_ctx **ret, struct jm_err *err)
{
	struct jm_ctx *ctx = calloc(1, sizeof(*ctx));
	int rc = ctx ? jm_ctx_init(ctx, err) : jm_err_set(err, JM_ENOMEM, "Out of memory.");

	if (rc)
		free(ctx);
	else
		*ret = ctx;
	return rc;
}

void jm_ctx_free(struct jm_ctx *ctx)
{
	if (ctx && !ctx->n_left)
		free(ctx);
}

void jm_ctx_set_log(struct jm_ctx *ctx,
	void (*log)(void *arg, enum jm_level level, const char *line), void *arg)
{
	ctx->log_arg = arg;
	ctx->log = log;
}

int64_t jm_ctx_now(const struct jm_ctx *ctx)
{
	return jm_clock_now(ctx->clock);
}

void jm_log(const struct jm_ctx *ctx, enum jm_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (!ctx->log)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	jm_text_tame(line); /* it may quote a command line, or what a device calls itself */
	ctx->log(ctx->log_arg, level, line);
}
