/* SPDX-License-Identifier: Apache-2.0 */
/* The model of tokenizer.json: vocabulary and merges. */
#include "data/tokenizer/tokenizer_model.h"

#include <stdlib.h>
#include <string.h>

/* ---- vocabulary ------------------------------------------------------------------------------ */

static int add_token(struct jm__reader *r, const char *key, const json_t *id, struct jm_bytes *text)
{
	int code = jm__take_text(r, key, text);

	if (code)
		return code;
	if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		json_integer_value(id) > JM__ID_MOST)
		return jm__refuse(r, JM_EFORMAT,
			"the id of token '%.60s' in its 'vocab' is not a number from 0 to %d", key,
			JM__ID_MOST);
	code = jm__vocabulary_add(&r->t->bpe.vocabulary, text->at, text->n, json_integer_value(id));
	if (code == JM_ENOMEM)
		return jm__reader_no_memory(r);
	return code ? jm__refuse(r, JM_EFORMAT,
			      "the id %lld of token '%.60s' in its 'vocab' is given twice",
			      (long long)json_integer_value(id), key)
		    : 0;
}

static int read_vocabulary(struct jm__reader *r, json_t *model)
{
	json_t *vocabulary = json_object_get(model, "vocab"), *id;
	struct jm_bytes text = {0};
	const char *key;
	int code = 0;

	if (!json_object_size(vocabulary))
		return jm__refuse(r, JM_EFORMAT, "its 'vocab' is missing, empty or no object");
	json_object_foreach(vocabulary, key, id)
	{
		code = add_token(r, key, id, &text);
		if (code)
			break;
	}
	free(text.at);
	return code;
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* Of "a b" or ["a", "b"]. */
static int halves_of(
	struct jm__reader *r, const json_t *merge, size_t number, struct jm_bytes half[2])
{
	const char *text = json_string_value(merge), *space;
	int code;

	if (json_is_array(merge)) {
		const char *left = json_string_value(json_array_get(merge, 0));
		const char *right = json_string_value(json_array_get(merge, 1));

		if (!left || !right || json_array_size(merge) != 2)
			return jm__refuse(
				r, JM_EFORMAT, "merge %zu is not a pair of texts", number);
		code = jm__take_text(r, left, &half[0]);
		return code ? code : jm__take_text(r, right, &half[1]);
	}
	space = text ? strchr(text, ' ') : NULL;
	if (!space || strchr(space + 1, ' '))
		return jm__refuse(
			r, JM_EFORMAT, "merge %zu is not two tokens with a space between", number);
	code = jm__take_text(r, text, &half[0]);
	if (!code)
		code = jm__take_text(r, space + 1, &half[1]);
	half[0].n = code ? 0 : (size_t)((char *)memchr(half[0].at, ' ', half[0].n) - half[0].at);
	return code;
}

static int unknown_token(struct jm__reader *r, size_t number, const struct jm_bytes *token)
{
	return jm__refuse(r, JM_EFORMAT, "merge %zu has token '%.*s', which is not in its 'vocab'",
		number, (int)(token->n < 60 ? token->n : 60), token->at);
}

static int add_merge(
	struct jm__reader *r, const json_t *merge, size_t number, struct jm_bytes half[3])
{
	struct jm__bpe *b = &r->t->bpe;
	int32_t id[3];
	int code = halves_of(r, merge, number, half);

	if (code)
		return code;
	half[2].n = 0;
	if (!jm__bytes_add(&half[2], half[0].at, half[0].n) ||
		!jm__bytes_add(&half[2], half[1].at, half[1].n))
		return jm__reader_no_memory(r);
	for (int i = 0; i < 3; i++) {
		id[i] = jm__vocabulary_find(&b->vocabulary, half[i].at, half[i].n);
		if (id[i] < 0)
			return unknown_token(r, number, &half[i]);
	}
	return jm__merges_add(&b->merges, id[0], id[1], (uint32_t)number, id[2])
		       ? 0
		       : jm__reader_no_memory(r);
}

static int read_merges(struct jm__reader *r, const json_t *model)
{
	const json_t *merges = json_object_get(model, "merges"), *merge;
	struct jm_bytes half[3] = {{0}};
	size_t i;
	int code = 0;

	if (!json_is_array(merges))
		return jm__refuse(r, JM_EFORMAT, "its 'merges' are missing or no list");
	json_array_foreach(merges, i, merge)
	{
		code = add_merge(r, merge, i, half);
		if (code)
			break;
	}
	for (i = 0; i < 3; i++)
		free(half[i].at);
	return code;
}

/* ---- options --------------------------------------------------------------------------------- */

static int read_flags(struct jm__reader *r, const json_t *model)
{
	struct jm__bpe *b = &r->t->bpe;
	int code = jm__take_flag(r, model, "ignore_merges", "model", false, &b->ignore_merges);

	if (!code)
		code = jm__take_flag(r, model, "byte_fallback", "model", false, &b->byte_fallback);
	if (!code)
		code = jm__take_flag(r, model, "fuse_unk", "model", false, &b->fuse_unknown);
	return code;
}

static int read_suffix(struct jm__reader *r, const json_t *model)
{
	const json_t *suffix = json_object_get(model, "end_of_word_suffix");

	if (!suffix || json_is_null(suffix) || !json_string_length(suffix))
		return json_is_string(suffix) || !suffix || json_is_null(suffix)
			       ? 0
			       : jm__refuse(r, JM_EFORMAT, "its 'end_of_word_suffix' is no text");
	r->t->bpe.suffix = strdup(json_string_value(suffix));
	return r->t->bpe.suffix ? 0 : jm__reader_no_memory(r);
}

static int read_unknown(struct jm__reader *r, const json_t *model)
{
	const json_t *unknown = json_object_get(model, "unk_token");
	struct jm__bpe *b = &r->t->bpe;

	b->unknown = -1;
	/* some files have an empty one; bytes are never unknown */
	if (!json_string_length(unknown) &&
		(!unknown || json_is_null(unknown) || json_is_string(unknown)))
		return 0;
	if (json_is_string(unknown))
		b->unknown = jm__vocabulary_find(
			&b->vocabulary, json_string_value(unknown), json_string_length(unknown));
	return b->unknown < 0 && !b->byte_level
		       ? jm__refuse(r, JM_EFORMAT, "its 'unk_token' is not in its 'vocab'")
		       : 0;
}

/* What would change the tokens and is not supported. */
static int check_others(struct jm__reader *r, const json_t *model)
{
	const json_t *dropout = json_object_get(model, "dropout");
	const json_t *prefix = json_object_get(model, "continuing_subword_prefix");

	if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
		return jm__refuse(r, JM_ENOSUP,
			"'dropout' of its model is not 0, and random merges are "
			"not supported");
	if (json_string_length(prefix))
		return jm__refuse(r, JM_ENOSUP,
			"its model has a 'continuing_subword_prefix', which is not supported");
	return 0;
}

/* Old files have no type. */
static int check_type(struct jm__reader *r, const json_t *model)
{
	const json_t *type = json_object_get(model, "type");
	const char *name = json_string_value(type);

	if (!json_is_object(model))
		return jm__refuse(r, JM_EFORMAT, "it has no 'model'");
	if (type ? !name || strcmp(name, "BPE") != 0 : !json_object_get(model, "merges"))
		return jm__refuse(r, JM_ENOSUP,
			"its model is of type '%.40s', and only BPE is supported (GPT-2, Llama, "
			"Qwen, "
			"Mistral, CLIP)",
			name ? name : "none");
	return 0;
}

int jm__read_model(struct jm__reader *r)
{
	static int (*const parts[])(struct jm__reader *, const json_t *) = {
		check_others, read_flags, read_suffix, read_unknown, read_merges};
	json_t *model = json_object_get(r->root, "model");
	int code = check_type(r, model);

	if (!code)
		code = read_vocabulary(r, model);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !code; i++)
		code = parts[i](r, model);
	return code || jm__bpe_prepare(&r->t->bpe) ? code : jm__reader_no_memory(r);
}
