/* SPDX-License-Identifier: Apache-2.0 */
/* A source with one meter that never has a reading: the skeleton of a source, and a test of the
 * rest. */
#include "meter/source.h"

#include <math.h>

static int null_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct jm_meter meter = {
		.id = "null:0",
		.label = "nothing",
		.source = "null",
		.scope = JM_SCOPE_NODE,
		.origin = JM_SIMULATED,
		.covers = "null",
	};
	struct jm_signal power = {.quantity = JM_Q_POWER, .refresh_ns = 0, .accuracy = NAN};
	int rc;

	(void)options;
	rc = jm_meters_add(set, &meter, err);
	if (rc >= 0)
		rc = jm_meters_add_signal(set, &power, err);
	if (rc < 0)
		return rc;
	*ret_state = ctx;
	return 0;
}

static int null_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct jm_ctx *ctx = state;

	(void)err;
	jm_give(sink, 0, NAN, jm_ctx_now(ctx));
	return 0;
}

static void null_close(void *state)
{
	(void)state;
}

const struct jm_source jm_source_null = {
	.name = "null",
	.summary = "one meter without readings, for tests",
	.origin = JM_SIMULATED,
	.open = null_open,
	.read = null_read,
	.close = null_close,
};
