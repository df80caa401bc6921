/* SPDX-License-Identifier: Apache-2.0 */
/* The merges of one word. */
#ifndef JM_BPE_MERGE_H
#define JM_BPE_MERGE_H

#include "data/tokenizer/bpe_table.h"
#include "data/tokenizer/bytes.h"

/* The tokens of a word; zeroed = none. What is private is kept from word to word. */
struct jm__bpe_word {
	struct jm_ids ids;
	/* private: of the word that is merged */
	const struct jm__merges *merges;
	struct jm__link *links;
	struct jm__pair *queue;
	size_t links_room, queue_room, n_queue;
};

/* Merges the pairs of word->ids in place. False: memory ran out. */
bool jm__bpe_merge_word(struct jm__bpe_word *word, const struct jm__merges *merges);
void jm__bpe_word_done(struct jm__bpe_word *word);

#endif
