/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a command's output was read, in a file of one page that both ends map. Together with
 * what is still in the pipe this gives a process that sends a mark the byte of the output at which
 * it sends it: the mark and the lines come through two channels, and no time of reading tells which
 * of two that wait was first.
 */
#ifndef JM_OUTPUT_PAGE_H
#define JM_OUTPUT_PAGE_H

#include <stdint.h>
#include <sys/types.h>

struct jm_output_page;

/* ---- the process that reads the output ---- */

/* Makes the file, for the pipe whose reading end this is. NULL: it cannot be made. The caller
 * removes the file. */
struct jm_output_page *jm_output_page_new(const char *path, int fd);
/* read(2) from the pipe, which is counted. page: NULL = not counted. */
ssize_t jm_output_page_read(struct jm_output_page *page, int fd, void *bytes, size_t n);

/* ---- a process that writes to the pipe ---- */

/* NULL: there is no such file. */
const struct jm_output_page *jm_output_page_find(const char *path);
/* How many bytes this pipe has got so far; -1 = stdout of this process is not this pipe, or the
 * kernel does not say it. */
int64_t jm_output_page_at(const struct jm_output_page *page);

void jm_output_page_done(const struct jm_output_page *page); /* takes NULL */

#endif
