/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that grow. */
#ifndef JM_GROW_H
#define JM_GROW_H

#include <stddef.h>
#include <stdlib.h>

/* Moves a list of elements of `each` bytes to where there is room for twice as many, 64 at first.
 * NULL = memory ran out; the list and *cap stay as they were. */
static inline void *jm_grow(void *list, int *cap, size_t each)
{
	int more = *cap ? 2 * *cap : 64;
	void *ret = realloc(list, (size_t)more * each);

	*cap = ret ? more : *cap;
	return ret;
}

#endif
