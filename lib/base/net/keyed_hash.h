/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash that only holders of a key can compute: proves that a peer knows a secret without sending
 * it. SipHash-2-4 with a result of 128 bits (Aumasson, Bernstein: "SipHash: a fast short-input
 * PRF", 2012).
 */
#ifndef JM_KEYED_HASH_H
#define JM_KEYED_HASH_H

#include <stdbool.h>
#include <stddef.h>

#define JM_KEY_BYTES 16 /* of a key, and of a hash */

void jm_keyed_hash(const unsigned char key[JM_KEY_BYTES], const void *data, size_t n,
	unsigned char ret[JM_KEY_BYTES]);
/* Takes the same time wherever they differ, so that a guess cannot be improved byte by byte. */
bool jm_keys_equal(const unsigned char *a, const unsigned char *b);
/* The key of a secret text. */
void jm_key_of_text(const char *text, unsigned char ret[JM_KEY_BYTES]);

#endif
