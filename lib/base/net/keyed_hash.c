/* SPDX-License-Identifier: Apache-2.0 */
#include "keyed_hash.h"

#include <stdint.h>
#include <string.h>

/* Words are little-endian. */
static uint64_t word(const unsigned char *at, size_t n)
{
	uint64_t w = 0;

	for (size_t i = 0; i < n; i++)
		w |= (uint64_t)at[i] << (8 * i);
	return w;
}

static void put_word(unsigned char *at, uint64_t w)
{
	for (int i = 0; i < 8; i++)
		at[i] = (unsigned char)(w >> (8 * i));
}

static uint64_t turned(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

static void rounds(uint64_t v[4], int n)
{
	while (n--) {
		v[0] += v[1];
		v[1] = turned(v[1], 13) ^ v[0];
		v[0] = turned(v[0], 32);
		v[2] += v[3];
		v[3] = turned(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = turned(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = turned(v[1], 17) ^ v[2];
		v[2] = turned(v[2], 32);
	}
}

static void take(uint64_t v[4], uint64_t w)
{
	v[3] ^= w;
	rounds(v, 2);
	v[0] ^= w;
}

void jm_keyed_hash(const unsigned char key[JM_KEY_BYTES], const void *data, size_t n,
	unsigned char ret[JM_KEY_BYTES])
{
	const unsigned char *at = data;
	uint64_t k0 = word(key, 8), k1 = word(key + 8, 8);
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee,
		k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
	size_t left = n;

	for (; left >= 8; left -= 8, at += 8)
		take(v, word(at, 8));
	take(v, word(at, left) | (uint64_t)n << 56);
	v[2] ^= 0xee;
	rounds(v, 4);
	put_word(ret, v[0] ^ v[1] ^ v[2] ^ v[3]);
	v[1] ^= 0xdd;
	rounds(v, 4);
	put_word(ret + 8, v[0] ^ v[1] ^ v[2] ^ v[3]);
}

bool jm_keys_equal(const unsigned char *a, const unsigned char *b)
{
	volatile unsigned char differs = 0;

	for (int i = 0; i < JM_KEY_BYTES; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

void jm_key_of_text(const char *text, unsigned char ret[JM_KEY_BYTES])
{
	static const unsigned char none[JM_KEY_BYTES];

	jm_keyed_hash(none, text, strlen(text), ret);
}
