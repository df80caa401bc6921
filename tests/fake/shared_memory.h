/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other processes can map, by the path of its file in /proc; and sums in it. */
#ifndef JM_FAKE_SHARED_MEMORY_H
#define JM_FAKE_SHARED_MEMORY_H

#include <stddef.h>

/* NULL = out of memory. *ret_fd: to be closed after munmap. */
void *jm_fake_shared_new(size_t bytes, int *ret_fd);
void jm_fake_shared_path(int fd, char *ret, size_t size);
/* All of it, to be read; NULL = it cannot be mapped. */
void *jm_fake_shared_map(const char *path, size_t *ret_bytes, int *ret_fd);
void jm_fake_shared_drop(void *memory, size_t bytes, int fd);

/* A sum of n elements, "to += from", to be made once by _run; NULL = out of memory. */
void *jm_fake_sum(float *to, const float *from, size_t n);
void jm_fake_sum_run(void *sum);

#endif
