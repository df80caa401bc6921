/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events of a server's answer, in pieces of any size: the same events as in one
 * piece. */
#include "fuzz.h"
#include "base/text/event_stream.h"
#include "workloads/serve/completion.h"

struct seen {
	int events;
	size_t bytes;
};

static void on_event(void *arg, const char *text, size_t n)
{
	struct seen *seen = arg;
	struct jm_completion c = jm_completion_parse(text, n);

	assert(!text[n]);
	assert(!(c.is_done && c.has_choice));
	assert(c.is_error || isnan(c.output) || (c.output >= 0 && c.output <= 1e9));
	seen->events++;
	seen->bytes += n;
}

static struct seen read_all(const char *text, size_t size, size_t piece)
{
	struct jm_event_stream s = {0};
	struct jm_err err = JM_ERR_INIT;
	struct seen seen = {0};
	int rc = 0;

	for (size_t at = 0; at < size && !rc; at += piece)
		rc = jm_event_stream_take(&s, text + at, size - at < piece ? size - at : piece,
			on_event, &seen, &err);
	fuzz_check(rc, &err);
	jm_event_stream_close(&s);
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	struct seen whole = read_all(text, size, size ? size : 1);
	struct seen parts = read_all(text, size, size && data[0] ? data[0] : 1);

	assert(whole.events == parts.events && whole.bytes == parts.bytes);
	free(text);
	return 0;
}
