/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a language model learns from, as one stream of tokens: any file, byte by byte, or a Megatron
 * data set (NAME.bin with NAME.idx). Read where a batch needs it, so a text may be larger than
 * memory.
 */
#ifndef JM_CORPUS_H
#define JM_CORPUS_H

#include "joulemark.h"

struct jm_corpus {
	char *name; /* NULL = no file is open */
	int fd;
	size_t bytes; /* of the file */
	int width;    /* bytes of a token */
	bool is_signed;
	int64_t tokens;
	/* Megatron: sequences by their first token in the stream and byte in the file; else NULL */
	int64_t *start, *pointer;
	int64_t n_sequences, n_documents;
};

/*
 * path: a text; or NAME, NAME.bin or NAME.idx of a Megatron data set. The error names the file and
 * what is wrong with it.
 */
int jm_corpus_open(const char *path, struct jm_corpus *ret, struct jm_err *err);
/* Gives c the open file that its tokens are in; jm_corpus_close closes it. */
int jm_corpus_take(const char *name, int fd, size_t bytes, struct jm_corpus *c, struct jm_err *err);
void jm_corpus_close(struct jm_corpus *c);

/* XXH3 of the first n bytes of the file. */
int jm_corpus_digest(const struct jm_corpus *c, size_t n, uint64_t *ret, struct jm_err *err);

/*
 * Tokens at .. at + n - 1 of the stream; those that no i32 can hold become -1. The range must
 * exist. JM_EFORMAT: the file became shorter since it was opened.
 */
int jm_corpus_read(
	const struct jm_corpus *c, int64_t at, int64_t n, int32_t *ret, struct jm_err *err);

/*
 * The contents of an .idx file that describes a .bin file of bin_size bytes: width, tokens, start
 * and pointer (to be freed by jm_corpus_close), without the file itself. Trusts nothing. name: for
 * the error.
 */
int jm_corpus_index(const char *name, const void *index, size_t size, size_t bin_size,
	struct jm_corpus *ret, struct jm_err *err);

#endif
