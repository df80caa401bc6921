/* SPDX-License-Identifier: Apache-2.0 */
/* Processors (hardware threads) as the kernel lists them: "0-11,96-107". */
#ifndef JM_CPU_LIST_H
#define JM_CPU_LIST_H

#include <sched.h>

#include "joulemark.h"

/* JM_EUSAGE: it is no such list, or names a processor from CPU_SETSIZE (1024) on. */
int jm_cpu_list_read(const char *text, cpu_set_t *ret, struct jm_err *err);
/* The calling thread, and those that it starts from now on, run on these alone. JM_ENOENT: some of
 * them do not exist here, or this process may not use them. */
int jm_cpu_list_bind(const char *text, struct jm_err *err);
/* How many processors this process may use; 0 = more than the set can hold. */
int jm_cpus_usable(void);
/* The processors of one of so many ranks that share them; at least one. */
int jm_cpus_share(int ranks);

#endif
