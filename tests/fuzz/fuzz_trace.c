/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of a trace: invalid bytes are an error; accepted readings are in order of time. */
#include "fuzz.h"
#include "trace/trace.h"

static int ordered(void *arg, struct jm_reading r)
{
	int64_t *last = arg;

	if (r.t_ns < *last)
		abort();
	*last = r.t_ns;
	return 0;
}

static void meters(struct jm_meters *set)
{
	struct jm_meter m = {.id = "a", .covers = "a"};
	struct jm_signal s = {.quantity = JM_Q_POWER, .step = 0.001, .accuracy = NAN};

	if (jm_meters_add(set, &m, NULL) < 0 || jm_meters_add_signal(set, &s, NULL) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_err err = JM_ERR_INIT, other = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_trace *t;
	int64_t last = INT64_MIN;

	meters(&set);
	t = jm_trace_new(&set, &err);
	if (!t)
		abort();
	for (size_t at = 0; at < size;) {
		/* the first byte says how long a piece is, so that several chunks follow each
		 * other */
		size_t n = data[at] ? (size_t)data[at] * 4 : size;
		struct jm_err refusal = JM_ERR_INIT;
		struct jm_chunk chunk;
		int rc;

		at++;
		if (n > size - at)
			n = size - at;
		rc = jm_chunk_parse(0, data + at, n, &chunk, &refusal);
		fuzz_check(rc, &refusal);
		if (!rc)
			fuzz_check(jm_trace_add_chunk(t, &chunk, &refusal), &refusal);
		at += n;
	}
	fuzz_check(jm_trace_each(t, 0, INT64_MIN, INT64_MAX, ordered, &last, &other), &other);
	jm_trace_free(t);
	jm_meters_done(&set);
	return 0;
}
