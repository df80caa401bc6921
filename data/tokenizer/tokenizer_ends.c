/* SPDX-License-Identifier: Apache-2.0 */
/* The added tokens, the post_processor and the decoder of tokenizer.json. */
#include "data/tokenizer/tokenizer_ends.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer.h"

/* ---- added tokens ---------------------------------------------------------------------------- */

static int read_flags(struct jm__reader *r, const json_t *token, struct jm__added *one)
{
	const struct {
		const char *key;
		bool *flag;
	} flags[] = {{"single_word", &one->single_word}, {"lstrip", &one->lstrip},
		{"rstrip", &one->rstrip}, {"normalized", &one->normalized},
		{"special", &one->special}};
	int code = 0;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]) && !code; i++)
		code = jm__take_flag(r, token, flags[i].key, "added_tokens", false, flags[i].flag);
	return code;
}

/* What is looked for: in a normalized text the token in its normal form. */
static int find_match(struct jm__reader *r, struct jm__added *one)
{
	const char *text = one->text.at;
	size_t n = one->text.n;
	int code = one->normalized && n ? jm__normalize(&r->t->normalizer, text, n, true, &text, &n)
					: 0;

	if (code || !jm__bytes_add(&one->match, text, n))
		return code == JM_EFORMAT
			       ? jm__refuse(r, code, "an added token cannot be normalized")
			       : jm__reader_no_memory(r);
	return 0;
}

/* The id of a token that the model has, too, is that of the model. */
static int check_id(struct jm__reader *r, const json_t *id, struct jm__added *one)
{
	const struct jm__vocabulary *own = &r->t->bpe.vocabulary;
	int n = (int)(one->text.n < 60 ? one->text.n : 60);
	int32_t known = jm__vocabulary_find(own, one->text.at, one->text.n);
	json_int_t given = json_integer_value(id);
	size_t length;
	int code;

	if (!json_is_integer(id) || given < 0 || given > JM__ID_MOST)
		return jm__refuse(r, JM_EFORMAT,
			"the id of added token '%.*s' is not a number from 0 to %d", n,
			one->text.at, JM__ID_MOST);
	if (known >= 0 ? known != given : jm__vocabulary_text(own, (int32_t)given, &length) != NULL)
		return jm__refuse(r, JM_EFORMAT,
			"added token '%.*s' has id %lld, but its 'vocab' differs", n, one->text.at,
			(long long)given);
	one->id = (int32_t)given;
	code = jm__vocabulary_add(&r->t->added.names, one->text.at, one->text.n, given);
	if (code == JM_ENOMEM)
		return jm__reader_no_memory(r);
	return code ? jm__refuse(r, code, "added token '%.*s' or its id %lld is given twice", n,
			      one->text.at, (long long)given)
		    : 0;
}

static int add_token(struct jm__reader *r, const json_t *token)
{
	struct jm__added one = {0};
	int code = jm__take_member(r, token, "content", "added_tokens", &one.text);

	if (!code)
		code = read_flags(r, token, &one);
	if (!code)
		code = find_match(r, &one);
	if (!code)
		code = check_id(r, json_object_get(token, "id"), &one);
	if (!code && !jm__added_append(&r->t->added, &one))
		code = jm__reader_no_memory(r);
	if (code) {
		free(one.text.at);
		free(one.match.at);
	}
	return code;
}

int jm__read_added(struct jm__reader *r)
{
	const json_t *tokens = json_object_get(r->root, "added_tokens"), *token;
	size_t i;
	int code = 0;

	if (tokens && !json_is_null(tokens) && !json_is_array(tokens))
		return jm__refuse(r, JM_EFORMAT, "its 'added_tokens' are no list");
	json_array_foreach(tokens, i, token)
	{
		code = code ? code : add_token(r, token);
	}
	if (!code)
		jm__added_prepare(&r->t->added);
	return code;
}

/* ---- post_processor -------------------------------------------------------------------------- */

static int add_id(struct jm__reader *r, struct jm_ids *to, const json_t *id)
{
	int32_t value = (int32_t)json_integer_value(id);
	size_t n;

	if (!json_is_integer(id) || json_integer_value(id) != value ||
		!jm_tokenizer_token(r->t, value, &n))
		return jm__refuse(
			r, JM_EFORMAT, "its 'post_processor' has an id that no token has");
	return jm__ids_add(to, &value, 1) ? 0 : jm__reader_no_memory(r);
}

/* The ids of a special token of a template. */
static int add_special(
	struct jm__reader *r, const json_t *template, const json_t *special, struct jm_ids *to)
{
	const char *name = json_string_value(json_object_get(special, "id"));
	const json_t *row =
		name ? json_object_get(json_object_get(template, "special_tokens"), name) : NULL;
	const json_t *ids = json_object_get(row, "ids"), *id;
	size_t i;
	int code = 0;

	if (!json_is_array(ids))
		return jm__refuse(r, JM_EFORMAT,
			"the template of its 'post_processor' has a token without ids");
	json_array_foreach(ids, i, id)
	{
		code = code ? code : add_id(r, to, id);
	}
	return code;
}

static int template(struct jm__reader *r, const json_t *step)
{
	const json_t *single = json_object_get(step, "single"), *one;
	struct jm_ids *to = &r->t->before;
	size_t i;
	int code = 0;

	if (!json_is_array(single))
		return jm__refuse(
			r, JM_EFORMAT, "the template of its 'post_processor' has no 'single'");
	json_array_foreach(single, i, one)
	{
		const json_t *special = json_object_get(one, "SpecialToken");

		if (special)
			code = code ? code : add_special(r, step, special, to);
		else if (json_object_get(one, "Sequence"))
			to = &r->t->after;
	}
	return code;
}

/* ["</s>", 2] */
static int roberta(struct jm__reader *r, const json_t *step)
{
	int code = add_id(r, &r->t->before, json_array_get(json_object_get(step, "cls"), 1));

	return code ? code
		    : add_id(r, &r->t->after, json_array_get(json_object_get(step, "sep"), 1));
}

static int take_processor(struct jm__reader *r, const json_t *step, const char *type)
{
	if (!strcmp(type, "ByteLevel")) /* changes offsets only */
		return 0;
	if (r->t->before.n || r->t->after.n)
		return jm__refuse(r, JM_ENOSUP, "its 'post_processor' has more than one template");
	if (!strcmp(type, "TemplateProcessing"))
		return template(r, step);
	if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing"))
		return roberta(r, step);
	return jm__refuse(r, JM_ENOSUP,
		"its 'post_processor' is of type '%.40s'; supported are TemplateProcessing, "
		"RobertaProcessing, BertProcessing, ByteLevel and Sequence",
		type);
}

int jm__read_post_processor(struct jm__reader *r)
{
	return jm__each_step(r, "post_processor", "processors", take_processor);
}

/* ---- decoder --------------------------------------------------------------------------------- */

static int replace(struct jm__reader *r, const json_t *step, struct jm__decode *s)
{
	struct jm__regex *regex = NULL;
	int code = jm__take_pattern(r, step, "decoder", &regex, &s->find);

	if (regex) {
		jm__regex_free(regex);
		return jm__refuse(r, JM_ENOSUP,
			"a Replace in its 'decoder' has a Regex, and only a String "
			"is supported");
	}
	return code ? code : jm__take_member(r, step, "content", "decoder", &s->with);
}

static int strip(struct jm__reader *r, const json_t *step, struct jm__decode *s)
{
	json_int_t start = json_integer_value(json_object_get(step, "start"));
	json_int_t stop = json_integer_value(json_object_get(step, "stop"));
	int code = jm__take_member(r, step, "content", "decoder", &s->find);

	if (!code && (start < 0 || stop < 0 || !s->find.n))
		code = jm__refuse(r, JM_EFORMAT, "a Strip in its 'decoder' is damaged");
	s->start = (size_t)start;
	s->stop = (size_t)stop;
	return code;
}

static int metaspace(struct jm__reader *r, const json_t *step, struct jm__decode *s)
{
	const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
	int code = jm__take_member(r, step, "replacement", "decoder", &s->find);

	if (scheme)
		s->drops_first = strcmp(scheme, "never") != 0;
	else if (!code)
		code = jm__take_flag(r, step, "add_prefix_space", "decoder", true, &s->drops_first);
	return code;
}

static int suffix(struct jm__reader *r, const json_t *step, struct jm__decode *s)
{
	return jm__take_member(r, step, "suffix", "decoder", &s->find);
}

static const struct {
	const char *type;
	enum jm__decode_kind kind;
	int (*take)(struct jm__reader *r, const json_t *step, struct jm__decode *s);
} decodes[] = {
	{"ByteLevel", JM__DECODE_BYTE_LEVEL, NULL},
	{"Replace", JM__DECODE_REPLACE, replace},
	{"ByteFallback", JM__DECODE_BYTE_FALLBACK, NULL},
	{"Fuse", JM__DECODE_FUSE, NULL},
	{"Strip", JM__DECODE_STRIP, strip},
	{"Metaspace", JM__DECODE_METASPACE, metaspace},
	{"BPEDecoder", JM__DECODE_SUFFIX, suffix},
};

static int take_decode(struct jm__reader *r, const json_t *step, const char *type)
{
	struct jm__decoder *d = &r->t->decoder;
	size_t i = 0, n = sizeof(decodes) / sizeof(decodes[0]);

	while (i < n && strcmp(decodes[i].type, type) != 0)
		i++;
	if (i == n)
		return jm__refuse(r, JM_ENOSUP,
			"its 'decoder' is of type '%.40s'; supported are ByteLevel, Replace, "
			"ByteFallback, "
			"Fuse, Strip, Metaspace, BPEDecoder and Sequence",
			type);
	if (d->n == JM__STEPS_MOST)
		return jm__refuse(
			r, JM_ENOSUP, "its 'decoder' has more than %d steps", JM__STEPS_MOST);
	d->steps[d->n].kind = decodes[i].kind;
	d->n++;
	return decodes[i].take ? decodes[i].take(r, step, &d->steps[d->n - 1]) : 0;
}

int jm__read_decoder(struct jm__reader *r)
{
	return jm__each_step(r, "decoder", "decoders", take_decode);
}
