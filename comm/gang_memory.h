/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the ranks of one host share beside their transfers, for numbers that a rank reads and
 * writes without waiting for the others. */
#ifndef JM_GANG_MEMORY_H
#define JM_GANG_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "joulemark.h"

/*
 * fd: the file of the gang (comm.h), in which this is the memory behind that of the transports. All
 * ranks map the same number of bytes, after they have opened all transports of that file; bytes
 * that none has written are 0. -1: of a rank alone, whose threads share it. JM_EIO: it cannot be
 * mapped.
 */
int jm_gang_memory_map(int fd, size_t bytes, void **ret, struct jm_err *err);
void jm_gang_memory_unmap(void *memory, size_t bytes); /* takes NULL */
/* The whole pages within these bytes become 0 and take no memory any more. */
void jm_gang_memory_clear(void *memory, size_t bytes);
/* Sleeps while *word, which is in this memory, is `seen`: until a rank wakes all, or for ns at
 * most. It may return early. */
void jm_gang_memory_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns);
/* Changes the word, and wakes all ranks that sleep on it. */
void jm_gang_memory_wake(_Atomic uint32_t *word);

#endif
