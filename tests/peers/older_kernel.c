/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded into a program: a kernel before Linux 6.5, which does not know SO_PEERPIDFD. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

#define API	  __attribute__((visibility("default")))
#define PEERPIDFD 77 /* SO_PEERPIDFD of asm-generic/socket.h */

API int getsockopt(int fd, int level, int name, void *restrict optval, socklen_t *restrict optlen)
{
	static int (*real)(int fd, int level, int name, void *optval, socklen_t *optlen);

	if (level == SOL_SOCKET && name == PEERPIDFD) {
		errno = ENOPROTOOPT;
		return -1;
	}
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "getsockopt");
	return real(fd, level, name, optval, optlen);
}
