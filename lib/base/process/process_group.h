/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a process group, whose members need not be our children. */
#ifndef JM_PROCESS_GROUP_H
#define JM_PROCESS_GROUP_H

#include <stdint.h>
#include <sys/types.h>

/*
 * SIGTERM to the group, and SIGKILL to what is left of it when the time is over, or as soon as
 * hurry_fd (-1 = none) is readable, from which nothing is read. Waits until no process of it runs,
 * also if the first one, a shell, ends before the others; reaps none. Returns the rest of the time.
 */
int64_t jm_group_end(pid_t group, int64_t polite_ns, int hurry_fd);

#endif
