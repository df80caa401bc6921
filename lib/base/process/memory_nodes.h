/* SPDX-License-Identifier: Apache-2.0 */
/* NUMA nodes that memory comes from, as the kernel lists them: "0,2-3". */
#ifndef JM_MEMORY_NODES_H
#define JM_MEMORY_NODES_H

#include "joulemark.h"

/* Memory that the calling thread, and those that it starts from now on, use first comes from these
 * nodes while they have some. JM_ENOENT: some of them do not exist here, or have no memory, or this
 * process may not use them; JM_ENOSUP: the kernel does not let it choose. Then nothing changes. */
int jm_memory_prefer(const char *nodes, struct jm_err *err);
/* Whether jm_memory_prefer() would succeed; nothing changes. */
int jm_memory_try(const char *nodes, struct jm_err *err);

#endif
