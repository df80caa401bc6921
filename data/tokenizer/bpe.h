/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding (Gage 1994; Sennrich et al., arXiv 1508.07909): a word begins as its characters, and the
 * adjacent pair with the lowest rank is merged until no pair has a rank. Of equal ranks the left pair is first.
 */
#ifndef JM_BPE_H
#define JM_BPE_H

#include "data/tokenizer/vocabulary.h"

struct jm__merge {
	uint64_t pair; /* left id << 32 | right id; UINT64_MAX = empty */
	uint32_t rank;
	int32_t id; /* of the merged token */
};

struct jm__bpe {
	struct jm__vocabulary vocabulary; /* without added tokens */
	struct jm__merge *merges;	  /* a hash table */
	size_t n_slots, n_merges;
	bool byte_level; /* texts are bytes, for which the vocabulary has characters (byte_level.h) */
	bool ignore_merges; /* a word that is a token is this token */
	bool byte_fallback; /* a character without token is "<0xE2>"... */
	bool fuse_unknown;  /* unknown characters that follow each other are one token */
	int32_t unknown;    /* -1 = unknown characters are dropped */
	char *suffix;	    /* of the last character of a word; NULL = none */
	int32_t byte_id
		[256]; /* byte_level: -1 = there is none; byte_fallback: all of them, or none is used */
	int32_t byte_end[256]; /* byte_level: with the suffix */
	/* private: of the word that is encoded */
	struct jm_ids word;
	struct jm__link *links;
	struct jm__pair *queue;
	size_t links_room, queue_room, n_queue;
	struct jm_bytes text;
};

/* Replaces an earlier merge of this pair. False: memory ran out. */
bool jm__bpe_add_merge(struct jm__bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* The merge of a pair; NULL = there is none. */
const struct jm__merge *jm__bpe_merge(const struct jm__bpe *b, int32_t left, int32_t right);
/* Fills byte_id and byte_end. To be called when vocabulary and options are complete. */
bool jm__bpe_prepare(struct jm__bpe *b);
/* Appends the ids of a word of n bytes of UTF-8, or of any bytes if byte_level. False: memory ran out. */
bool jm__bpe_encode(struct jm__bpe *b, const char *word, size_t n, struct jm_ids *ids);
void jm__bpe_done(struct jm__bpe *b);

/* bpe_merge.c: merges the pairs of b->word in place. */
bool jm__bpe_merge_word(struct jm__bpe *b);

#endif
