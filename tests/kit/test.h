/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of every unit test: cmocka with the headers it needs, and a few macros. */
#ifndef JM_TEST_H
#define JM_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* */
#include <cmocka.h>

#include "joulemark.h"

/* Nothing failed, or the sentence of what did. */
#define assert_ok(rc, err)                                                                         \
	do {                                                                                       \
		if ((rc) < 0)                                                                      \
			fail_msg("%s", (err).text);                                                \
	} while (0)

#define assert_near(a, b, tolerance)                                                               \
	do {                                                                                       \
		double a_ = (a), b_ = (b);                                                         \
		if (!(fabs(a_ - b_) <= (tolerance)))                                               \
			fail_msg("%s is %.17g, not %.17g", #a, a_, b_);                            \
	} while (0)

/* Backends are those of tests/peers from here on, not those that were built for use. */
static inline void use_peer_backends(void)
{
	const char *build = getenv("JM_BUILD");
	char folder[4096];

	snprintf(folder, sizeof(folder), "%s/tests/peers", build ? build : "build");
	setenv("JM_BACKENDS", folder, 1);
}

/* An error is a code and one whole sentence: a capital or a quoted word first, a full stop last. */
static inline void assert_sentence(const struct jm_err *err, int code)
{
	size_t n = strlen(err->text);

	assert_int_equal(err->code, code);
	assert_true(n > 10);
	if (err->text[n - 1] != '.' && err->text[n - 1] != '?')
		fail_msg("not a sentence: %s", err->text);
	if (strstr(err->text, "  ") || strstr(err->text, "(null)"))
		fail_msg("not a good sentence: %s", err->text);
}

#endif
