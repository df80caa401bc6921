/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded into a program: someone sets its wall clock back by an hour when the file JM_FAKE_SET_BACK
 * appears. Other clocks go on. The name is read before main, which may drop such variables. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static char *file;

__attribute__((constructor)) static void read_name(void)
{
	const char *name = getenv("JM_FAKE_SET_BACK");

	file = name ? strdup(name) : NULL;
}

/* FILE.PID: this process has read a clock since then, so that its wall clock is back. */
static void leave_mark(void)
{
	static atomic_int marked; /* the process; a child of fork has its own mark */
	char path[PATH_MAX];
	int before = errno, pid = (int)getpid(), fd = -1;

	if (atomic_exchange(&marked, pid) == pid)
		return;
	if (snprintf(path, sizeof(path), "%s.%d", file, pid) < (int)sizeof(path))
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	errno = before;
}

/* The name is not freed: threads may read a clock until the process is gone. */
static bool is_back(void)
{
	int before = errno;
	bool back = file && !access(file, F_OK);

	errno = before;
	return back;
}

API int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
	static int (*real)(clockid_t clock, struct timespec * ret);
	int rc;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	rc = real(clock_id, tp);
	if (rc || !is_back())
		return rc;
	leave_mark();
	if (clock_id == CLOCK_REALTIME)
		tp->tv_sec -= 3600;
	return rc;
}
