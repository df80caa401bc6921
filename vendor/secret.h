/* SPDX-License-Identifier: Apache-2.0 */
/* Passwords for devices: they come from files, and go into no core file. */
#ifndef JM_VENDOR_SECRET_H
#define JM_VENDOR_SECRET_H

#include "joulemark.h"

#define JM_SECRET_MAX 4096 /* bytes; tokens of some services have 2,000 */

/*
 * The first line of a file. From then on the kernel writes no core file of this process, because
 * the library that gets the secret keeps it in its memory; programs that this process executes are
 * not affected. The caller clears out with explicit_bzero.
 */
int jm_secret_read(const char *path, char out[JM_SECRET_MAX], struct jm_err *err);

#endif
