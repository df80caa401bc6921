/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/decoder.h"
#include "data/tokenizer/tokenizer_parts.h"
#include "data/tokenizer/utf8.h"

void jm_tokenizer_close(struct jm_tokenizer *t)
{
	if (!t)
		return;
	for (int i = 0; i < t->pre_tokenizer.n; i++) {
		jm__regex_free(t->pre_tokenizer.steps[i].regex);
		free(t->pre_tokenizer.steps[i].find.at);
		free(t->pre_tokenizer.steps[i].room.at);
	}
	jm__bpe_done(&t->bpe);
	jm__normalizer_done(&t->normalizer);
	jm__added_done(&t->added);
	jm__decoder_done(&t->decoder);
	jm__word_cache_done(&t->cache);
	free(t->before.at);
	free(t->after.at);
	free(t->repaired.at);
	free(t->name);
	free(t);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

int32_t jm_tokenizer_size(const struct jm_tokenizer *t)
{
	int32_t added = t->added.names.size, own = t->bpe.vocabulary.size;

	return added > own ? added : own;
}

int32_t jm_tokenizer_id(const struct jm_tokenizer *t, const char *token, size_t n)
{
	int32_t id = jm__vocabulary_find(&t->added.names, token, n);

	return id >= 0 ? id : jm__vocabulary_find(&t->bpe.vocabulary, token, n);
}

const char *jm_tokenizer_token(const struct jm_tokenizer *t, int32_t id, size_t *ret_n)
{
	const char *text = jm__vocabulary_text(&t->added.names, id, ret_n);

	return text ? text : jm__vocabulary_text(&t->bpe.vocabulary, id, ret_n);
}

/* ---- encoding -------------------------------------------------------------------------------- */

struct encoding {
	struct jm_tokenizer *t;
	struct jm_ids *ids;
	struct jm_err *err;
	bool first;
};

static int no_memory(const struct jm_tokenizer *t, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for a text of tokenizer %s.", t->name);
}

typedef int between_fn(struct encoding *e, const char *text, size_t n, bool begins);

/* The tokens in a text, and by `between` what is between them. */
static int find_added(struct encoding *e, bool normalized, const char *text, size_t n, bool begins,
	between_fn *between)
{
	const struct jm__added *one;
	size_t taken = 0, start, end;
	int code = 0;

	while ((one = jm__added_find(&e->t->added, normalized, text, n, taken, &start, &end))) {
		if (start > taken)
			code = between(e, text + taken, start - taken, begins && !taken);
		if (!code && !jm__ids_add(e->ids, &one->id, 1))
			code = no_memory(e->t, e->err);
		if (code)
			return code;
		taken = end;
	}
	return n > taken ? between(e, text + taken, n - taken, begins && !taken) : 0;
}

static int words(struct encoding *e, const char *text, size_t n, bool begins)
{
	return jm__tokenizer_words(e->t, text, n, e->first, begins, e->ids, e->err);
}

static int normalize(struct encoding *e, const char *text, size_t n, bool begins)
{
	int code = jm__normalize(&e->t->normalizer, text, n, e->first || !begins, &text, &n);

	if (code == JM_ENOMEM)
		return no_memory(e->t, e->err);
	if (code)
		return jm_err_set(e->err, code,
			"A pattern of tokenizer %s took too many steps in a text of %zu bytes; "
			"split the text into shorter ones.",
			e->t->name, n);
	return find_added(e, true, text, n, begins, words);
}

static int add_all(struct encoding *e, const struct jm_ids *ids)
{
	return !ids->n || jm__ids_add(e->ids, ids->at, ids->n) ? 0 : no_memory(e->t, e->err);
}

static int encode(struct encoding *e, const char *text, size_t n, unsigned int how)
{
	int code = how & JM_TOKENIZER_BEFORE ? add_all(e, &e->t->before) : 0;

	if (n && !code)
		code = find_added(e, false, text, n, true, normalize);
	if (how & JM_TOKENIZER_BEHIND && !code)
		code = add_all(e, &e->t->after);
	return code;
}

int jm_tokenizer_encode(struct jm_tokenizer *t, const char *text, size_t n, unsigned int how,
	struct jm_ids *ids, struct jm_err *err)
{
	struct encoding e = {t, ids, err, !(how & JM_TOKENIZER_CONTINUES)};
	size_t before = ids->n;
	int code;

	if (jm__utf8_valid(text, n) < n) {
		t->repaired.n = 0;
		if (!jm__utf8_repair(&t->repaired, text, n))
			return no_memory(t, err);
		text = t->repaired.at;
		n = t->repaired.n;
	}
	code = encode(&e, text, n, how);
	if (code)
		ids->n = before;
	return code;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static bool is_special(const struct jm_tokenizer *t, int32_t id)
{
	size_t n;

	if (!jm__vocabulary_text(&t->added.names, id, &n))
		return false;
	for (size_t i = 0; i < t->added.n; i++)
		if (t->added.at[i].id == id)
			return t->added.at[i].special;
	return false;
}

static int take_tokens(const struct jm_tokenizer *t, const int32_t *ids, size_t n, bool special,
	struct jm__pieces *p, struct jm_err *err)
{
	for (size_t i = 0, length; i < n; i++) {
		const char *text = jm_tokenizer_token(t, ids[i], &length);

		if (!text)
			return jm_err_set(err, JM_ERANGE, "Tokenizer %s has no token with id %d.",
				t->name, ids[i]);
		if (!special && is_special(t, ids[i]))
			continue;
		/* without a decoder the tokens are words */
		if (!t->decoder.n && p->n && !jm__bytes_add(&p->bytes, " ", 1))
			return no_memory(t, err);
		if (!jm__pieces_add(p, text, length))
			return no_memory(t, err);
	}
	return 0;
}

int jm_tokenizer_decode(const struct jm_tokenizer *t, const int32_t *ids, size_t n, bool special,
	struct jm_bytes *ret, struct jm_err *err)
{
	struct jm__pieces p = {0};
	int code = take_tokens(t, ids, n, special, &p, err);

	if (!code && p.n && !jm__decoder_run(&t->decoder, &p))
		code = no_memory(t, err);
	if (!code && p.bytes.n && !jm__bytes_add(ret, p.bytes.at, p.bytes.n))
		code = no_memory(t, err);
	jm__pieces_done(&p);
	return code;
}
