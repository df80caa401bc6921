/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The firmware of AMD sockets behind the ioctl of /dev/hsmp, loaded before the C library; the
 * messages are those of Linux' asm/amd_hsmp.h. The folder named by JM_FAKE_HSMP holds a file
 * socketN for each socket, "LIMIT MOST" in milliwatts, which is kept across processes. A limit is
 * clipped to 80 W and to MOST. As in the driver (drivers/platform/x86/amd/hsmp), a message that
 * sets needs a file that is open for writing, and a socket that is not there is ENODEV.
 * JM_FAKE_HSMP_REFUSES: the number of a socket whose firmware does not answer a message that sets.
 */
#include <asm/amd_hsmp.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define LEAST 80000 /* mW */

static int read_socket(const char *path, unsigned int *limit, unsigned int *most)
{
	FILE *f = fopen(path, "re");
	int n;

	if (!f)
		return ENODEV;
	n = fscanf(f, "%u %u", limit, most);
	fclose(f);
	return n == 2 ? 0 : EIO;
}

/* In one step, as a kill may come at any time. */
static int keep_limit(const char *path, unsigned int limit, unsigned int most)
{
	char other[620];
	FILE *f;

	snprintf(other, sizeof(other), "%s.new", path);
	f = fopen(other, "we");
	if (!f)
		return EIO;
	fprintf(f, "%u %u\n", limit < LEAST ? LEAST : limit > most ? most : limit, most);
	return fclose(f) || rename(other, path) ? EIO : 0;
}

static int obey(int fd, struct hsmp_message *m)
{
	const char *refused = getenv("JM_FAKE_HSMP_REFUSES");
	unsigned int limit, most;
	char path[600];
	int rc;

	snprintf(path, sizeof(path), "%.500s/socket%u", getenv("JM_FAKE_HSMP"), m->sock_ind);
	rc = read_socket(path, &limit, &most);
	if (rc)
		return rc;
	switch (m->msg_id) {
	case HSMP_GET_SOCKET_POWER_LIMIT:
		m->args[0] = limit;
		return m->num_args || m->response_sz != 1 ? EINVAL : 0;
	case HSMP_GET_SOCKET_POWER_LIMIT_MAX:
		m->args[0] = most;
		return m->num_args || m->response_sz != 1 ? EINVAL : 0;
	case HSMP_SET_SOCKET_POWER_LIMIT:
		if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
			return EPERM;
		if (refused && atoi(refused) == m->sock_ind)
			return ETIMEDOUT;
		return m->num_args != 1 || m->response_sz ? EINVAL
							  : keep_limit(path, m->args[0], most);
	}
	return ENOMSG;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, ...);
	va_list args;
	void *arg, *found;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (request == HSMP_IOCTL_CMD) {
		errno = obey(fd, arg);
		return errno ? -1 : 0;
	}
	found = dlsym(RTLD_NEXT, "ioctl");
	memcpy(&next, &found, sizeof(next));
	return next(fd, request, arg);
}
