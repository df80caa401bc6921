/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a table of keys, read several times as fast as by the library's parser. */
#ifndef JM_KEYS_READ_H
#define JM_KEYS_READ_H

#include "keys.h"

/*
 * Reads objects alike from text that ends in NUL, several times as fast as the library's parser.
 * brief: without what is marked as detail, in which damage is not noticed. Parts that objects have
 * in common may be one value in all of them: they must not be changed. The caller frees the reader,
 * and each object by json_decref.
 */
struct jm_keys_reader;
struct jm_keys_reader *jm_keys_reader_new(
	const struct jm_key *keys, bool brief); /* NULL: no memory */
void jm_keys_reader_free(struct jm_keys_reader *r);
/* n: its bytes without the NUL. NULL: it is not JSON, or there is no memory. */
json_t *jm_keys_read(struct jm_keys_reader *r, const char *text, size_t n);

#endif
