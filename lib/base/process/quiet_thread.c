/* SPDX-License-Identifier: Apache-2.0 */
#include "quiet_thread.h"

#include <signal.h>

int jm_quiet_thread(pthread_t *ret, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(ret, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}
