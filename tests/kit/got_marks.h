/* SPDX-License-Identifier: Apache-2.0 */
/* The marks that jm_progress delivered, for tests of the socket and of the pipes. */
#ifndef GOT_MARKS_H
#define GOT_MARKS_H

#include "test.h"
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

#endif
