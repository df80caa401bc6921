/* SPDX-License-Identifier: Apache-2.0 */
/* The file that the ranks of one host share: transport `local` has its beginning, `host` what is
 * behind JM__HOST_FROM. */
#ifndef JM_COMM_GANG_FILE_H
#define JM_COMM_GANG_FILE_H

#include <stddef.h>

#define JM__HOST_FROM ((size_t)1 << 30) /* bytes */

#endif
