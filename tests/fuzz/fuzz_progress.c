/* SPDX-License-Identifier: Apache-2.0 */
/* Marks from the socket, and numbers found in what a command prints, in pieces of any size. */
#include "fuzz.h"
#include "measure/session/progress.h"
#include "measure/command/output_items.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void marked(void *arg, const struct jm_mark *mark)
{
	(void)arg;
	if (memchr(mark->name, '\0', sizeof(mark->name)) == NULL || isinf(mark->items) ||
		mark->items < 0 || mark->byte < -1)
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

/* Through a pipe that is handed over. */
static void through_pipe(struct jm_progress *p, int fd, const struct sockaddr_un *to,
	const uint8_t *data, size_t size)
{
	char text[] = "jm1 pipe";
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec from = {text, sizeof(text) - 1};
	struct msghdr message = {.msg_name = (void *)(uintptr_t)to,
		.msg_namelen = sizeof(*to),
		.msg_iov = &from,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	int ends[2];

	if (pipe(ends))
		return;
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &ends[0], sizeof(int));
	if (sendmsg(fd, &message, 0) > 0)
		jm_progress_receive(p, 1000, marked, NULL);
	if (write(ends[1], data, size < 4096 ? size : 4096) > 0)
		jm_progress_receive(p, 1000, marked, NULL);
	close(ends[0]);
	close(ends[1]);
	jm_progress_receive(p, 1000, marked, NULL);
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
	jm_progress_take_pipes(p);
	if (fd < 0)
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	path = strchr(jm_progress_env(p), '=') + 1;
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	through_pipe(p, fd, &to, data, size);
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
