/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded into a program: someone sets its wall clock back by an hour when the file JM_FAKE_SET_BACK
 * appears. Other clocks go on. The name is read before main, which may drop such variables. */
#include <dlfcn.h>
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

__attribute__((destructor)) static void forget_name(void)
{
	free(file);
	file = NULL;
}

API int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
	static int (*real)(clockid_t clock, struct timespec * ret);
	int rc;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	rc = real(clock_id, tp);
	if (!rc && clock_id == CLOCK_REALTIME && file && !access(file, F_OK))
		tp->tv_sec -= 3600;
	return rc;
}
