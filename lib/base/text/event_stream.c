/* SPDX-License-Identifier: Apache-2.0 */
#include "event_stream.h"

#include <stdlib.h>
#include <string.h>

/* Appends, with room for a NUL behind it. */
static int append(
	char **text, size_t *used, size_t *room, const char *what, size_t n, struct jm_err *err)
{
	size_t wanted = *used + n + 1;
	char *more;

	if (wanted > JM_EVENT_MOST)
		return jm_err_set(
			err, JM_EFORMAT, "An event is longer than %zu bytes.", JM_EVENT_MOST);
	if (wanted > *room) {
		more = realloc(*text, 2 * wanted);
		if (!more)
			return jm_err_set(err, JM_ENOMEM, "Out of memory for an event.");
		*text = more;
		*room = 2 * wanted;
	}
	memcpy(*text + *used, what, n);
	*used += n;
	(*text)[*used] = '\0';
	return 0;
}

static int add_data(struct jm_event_stream *s, struct jm_err *err)
{
	size_t name = strlen("data"), from = name + 1;
	const char *line = s->line;

	if (s->n_line < name || memcmp(line, "data", name) != 0 ||
		(s->n_line > name && line[name] != ':'))
		return 0; /* a comment or another field */
	from += s->n_line > from && line[from] == ' ';
	if (s->has_data && append(&s->data, &s->n_data, &s->room_data, "\n", 1, err))
		return err->code;
	s->has_data = true;
	from = from < s->n_line ? from : s->n_line;
	return append(&s->data, &s->n_data, &s->room_data, line + from, s->n_line - from, err);
}

/* The first line may begin with a byte order mark. */
static void skip_mark(struct jm_event_stream *s)
{
	size_t n = 3;

	if (!s->has_begun && s->n_line >= n && !memcmp(s->line, "\xef\xbb\xbf", n)) {
		s->n_line -= n;
		memmove(s->line, s->line + n, s->n_line + 1);
	}
	s->has_begun = true;
}

static int end_line(struct jm_event_stream *s, jm_event_fn *event, void *arg, struct jm_err *err)
{
	int rc = 0;

	skip_mark(s);
	if (s->n_line) {
		rc = add_data(s, err);
	} else if (s->has_data) {
		event(arg, s->data, s->n_data);
		s->n_data = 0;
		s->has_data = false;
	}
	s->n_line = 0;
	return rc;
}

int jm_event_stream_take(struct jm_event_stream *s, const char *bytes, size_t n, jm_event_fn *event,
	void *arg, struct jm_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc;) {
		size_t k = i;

		if (s->after_return && bytes[i] == '\n') { /* the second half of CR LF */
			s->after_return = false;
			i++;
			continue;
		}
		s->after_return = false;
		while (k < n && bytes[k] != '\n' && bytes[k] != '\r')
			k++;
		rc = append(&s->line, &s->n_line, &s->room_line, bytes + i, k - i, err);
		if (rc || k == n)
			break;
		s->after_return = bytes[k] == '\r';
		rc = end_line(s, event, arg, err);
		i = k + 1;
	}
	return rc;
}

void jm_event_stream_close(struct jm_event_stream *s)
{
	free(s->line);
	free(s->data);
	*s = (struct jm_event_stream){0};
}
