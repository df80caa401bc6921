/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: whole lines, written and read without waiting. */
#include "orders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const jm_order_words[] = {[JM_ORDER_STOP] = "stop",
	[JM_ORDER_APPLIED] = "applied",
	[JM_ORDER_SETTING] = "setting",
	[JM_ORDER_NOTE] = "note",
	NULL};

int jm_order_send(int fd, enum jm_order_kind kind, const char *text, struct jm_err *err)
{
	char line[sizeof(JM_ORDERS_VERSION) + JM_ORDER_TEXT + 16];
	int n = snprintf(line, sizeof(line), "%s %s%s%.*s", JM_ORDERS_VERSION, jm_order_words[kind],
		*text ? " " : "", JM_ORDER_TEXT - 1, text);

	for (int i = 0; i < n; i++)
		if (line[i] == '\n')
			line[i] = ' ';
	line[n++] = '\n';
	if (fd >= 0 && write(fd, line, (size_t)n) == n)
		return 0;
	return jm_err_set(err, JM_EGONE, "A worker cannot receive orders: %s.",
		fd < 0 ? "it has ended" : strerror(errno));
}

int jm_order_send_json(int fd, enum jm_order_kind kind, const json_t *row, struct jm_err *err)
{
	char text[JM_ORDER_TEXT];
	size_t n = json_dumpb(row, text, sizeof(text), JSON_COMPACT);

	if (!n || n >= sizeof(text))
		return jm_err_set(err, JM_ERANGE,
			"A row of settings has %zu bytes as JSON, but an order to a worker can "
			"have "
			"at most %zu.",
			n, sizeof(text) - 1);
	text[n] = '\0';
	return jm_order_send(fd, kind, text, err);
}

void jm_orders_init(struct jm_orders *o, int fd)
{
	*o = (struct jm_orders){.fd = fd};
	if (fd >= 0)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int parse(const char *line, struct jm_order *ret, struct jm_err *err)
{
	static const char version[] = JM_ORDERS_VERSION " ";
	const char *word = line + sizeof(version) - 1, *rest;
	size_t n;

	if (strncmp(line, version, sizeof(version) - 1) != 0)
		return jm_err_set(err, JM_EVERSION,
			"An order '%.60s' is not of version %s; worker and parent are different "
			"programs.",
			line, JM_ORDERS_VERSION);
	n = strcspn(word, " ");
	rest = word[n] ? word + n + 1 : word + n;
	for (int i = 0; jm_order_words[i]; i++)
		if (strlen(jm_order_words[i]) == n && !strncmp(jm_order_words[i], word, n)) {
			ret->kind = (enum jm_order_kind)i;
			snprintf(ret->text, sizeof(ret->text), "%.*s", JM_ORDER_TEXT - 1, rest);
			return 1;
		}
	return jm_err_set(err, JM_EFORMAT, "There is no order '%.60s'.", word);
}

/* The first whole line of what came; a line that fills the buffer is cut there. */
static int take_line(struct jm_orders *o, struct jm_order *ret, struct jm_err *err)
{
	char *end = memchr(o->buffer, '\n', o->n);
	size_t used;
	int rc;

	if (!end && o->n < sizeof(o->buffer))
		return 0;
	if (!end)
		end = o->buffer + sizeof(o->buffer) - 1;
	used = (size_t)(end - o->buffer) + 1;
	*end = '\0';
	rc = parse(o->buffer, ret, err);
	memmove(o->buffer, o->buffer + used, o->n - used);
	o->n -= used;
	return rc;
}

int jm_orders_next(struct jm_orders *o, struct jm_order *ret, struct jm_err *err)
{
	ssize_t got;
	int rc = take_line(o, ret, err);

	if (rc || o->fd < 0)
		return rc;
	got = read(o->fd, o->buffer + o->n, sizeof(o->buffer) - o->n);
	if (got <= 0)
		return 0;
	o->n += (size_t)got;
	return take_line(o, ret, err);
}
