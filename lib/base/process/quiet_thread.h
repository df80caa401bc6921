/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that take no signals: these are for the program's own threads. */
#ifndef JM_QUIET_THREAD_H
#define JM_QUIET_THREAD_H

#include <pthread.h>

/* As pthread_create; the thread begins with all signals blocked. */
int jm_quiet_thread(pthread_t *ret, void *(*fn)(void *arg), void *arg);

#endif
