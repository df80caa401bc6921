/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/talk_rows.h"

#include <stdlib.h>
#include <string.h>

#define ASKS	"USER: "
#define ANSWERS " ASSISTANT:"

struct work {
	const struct jm_data_set *set;
	struct jm_tokenizer *tokenizer;
	struct jm_ids ids, begin; /* begin: what is before each picture */
	struct jm_bytes learnt, text;
	int32_t end; /* of an answer; -1 = there is no such token */
	int64_t below;
	struct jm_talk_rows *ret;
	struct jm_err *err;
};

static int no_memory(const struct work *w)
{
	return jm_err_set(
		w->err, JM_ENOMEM, "Out of memory for the conversations of %s.", w->set->path);
}

/* Marks the tokens that were added. */
static int mark(struct work *w, bool learnt)
{
	while (w->learnt.n < w->ids.n) {
		if (w->ids.at[w->learnt.n] >= w->below)
			return jm_err_set(w->err, JM_ERANGE,
				"The tokenizer gives token %d, but the network's vocabulary has "
				"only tokens 0 to %lld; give the network's own tokenizer.",
				w->ids.at[w->learnt.n], (long long)w->below - 1);
		if (!jm__bytes_add(&w->learnt, &(char){learnt}, 1))
			return no_memory(w);
	}
	return 0;
}

/* Adds text t between two others. */
static int add(struct work *w, const char *before, int64_t t, const char *behind, bool learnt)
{
	const int64_t *start = w->set->texts.start + t;
	int code;

	w->text.n = 0;
	if (!jm__bytes_add(&w->text, before, strlen(before)) ||
		!jm__bytes_add(
			&w->text, w->set->texts.bytes + start[0], (size_t)(start[1] - start[0])) ||
		!jm__bytes_add(&w->text, behind, strlen(behind)))
		return no_memory(w);
	/* an answer goes on in the text of its question: no space is put before it */
	code = jm_tokenizer_encode(w->tokenizer, w->text.at, w->text.n,
		learnt ? JM_TOKENIZER_CONTINUES : 0, &w->ids, w->err);
	return code ? code : mark(w, learnt);
}

static int add_pair(struct work *w, int64_t turn, bool first)
{
	int code = add(w, first ? "\n" : ASKS, turn, ANSWERS, false);

	if (!code)
		code = add(w, " ", turn + 1, "", true);
	if (!code && w->end >= 0)
		code = jm__ids_add(&w->ids, &w->end, 1) ? mark(w, true) : no_memory(w);
	return code;
}

static int add_conversation(struct work *w, int64_t i)
{
	struct jm_talk_rows *r = w->ret;
	size_t start = w->ids.n;
	int code = jm__ids_add(&w->ids, w->begin.at, w->begin.n) ? mark(w, false) : no_memory(w);

	for (int64_t t = w->set->texts.first[i]; t < w->set->texts.first[i + 1] && !code; t += 2) {
		bool first = t == w->set->texts.first[i];
		size_t fits = w->ids.n;

		code = add_pair(w, t, first);
		if (code || (int64_t)(w->ids.n - start) + r->places <= r->length)
			continue;
		if (first)
			return jm_err_set(w->err, JM_ERANGE,
				"Entry %lld of %s has %lld tokens up to the end of its first "
				"answer, with the %lld of its picture, and a sequence has %lld; "
				"give a larger --seq, or remove the entry.",
				(long long)i, w->set->path,
				(long long)(w->ids.n - start) + (long long)r->places,
				(long long)r->places, (long long)r->length);
		w->ids.n = w->learnt.n = fits;
		r->left_out += (w->set->texts.first[i + 1] - t) / 2;
		break;
	}
	r->start[i + 1] = (int64_t)w->ids.n;
	return code;
}

static int add_all(struct work *w)
{
	static const char *const ends[] = {"</s>", "<|endoftext|>", "<|end_of_text|>"};
	int code = jm_tokenizer_encode(
		w->tokenizer, ASKS, strlen(ASKS), JM_TOKENIZER_BEFORE, &w->begin, w->err);

	w->end = -1;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends) && w->end < 0; i++)
		w->end = jm_tokenizer_id(w->tokenizer, ends[i], strlen(ends[i]));
	w->ret->before = (int64_t)w->begin.n;
	w->ret->start = calloc((size_t)w->set->n + 1, sizeof(*w->ret->start));
	if (!w->ret->start)
		return no_memory(w);
	for (int64_t i = 0; i < w->set->n && !code; i++)
		code = add_conversation(w, i);
	return code;
}

int jm_talk_rows_make(const struct jm_data_set *set, struct jm_tokenizer *t, int64_t length,
	int64_t places, int64_t below, struct jm_talk_rows *ret, struct jm_err *err)
{
	struct jm_talk_rows rows = {.length = length, .places = places};
	struct work w = {.set = set, .tokenizer = t, .below = below, .ret = &rows, .err = err};
	int code = add_all(&w);

	free(w.begin.at);
	free(w.text.at);
	rows.ids = w.ids.at;
	rows.is_learnt = (bool *)w.learnt.at;
	if (code)
		jm_talk_rows_done(&rows);
	else
		*ret = rows;
	return code;
}

void jm_talk_rows_done(struct jm_talk_rows *r)
{
	free(r->ids);
	free(r->is_learnt);
	free(r->start);
	*r = (struct jm_talk_rows){0};
}

void jm_talk_rows_write(
	const struct jm_talk_rows *r, enum jm_data_type type, int64_t i, int32_t *ret)
{
	bool targets = type == JM_DATA_TALK_TARGETS;

	if (type == JM_DATA_TALK_PLACE) {
		*ret = (int32_t)r->before;
		return;
	}
	for (int64_t k = 0; k < r->length; k++)
		ret[k] = targets ? JM_TALK_IGNORED : 0;
	for (int64_t at = r->start[i]; at < r->start[i + 1]; at++) {
		int64_t k = at - r->start[i];

		k += k < r->before ? 0 : r->places;
		if (!targets)
			ret[k] = r->ids[at];
		else if (r->is_learnt[at]) /* never the first token */
			ret[k - 1] = r->ids[at];
	}
}
