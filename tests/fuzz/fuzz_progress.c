/* SPDX-License-Identifier: Apache-2.0 */
/* Marks from the socket, and numbers found in what a command prints, in pieces of any size. */
#include "fuzz.h"
#include "measure/progress.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void marked(void *arg, const struct jm_mark *mark)
{
	(void)arg;
	if (memchr(mark->name, '\0', sizeof(mark->name)) == NULL || isinf(mark->items) ||
		mark->items < 0)
		abort();
}

static void scan(const char *regex, const char *key, const uint8_t *data, size_t size)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_scan *s;
	size_t step = size ? 1 + data[0] % 64 : 1;

	if (jm_scan_new(regex, key, &s, &err))
		abort();
	for (size_t at = 0; at < size; at += step)
		jm_scan_feed(s, (const char *)data + at, size - at < step ? size - at : step,
			(int64_t)at, marked, NULL);
	jm_scan_end(s, (int64_t)size, marked, NULL);
	jm_scan_free(s);
}

/* As a datagram, which anybody on the machine who finds the socket may send. */
static void datagram(const uint8_t *data, size_t size)
{
	static struct jm_progress *p;
	static int fd = -1;
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path;

	if (!p && jm_progress_open(&p, NULL))
		abort();
	if (fd < 0)
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	path = strchr(jm_progress_env(p), '=') + 1;
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	if (sendto(fd, data, size, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		return;
	jm_progress_receive(p, 1000, marked, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	scan("tokens: *([0-9.eE+-]+)", NULL, data, size);
	scan("done", NULL, data, size);
	scan(NULL, "result.tokens", data, size);
	datagram(data, size);
	return 0;
}
