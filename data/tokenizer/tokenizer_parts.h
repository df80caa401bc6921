/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tokenizer consists of, in the order in which a text passes through it: added tokens are
 * found, the text between them is normalized, added tokens are found in what came out, the rest is
 * split into words, the words become tokens. Decoding has steps of its own.
 */
#ifndef JM_TOKENIZER_PARTS_H
#define JM_TOKENIZER_PARTS_H

#include "joulemark.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/split_regex.h"
#include "data/tokenizer/word_cache.h"

#define JM__STEPS_MOST 16
#define JM__SPACE_MARK "\xe2\x96\x81" /* U+2581, which stands for a space in tokens */

/* ---- normalizer.c ---------------------------------------------------------------------------- */

enum jm__normal_kind { JM__PREPEND, JM__REPLACE, JM__LOWERCASE, JM__NFC, JM__STRIP_TEXT };

struct jm__normal {
	enum jm__normal_kind kind;
	struct jm__regex *regex;    /* REPLACE: what is replaced; NULL: `find` is */
	struct jm_bytes find, with; /* PREPEND has `with` */
	bool left, right;	    /* STRIP_TEXT */
};

struct jm__normalizer {
	struct jm__normal steps[JM__STEPS_MOST];
	int n;
	struct jm_bytes room[2];
};

/* The text after all steps, valid until the next call. first: no text was before it that it
 * continues. JM_ENOMEM, JM_EFORMAT: a pattern took too many steps. Sets no sentence. */
int jm__normalize(struct jm__normalizer *z, const char *text, size_t n, bool first,
	const char **ret, size_t *ret_n);
void jm__normalizer_done(struct jm__normalizer *z);

/* ---- added_tokens.c -------------------------------------------------------------------------- */

struct jm__added {
	int32_t id;
	struct jm_bytes text; /* as in the file */
	struct jm_bytes
		match; /* what is looked for: the text, or its normal form if `normalized` */
	bool single_word, lstrip, rstrip, normalized, special;
};

struct jm__added_tokens {
	struct jm__added *at; /* longest `match` first */
	size_t n, room;
	struct jm__vocabulary names;
	bool begins[2][256]; /* by `normalized`: such a byte begins a token */
	bool any[2];
};

/* Takes the bytes of `one`. */
bool jm__added_append(struct jm__added_tokens *a, const struct jm__added *one);
/* To be called when all are there. */
void jm__added_prepare(struct jm__added_tokens *a);
/*
 * The first token at or behind `from`, whose place is what it takes of the text; NULL = none.
 * taken: where the text that is not yet part of a token begins.
 */
const struct jm__added *jm__added_find(const struct jm__added_tokens *a, bool normalized,
	const char *text, size_t n, size_t taken, size_t *ret_start, size_t *ret_end);
void jm__added_done(struct jm__added_tokens *a);

/* ---- pre_tokenizer.c ------------------------------------------------------------------------- */

enum jm__split_kind { JM__SPLIT, JM__BYTE_LEVEL, JM__METASPACE };
enum jm__behavior { JM__ISOLATED, JM__REMOVED, JM__CONTIGUOUS, JM__WITH_PREVIOUS, JM__WITH_NEXT };
enum jm__prepend { JM__NEVER, JM__FIRST, JM__ALWAYS };

struct jm__split {
	enum jm__split_kind kind;
	struct jm__regex *regex; /* NULL: `find` is what splits, or nothing */
	struct jm_bytes find;
	enum jm__behavior behavior;
	bool invert;		  /* the text between matches counts as match */
	bool prefix_space;	  /* BYTE_LEVEL: a text that begins without a space gets one */
	enum jm__prepend prepend; /* METASPACE: the same for `find`, which replaces spaces */
	bool splits;		  /* METASPACE: words begin at `find` */
	struct jm_bytes room;
};

struct jm__pre_tokenizer {
	struct jm__split steps[JM__STEPS_MOST];
	int n;
};

/* ---- decoder.c ------------------------------------------------------------------------------- */

enum jm__decode_kind {
	JM__DECODE_BYTE_LEVEL,
	JM__DECODE_REPLACE,
	JM__DECODE_BYTE_FALLBACK,
	JM__DECODE_FUSE,
	JM__DECODE_STRIP,
	JM__DECODE_METASPACE,
	JM__DECODE_SUFFIX
};

struct jm__decode {
	enum jm__decode_kind kind;
	struct jm_bytes find, with; /* REPLACE; STRIP, METASPACE, SUFFIX have `find` */
	size_t start, stop;	    /* STRIP: at most so many at the begin and the end of a token */
	bool drops_first;	    /* METASPACE: marks in the first token are no spaces */
};

struct jm__decoder {
	struct jm__decode steps[JM__STEPS_MOST];
	int n;
};

/* ---- the whole ------------------------------------------------------------------------------- */

struct jm_tokenizer {
	char *name; /* of the file */
	struct jm__bpe bpe;
	struct jm__normalizer normalizer;
	struct jm__added_tokens added;
	struct jm__pre_tokenizer pre_tokenizer;
	struct jm__decoder decoder;
	struct jm_ids before, after; /* the template */
	struct jm__word_cache cache;
	struct jm_bytes repaired;
	/* no merge joins a mark of a space with what is before it, so words end there */
	bool splits_at_marks;
	bool cuts_at_spaces, cuts_at_lines;
	bool counts_words; /* while cuts are sought: the ids are the lengths of words */
};

/* tokenizer_cut.c: where texts may be cut, for a tokenizer that is complete. JM_ENOMEM. */
int jm__tokenizer_find_cuts(struct jm_tokenizer *t, struct jm_err *err);
/* pre_tokenizer.c: appends the ids of a normalized text without added tokens. first: as of
 * jm__normalize */
int jm__tokenizer_words(struct jm_tokenizer *t, const char *text, size_t n, bool first, bool begins,
	struct jm_ids *ids, struct jm_err *err);

#endif
