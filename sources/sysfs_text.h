/* SPDX-License-Identifier: Apache-2.0 */
/* Lines and numbers from files of sysfs and procfs, for the sources. */
#ifndef JM_SYSFS_TEXT_H
#define JM_SYSFS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct jm_ctx;

/* The first line of a file; false = it cannot be read. */
bool jm_sysfs_line(const char *folder, const char *file, char *out, size_t size);
/* The first line of an open file as it is now; "" = it cannot be read. */
void jm_sysfs_line_now(int fd, char *out, size_t size);
/* The same as a whole number of microwatts or microjoules, in W or J; NAN = it is none. */
double jm_sysfs_micro_now(int fd);
/* A whole number, or the first of a list as "72-143,145"; -1 = there is none. */
long jm_sysfs_number(const char *folder, const char *file);
/* The socket of a PCI device ("0009:01:00.0", of either case and width of the domain), by the
 * processors of its NUMA node; -1 = unknown. */
long jm_sysfs_socket(const struct jm_ctx *ctx, const char *pci);

#endif
