/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room data: from texts to the tokens that a network learns.
 * May include: lib/base.
 *
 * A tokenizer, read from the tokenizer.json of the Hugging Face library `tokenizers`. It has
 * byte-pair encoding (BPE) over bytes (GPT-2, Llama 3, Qwen), over characters with bytes for the
 * others (Llama 2, Mistral), and with an end-of-word suffix (CLIP). What a file needs beyond that
 * is refused at opening; its truncation and padding are not applied.
 *
 * A tokenizer keeps words that it has met in a cache of fixed size, so each thread needs its own.
 */
#ifndef JM_TOKENIZER_H
#define JM_TOKENIZER_H

#include "joulemark.h"
#include "data/tokenizer/bytes.h"

struct jm_tokenizer;

void jm_tokenizer_close(struct jm_tokenizer *t); /* takes NULL */

/* The largest id and 1, with those of added tokens. */
int32_t jm_tokenizer_size(const struct jm_tokenizer *t);
/* The id of a token by its text as in the file ("<|endoftext|>"); -1 = there is none. */
int32_t jm_tokenizer_id(const struct jm_tokenizer *t, const char *token, size_t n);
/* The text of a token as in the file, ret_n bytes without a NUL behind them; NULL = no token has
 * this id. */
const char *jm_tokenizer_token(const struct jm_tokenizer *t, int32_t id, size_t *ret_n);

enum {
	/* with the tokens that the file's post_processor puts before a text, behind it, or both */
	JM_TOKENIZER_BEFORE = 1,
	JM_TOKENIZER_BEHIND = 2,
	JM_TOKENIZER_TEMPLATE = 3,
	JM_TOKENIZER_CONTINUES = 4, /* the text continues one that was cut by jm_tokenizer_cut */
};

/*
 * Appends the ids of a text of n bytes to `ids`. The text is UTF-8; bytes that are not count as
 * U+FFFD, as Python's errors="replace" reads them. how: JM_TOKENIZER_*. After an error `ids` holds
 * those that it held before.
 */
int jm_tokenizer_encode(struct jm_tokenizer *t, const char *text, size_t n, unsigned int how,
	struct jm_ids *ids, struct jm_err *err);

/* Appends the text of n ids. special: with special tokens. JM_ERANGE: no token has this id. */
int jm_tokenizer_decode(const struct jm_tokenizer *t, const int32_t *ids, size_t n, bool special,
	struct jm_bytes *ret, struct jm_err *err);

#endif
