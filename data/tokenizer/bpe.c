/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/utf8.h"

/* ---- characters ------------------------------------------------------------------------------ */

static int32_t find(struct jm__bpe *b, const char *text, size_t n, const char *suffix)
{
	b->text.n = 0;
	if (!jm__bytes_add(&b->text, text, n) ||
		(suffix && !jm__bytes_add(&b->text, suffix, strlen(suffix))))
		return -1;
	return jm__vocabulary_find(&b->vocabulary, b->text.at, b->text.n);
}

bool jm__bpe_prepare(struct jm__bpe *b)
{
	char text[8];

	if (!jm__bytes_reserve(&b->text, 64 + (b->suffix ? strlen(b->suffix) : 0)))
		return false;
	for (int i = 0; i < 256; i++) {
		size_t n = b->byte_level ? jm__utf8_put(text, jm__byte_char((unsigned char)i))
					 : (size_t)snprintf(text, sizeof(text), "<0x%02X>", i);

		b->byte_id[i] = find(b, text, n, NULL);
		b->byte_end[i] = b->suffix ? find(b, text, n, b->suffix) : b->byte_id[i];
	}
	return true;
}

/* An unknown character waits until it is known whether those behind it are one token with it. */
struct unknown {
	bool pending;
};

static bool add(struct jm__bpe *b, int32_t id)
{
	return jm__ids_add(&b->word.ids, &id, 1);
}

static bool flush(struct jm__bpe *b, struct unknown *u)
{
	bool pending = u->pending;

	u->pending = false;
	return !pending || add(b, b->unknown);
}

/* The bytes of a character that has no token; false in *ret_done: these are no tokens either. */
static bool add_bytes(struct jm__bpe *b, const char *text, size_t n, bool *ret_done)
{
	*ret_done = false;
	for (size_t i = 0; i < n; i++)
		if (b->byte_id[(unsigned char)text[i]] < 0)
			return true;
	*ret_done = true;
	for (size_t i = 0; i < n; i++)
		if (!add(b, b->byte_id[(unsigned char)text[i]]))
			return false;
	return true;
}

/* A character without token. */
static bool add_unknown(struct jm__bpe *b, const char *text, size_t n, bool last, struct unknown *u)
{
	bool done = false, ok = true;

	if (b->byte_fallback && !b->byte_level) {
		ok = add_bytes(b, text, n, &done);
		if (ok && done && last && b->suffix)
			ok = add_bytes(b, b->suffix, strlen(b->suffix), &done);
	}
	if (!ok || done || b->unknown < 0)
		return ok;
	if (u->pending && !b->fuse_unknown)
		ok = add(b, b->unknown);
	u->pending = true;
	return ok;
}

/* The tokens of the characters of a word. */
static bool add_chars(struct jm__bpe *b, const char *word, size_t n)
{
	struct unknown u = {false};

	for (size_t at = 0, length; at < n; at += length) {
		unsigned char byte = (unsigned char)word[at];
		bool last, ok;
		int32_t id;

		length = b->byte_level ? 1 : jm__utf8_bytes(byte);
		last = at + length == n;
		if (b->byte_level)
			id = last ? b->byte_end[byte] : b->byte_id[byte];
		else
			id = find(b, word + at, length, last ? b->suffix : NULL);
		ok = id >= 0 ? flush(b, &u) && add(b, id)
			     : add_unknown(b, word + at, length, last, &u);
		if (!ok)
			return false;
	}
	return flush(b, &u);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The token that is the word; -1 = there is none. */
static int32_t whole(struct jm__bpe *b, const char *word, size_t n)
{
	char text[4];

	if (!b->byte_level)
		return jm__vocabulary_find(&b->vocabulary, word, n);
	b->text.n = 0;
	for (size_t i = 0; i < n; i++) {
		size_t length = jm__utf8_put(text, jm__byte_char((unsigned char)word[i]));

		if (!jm__bytes_add(&b->text, text, length))
			return -1;
	}
	return jm__vocabulary_find(&b->vocabulary, b->text.at, b->text.n);
}

bool jm__bpe_encode(struct jm__bpe *b, const char *word, size_t n, struct jm_ids *ids)
{
	int32_t id = b->ignore_merges ? whole(b, word, n) : -1;

	if (id >= 0)
		return jm__ids_add(ids, &id, 1);
	b->word.ids.n = 0;
	return add_chars(b, word, n) && jm__bpe_merge_word(&b->word, &b->merges) &&
	       jm__ids_add(ids, b->word.ids.at, b->word.ids.n);
}

void jm__bpe_done(struct jm__bpe *b)
{
	jm__vocabulary_done(&b->vocabulary);
	jm__merges_done(&b->merges);
	free(b->suffix);
	jm__bpe_word_done(&b->word);
	free(b->text.at);
}
