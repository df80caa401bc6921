/* SPDX-License-Identifier: Apache-2.0 */
/* The marks that jm_progress delivered, for tests of the socket and of the pipes. */
#ifndef GOT_MARKS_H
#define GOT_MARKS_H

#include <stdio.h>
#include <stdlib.h>

#include "test.h"
#include "base/clock.h"
#include "measure/session/progress.h"

struct got {
	struct jm_mark mark[16];
	int n;
};

static void get(void *arg, const struct jm_mark *mark)
{
	struct got *got = arg;

	assert_true(got->n < 16);
	got->mark[got->n++] = *mark;
}

/* A receiver that is named in the environment. */
static inline struct jm_progress *open_receiver(void)
{
	static char way[256]; /* outlives it in the environment */
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;

	assert_ok(jm_progress_open(&p, &err), err);
	snprintf(way, sizeof(way), "%s", jm_progress_env(p));
	putenv(way);
	return p;
}

static inline void close_receiver(struct jm_progress *p)
{
	jm_progress_close(p);
	unsetenv("JM_PROGRESS");
}

/* The marks that wait, at this moment. */
static inline int receive(struct jm_progress *p, struct got *got)
{
	got->n = 0;
	return jm_progress_receive(p, jm_clock_now(jm_clock_real()), get, got);
}

#endif
