/* SPDX-License-Identifier: Apache-2.0 */
/* What of this machine's memory this process may still take. */
#ifndef JM_MEMORY_H
#define JM_MEMORY_H

#include "joulemark.h"

/* Bytes that are available by /proc/meminfo, or what the control groups that this process is in (both
 * versions, and those around them) still allow, if that is less. 0 = unknown. */
size_t jm_memory_free(const struct jm_ctx *ctx);

#endif
