/* SPDX-License-Identifier: Apache-2.0 */
/* How many files a process with ranks may have open. */
#ifndef JM_OPEN_FILES_H
#define JM_OPEN_FILES_H

#include "joulemark.h"

/* Raises this process's limit so that it suffices for so many ranks. JM_ERANGE: it may not. */
int jm_open_files_allow(int ranks, struct jm_err *err);

#endif
