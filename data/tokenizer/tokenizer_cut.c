/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a text may be cut so that its parts give the tokens of the whole: before a space between
 * two ASCII letters, and behind the end of a line between two printable characters. Whether a
 * tokenizer allows this is found out once: no merge and no added token may reach over such a place,
 * and texts that were cut there must give the same tokens.
 */
#include "data/tokenizer/tokenizer_cut.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_space_place(const char *text, size_t n, size_t at)
{
	return at > 0 && at + 1 < n && text[at] == ' ' && isalpha((unsigned char)text[at - 1]) &&
	       isalpha((unsigned char)text[at + 1]);
}

/* A byte beyond ASCII may belong to a space, so only that of an ASCII character may be before or
 * behind; or to a letter of Greek to Arabic or CJK, where it is none. */
static bool is_printable(unsigned char byte)
{
	return (byte > ' ' && byte < 0x7f) || (byte >= 0xce && byte <= 0xdd) ||
	       (byte >= 0xe4 && byte <= 0xed);
}

static size_t character_before(const char *text, size_t at)
{
	at--;
	while (at && ((unsigned char)text[at] & 0xc0) == 0x80)
		at--;
	return at;
}

/* Not before a slash: some tokenizers (GPT-4o's) have words that reach over a line to "//". */
static bool is_line_place(const char *text, size_t n, size_t at)
{
	return at > 1 && at < n && text[at - 1] == '\n' && text[at] != '/' &&
	       is_printable((unsigned char)text[at]) &&
	       is_printable((unsigned char)text[character_before(text, at - 1)]);
}

size_t jm_tokenizer_cut(const struct jm_tokenizer *t, const char *text, size_t n)
{
	for (size_t at = n; at-- > 1;)
		if ((t->cuts_at_spaces && is_space_place(text, n, at)) ||
			(t->cuts_at_lines && is_line_place(text, n, at)))
			return at;
	return 0;
}

/* ---- what a tokenizer allows ----------------------------------------------------------------- */

static bool reaches_over(const char *text, size_t n, const char *what, size_t n_what)
{
	const char *at = memmem(text, n, what, n_what), *end = text + n;
	const char *other = at;

	/* a run of `what` alone, at the begin of a token, ends no word within it */
	if (at == text)
		while (other && (size_t)(end - other) >= n_what && !memcmp(other, what, n_what))
			other += n_what;
	return at && (at != text || memmem(other, (size_t)(end - other), what, n_what));
}

/* Does a merge join a mark of a space to something before it? */
static bool merges_before_mark(const struct jm__bpe *b)
{
	for (size_t i = 0; i < b->merges.n_slots; i++) {
		const char *text;
		size_t n;

		if (b->merges.slot[i].pair == UINT64_MAX)
			continue;
		text = jm__vocabulary_text(&b->vocabulary, b->merges.slot[i].id, &n);
		if (!text || reaches_over(text, n, JM__SPACE_MARK, 3))
			return true;
	}
	return false;
}

/* Does a merge join the end of a line to something behind it? */
static bool merges_behind_line(const struct jm__bpe *b)
{
	for (size_t i = 0; i < b->merges.n_slots; i++) {
		const char *text, *line;
		size_t n;

		if (b->merges.slot[i].pair == UINT64_MAX)
			continue;
		text = jm__vocabulary_text(&b->vocabulary, b->merges.slot[i].id, &n);
		line = text ? memrchr(text, '\n', n) : NULL;
		if (!text || (line && line + 1 < text + n))
			return true;
	}
	return false;
}

static bool is_white(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* No added token has white space within it, or takes it from the other side of a cut. */
static void check_added(const struct jm__added_tokens *a, bool *spaces, bool *lines)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct jm__added *one = &a->at[i];
		const struct jm_bytes *text = &one->text;

		for (size_t k = 0; k < text->n && text->n > 1; k++)
			if (is_white(text->at[k]))
				*spaces = *lines = false;
		if (one->rstrip && text->n && isalpha((unsigned char)text->at[text->n - 1]))
			*spaces = false;
		if (one->lstrip)
			*lines = false;
	}
}

/* Does the end of a line always become a token, which no unknown character can be joined to? */
static bool knows_line(const struct jm__bpe *b)
{
	return b->byte_level || jm__vocabulary_find(&b->vocabulary, "\n", 1) >= 0 ||
	       (b->byte_fallback && b->byte_id['\n'] >= 0);
}

/* The tokens, or words, of a text as a whole and cut at a place are the same. */
static int compare(struct jm_tokenizer *t, const char *text, size_t n, size_t at, bool *same,
	struct jm_err *err)
{
	struct jm_ids whole = {0}, parts = {0};
	int code = jm_tokenizer_encode(t, text, n, 0, &whole, err);

	if (!code)
		code = jm_tokenizer_encode(t, text, at, 0, &parts, err);
	if (!code)
		code = jm_tokenizer_encode(
			t, text + at, n - at, JM_TOKENIZER_CONTINUES, &parts, err);
	*same = !code && whole.n == parts.n &&
		(!whole.n || !memcmp(whole.at, parts.at, whole.n * sizeof(*whole.at)));
	free(whole.at);
	free(parts.at);
	return code;
}

typedef bool place_fn(const char *text, size_t n, size_t at);

static const char *const probes[] = {
	"The year, it's 1969 when we say (or don't) a b c of that; I'll x.\n"
	"New line!\nand MORE words, \n of 2 kinds.\n2nd\n\nwe're   done\na\nb.\n(c) d\n"
	"Grüße aus Köln\n\xe4\xb8\xad\xe6\x96\x87\xe3\x80\x82\n\xe4\xb8\xad\xe6\x96\x87\n"
	"\xd0\xb4\xd0\xb0\n\xd0\xbd\xd0\xb5\xd1\x82.",
	/* each sign before and behind the end of a line */
	"a\n!\n\"\n#\n$\n%\n&\n'\n(\n)\n*\n+\n,\n-\n./\n:\n;\n<\n=\n>\n?\n@\n[\n\\\n]\n^\n_\n`\n"
	"{\n|\n}\n~\n0\na",
};

/* Are all such places of the probes good, by their words or by their tokens? JM_ENOMEM. */
static int probe(struct jm_tokenizer *t, place_fn *is_place, bool words, bool *ret)
{
	struct jm_err err = JM_ERR_INIT;
	bool good = true;
	int code = 0;

	t->counts_words = words;
	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
		const char *text = probes[i];
		size_t n = strlen(text);

		for (size_t at = 1; at < n && good && !code; at++)
			if (is_place(text, n, at))
				code = compare(t, text, n, at, &good, &err);
	}
	t->counts_words = false;
	*ret = good && !code;
	return code == JM_ENOMEM ? code : 0;
}

int jm__tokenizer_find_cuts(struct jm_tokenizer *t, struct jm_err *err)
{
	const struct jm__bpe *b = &t->bpe;
	bool spaces = true, lines = true, by_words = false, by_tokens = false;
	int code;

	check_added(&t->added, &spaces, &lines);
	t->splits_at_marks = !b->byte_level && !b->ignore_merges && !b->suffix &&
			     jm__vocabulary_find(&b->vocabulary, JM__SPACE_MARK, 3) >= 0 &&
			     !merges_before_mark(b);
	code = probe(t, is_space_place, true, &by_words);
	t->cuts_at_spaces = spaces && by_words;
	if (!code)
		code = probe(t, is_line_place, true, &by_words);
	if (!code && !by_words && knows_line(b) && !merges_behind_line(b))
		code = probe(t, is_line_place, false, &by_tokens);
	t->cuts_at_lines = lines && (by_words || by_tokens);
	return code ? jm_err_set(err, code, "Out of memory for tokenizer %s.", t->name) : 0;
}
