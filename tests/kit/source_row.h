/* SPDX-License-Identifier: Apache-2.0 */
/* The result of one poll of a source: the newest reading of each of its signals. */
#ifndef JM_TEST_SOURCE_ROW_H
#define JM_TEST_SOURCE_ROW_H

#include "meter/source.h"

struct row_sink {
	struct jm_sink sink; /* first: the two have one address */
	struct jm_reading *out;
};

static inline void row_give(
	struct jm_sink *sink, int first, int n, const struct jm_reading *reading)
{
	struct jm_reading *out = ((struct row_sink *)(void *)sink)->out + first;

	for (int i = 0; i < n; i++)
		out[i] = reading[i];
}

static inline int read_row(
	const struct jm_source *source, void *state, struct jm_reading *out, struct jm_err *err)
{
	struct row_sink row = {.sink = {.give = row_give}, .out = out};

	return source->read(state, &row.sink, err);
}

#endif
