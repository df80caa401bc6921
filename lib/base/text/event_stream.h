/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events as they come over a line (WHATWG HTML, "Server-sent events", interpreting an
 * event stream): the data of each event; names, ids and comments are skipped.
 */
#ifndef JM_EVENT_STREAM_H
#define JM_EVENT_STREAM_H

#include <stddef.h>

#include "joulemark.h"

#define JM_EVENT_MOST ((size_t)1 << 20) /* bytes of an event */

/* Zeroed before the first byte. */
struct jm_event_stream {
	char *line, *data; /* of the line and of the event that are not complete */
	size_t n_line, room_line, n_data, room_data;
	bool has_data, after_return, has_begun; /* has_begun: the first line is complete */
};

/* The data of an event, without its last line feed; text[n] is NUL. */
typedef void jm_event_fn(void *arg, const char *text, size_t n);

/*
 * Takes the next bytes and calls `event` for each event that they complete. JM_EFORMAT: an event is
 * longer than JM_EVENT_MOST. JM_ENOMEM.
 */
int jm_event_stream_take(struct jm_event_stream *s, const char *bytes, size_t n, jm_event_fn *event,
	void *arg, struct jm_err *err);
void jm_event_stream_close(struct jm_event_stream *s); /* takes a zeroed one */

#endif
