/* SPDX-License-Identifier: Apache-2.0 */
/* Files by a pattern of their names. */
#ifndef JM_FIND_FILES_H
#define JM_FIND_FILES_H

#include <glob.h>

/* The files that match the pattern, sorted by name: gl_pathc of them in gl_pathv; none where memory
 * runs out, too. For the caller to end with globfree. */
__attribute__((format(printf, 2, 3))) void jm_find_files(glob_t *ret, const char *pattern, ...);

#endif
