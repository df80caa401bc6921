/* SPDX-License-Identifier: Apache-2.0 */
/* The file that the ranks of one host share: transport `local` has its beginning, `host` what is
 * behind JM__HOST_FROM, and gang_memory.h what is behind JM__SHARED_FROM. It is sparse: of all only
 * pages that were written take memory. `local` of JM_RANKS_MOST ranks extends over 1.4 GB of it,
 * and over 0.3 GB for each of its splits. */
#ifndef JM_COMM_GANG_FILE_H
#define JM_COMM_GANG_FILE_H

#include <stddef.h>

#define JM__HOST_FROM	((size_t)1 << 36) /* bytes */
#define JM__SHARED_FROM ((size_t)1 << 38)

#endif
