/* SPDX-License-Identifier: Apache-2.0 */
/* Files of one line by which the kernel shows and takes a setting. */
#ifndef JM_SYSFS_FILE_H
#define JM_SYSFS_FILE_H

#include "joulemark.h"

#define JM_SYSFS_LINE 256

/* The first line, without its end. JM_EGONE: the file has gone, with its device. */
int jm_sysfs_read_line(const char *path, char out[JM_SYSFS_LINE], struct jm_err *err);
/* The first line as a whole number; JM_EFORMAT: it is none. */
int jm_sysfs_read_number(const char *path, long long *ret, struct jm_err *err);
/* Writes the text in one call: a jm_write_fn. JM_EIO: the kernel does not take the value, always or
 * now; JM_EPERM: this user may not write. */
int jm_sysfs_write(void *unused, const char *path, const char *text, struct jm_err *err);

#endif
