/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding (Gage 1994; Sennrich et al., arXiv 1508.07909): a word begins as its
 * characters, and the adjacent pair with the lowest rank is merged until no pair has a rank. Of
 * equal ranks the left pair is first.
 */
#ifndef JM_BPE_H
#define JM_BPE_H

#include "data/tokenizer/bpe_merge.h"
#include "data/tokenizer/vocabulary.h"

struct jm__bpe {
	struct jm__vocabulary vocabulary; /* without added tokens */
	struct jm__merges merges;
	/* texts are bytes, for which the vocabulary has characters (byte_level.h) */
	bool byte_level;
	bool ignore_merges; /* a word that is a token is this token */
	bool byte_fallback; /* a character without token is "<0xE2>"... */
	bool fuse_unknown;  /* unknown characters that follow each other are one token */
	int32_t unknown;    /* -1 = unknown characters are dropped */
	char *suffix;	    /* of the last character of a word; NULL = none */
	int32_t byte_id
		[256]; /* byte_level: -1 = there is none; byte_fallback: all of them, or none is used */
	int32_t byte_end[256]; /* byte_level: with the suffix */
	/* private: of the word that is encoded */
	struct jm__bpe_word word;
	struct jm_bytes text;
};

/* Fills byte_id and byte_end. To be called when vocabulary and options are complete. */
bool jm__bpe_prepare(struct jm__bpe *b);
/* Appends the ids of a word of n bytes of UTF-8, or of any bytes if byte_level. False: memory ran
 * out. */
bool jm__bpe_encode(struct jm__bpe *b, const char *word, size_t n, struct jm_ids *ids);
void jm__bpe_done(struct jm__bpe *b);

#endif
