/* SPDX-License-Identifier: Apache-2.0 */
/* Growing lists of bytes and ids. Each function is false when memory ran out; the list is then as
 * before. */
#ifndef JM_DATA_BYTES_H
#define JM_DATA_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Growing lists, zero at first; the owner frees `at`. */
struct jm_ids {
	int32_t *at;
	size_t n, room;
};
struct jm_bytes {
	char *at; /* not terminated by NUL */
	size_t n, room;
};

bool jm__bytes_reserve(struct jm_bytes *b, size_t more);
bool jm__bytes_add(struct jm_bytes *b, const char *at, size_t n);
bool jm__ids_add(struct jm_ids *ids, const int32_t *at, size_t n);

#endif
