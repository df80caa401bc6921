/* SPDX-License-Identifier: Apache-2.0 */
/* The parent of the workers of a case: starts, serves and stops them. */
#ifndef JM_WORKER_PARENT_H
#define JM_WORKER_PARENT_H

#include "base/ctx.h"
#include "case_options.h"

/*
 * Runs one case and makes its record, which also describes a failure of the case (status "failed",
 * reason). An error is one of joulemark: JM_EINTR: cancelled; JM_EGONE: the watched process is
 * gone. A store that fails does not end the case: what is wrong is reported, and the rest of the
 * trace omitted.
 */
int jm_case_run(struct jm_ctx *ctx, const struct jm_case_options *options, json_t **ret_record,
	struct jm_err *err);

#endif
