/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/token_rows.h"

#include <stdlib.h>
#include <string.h>

struct work {
	const struct jm_data_set *set;
	struct jm_tokenizer *tokenizer;
	struct jm_ids before, behind; /* of the template */
	struct jm_ids text, all;
	int64_t below;
	struct jm_token_rows *ret;
	struct jm_err *err;
};

static int no_memory(const struct work *w)
{
	return jm_err_set(w->err, JM_ENOMEM, "Out of memory for the captions of %s.", w->set->path);
}

static int check(const struct work *w, const struct jm_ids *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ids->at[i] >= w->below)
			return jm_err_set(w->err, JM_ERANGE,
				"The tokenizer gives token %d, but the network's vocabulary has "
				"only tokens 0 "
				"to %lld; give the network's own tokenizer.",
				ids->at[i], (long long)w->below - 1);
	return 0;
}

static int find_template(struct work *w)
{
	int code =
		jm_tokenizer_encode(w->tokenizer, "", 0, JM_TOKENIZER_BEFORE, &w->before, w->err);

	if (!code)
		code = jm_tokenizer_encode(
			w->tokenizer, "", 0, JM_TOKENIZER_BEHIND, &w->behind, w->err);
	if (!code && w->before.n + w->behind.n > (size_t)w->ret->length)
		code = jm_err_set(w->err, JM_ERANGE,
			"The tokenizer puts %zu tokens around a text, but the network reads only "
			"%lld tokens of a caption; give the network's own tokenizer, or a longer "
			"--caption.",
			w->before.n + w->behind.n, (long long)w->ret->length);
	if (!code)
		code = check(w, &w->before, w->before.n);
	return code ? code : check(w, &w->behind, w->behind.n);
}

static int add(struct work *w, int64_t text)
{
	const int64_t *start = w->set->texts.start + text;
	size_t most = (size_t)w->ret->length - w->before.n - w->behind.n, n;
	int code;

	w->text.n = 0;
	code = jm_tokenizer_encode(w->tokenizer, w->set->texts.bytes + start[0],
		(size_t)(start[1] - start[0]), 0, &w->text, w->err);
	if (code)
		return code;
	n = w->text.n < most ? w->text.n : most;
	w->ret->cut += n < w->text.n;
	code = check(w, &w->text, n);
	if (code)
		return code;
	if (!jm__ids_add(&w->all, w->before.at, w->before.n) ||
		!jm__ids_add(&w->all, w->text.at, n) ||
		!jm__ids_add(&w->all, w->behind.at, w->behind.n))
		return no_memory(w);
	w->ret->start[text + 1] = (int64_t)w->all.n;
	return 0;
}

static int add_all(struct work *w)
{
	int64_t texts = w->set->texts.first[w->set->n];
	int code = find_template(w);

	if (code)
		return code;
	w->ret->start = calloc((size_t)texts + 1, sizeof(*w->ret->start));
	if (!w->ret->start)
		return no_memory(w);
	for (int64_t t = 0; t < texts && !code; t++)
		code = add(w, t);
	return code;
}

int jm_token_rows_make(const struct jm_data_set *set, struct jm_tokenizer *t, int64_t length,
	int32_t pad, int64_t below, struct jm_token_rows *ret, struct jm_err *err)
{
	struct jm_token_rows rows = {.first = set->texts.first, .length = length, .pad = pad};
	struct work w = {.set = set, .tokenizer = t, .below = below, .ret = &rows, .err = err};
	int code = add_all(&w);

	free(w.before.at);
	free(w.behind.at);
	free(w.text.at);
	rows.ids = w.all.at;
	if (code)
		jm_token_rows_done(&rows);
	else
		*ret = rows;
	return code;
}

void jm_token_rows_done(struct jm_token_rows *r)
{
	free(r->ids);
	free(r->start);
	*r = (struct jm_token_rows){0};
}

void jm_token_rows_write(const struct jm_token_rows *r, int64_t i, uint64_t seed, int32_t *ret)
{
	int64_t texts = r->first[i + 1] - r->first[i];
	int64_t t = r->first[i] + (int64_t)(seed % (uint64_t)texts);
	int64_t n = r->start[t + 1] - r->start[t];

	memcpy(ret, r->ids + r->start[t], (size_t)n * sizeof(*ret));
	for (; n < r->length; n++)
		ret[n] = r->pad;
}
