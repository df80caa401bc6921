/* SPDX-License-Identifier: Apache-2.0 */
/* How a store is recognised. Whatever writes files needs it, therefore it is below the store. */
#ifndef JM_STORE_FILE_H
#define JM_STORE_FILE_H

#include <stdbool.h>

/* Is this a file that SQLite made? Anything but a regular file is not read. */
bool jm_store_is(const char *path);
bool jm_store_is_fd(int fd);

#endif
