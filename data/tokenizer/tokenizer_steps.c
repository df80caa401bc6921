/* SPDX-License-Identifier: Apache-2.0 */
/* The normalizer and the pre_tokenizer of tokenizer.json. */
#include "data/tokenizer/tokenizer_steps.h"

#include <string.h>

/* The words of GPT-2 (Radford et al. 2019, its encoder): endings, letters, digits, others, each
 * with a space before it, and white space. */
#define GPT2_WORDS                                                                                 \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- normalizer ------------------------------------------------------------------------------ */

static int strip_text(struct jm__reader *r, const json_t *step, struct jm__normal *s)
{
	int code = jm__take_flag(r, step, "strip_left", "normalizer", false, &s->left);

	return code ? code : jm__take_flag(r, step, "strip_right", "normalizer", false, &s->right);
}

static int replace(struct jm__reader *r, const json_t *step, struct jm__normal *s)
{
	int code = jm__take_pattern(r, step, "normalizer", &s->regex, &s->find);

	return code ? code : jm__take_member(r, step, "content", "normalizer", &s->with);
}

static int prepend(struct jm__reader *r, const json_t *step, struct jm__normal *s)
{
	return jm__take_member(r, step, "prepend", "normalizer", &s->with);
}

static const struct {
	const char *type;
	enum jm__normal_kind kind;
	int (*take)(struct jm__reader *r, const json_t *step, struct jm__normal *s);
} normals[] = {
	{"Prepend", JM__PREPEND, prepend},
	{"Replace", JM__REPLACE, replace},
	{"Lowercase", JM__LOWERCASE, NULL},
	{"NFC", JM__NFC, NULL},
	{"Strip", JM__STRIP_TEXT, strip_text},
};

static int take_normal(struct jm__reader *r, const json_t *step, const char *type)
{
	struct jm__normalizer *z = &r->t->normalizer;
	size_t i = 0, n = sizeof(normals) / sizeof(normals[0]);

	while (i < n && strcmp(normals[i].type, type) != 0)
		i++;
	if (i == n)
		return jm__refuse(r, JM_ENOSUP,
			"its 'normalizer' is of type '%.40s'; supported are Prepend, Replace, "
			"Lowercase, "
			"NFC, Strip and Sequence",
			type);
	if (z->n == JM__STEPS_MOST)
		return jm__refuse(
			r, JM_ENOSUP, "its 'normalizer' has more than %d steps", JM__STEPS_MOST);
	z->steps[z->n].kind = normals[i].kind;
	z->n++;
	return normals[i].take ? normals[i].take(r, step, &z->steps[z->n - 1]) : 0;
}

int jm__read_normalizer(struct jm__reader *r)
{
	return jm__each_step(r, "normalizer", "normalizers", take_normal);
}

/* ---- pre_tokenizer --------------------------------------------------------------------------- */

static int index_of(const char *word, const char *const *words)
{
	for (int i = 0; word && words[i]; i++)
		if (!strcmp(word, words[i]))
			return i;
	return -1;
}

static int split(struct jm__reader *r, const json_t *step, struct jm__split *s)
{
	static const char *const names[] = {[JM__ISOLATED] = "Isolated",
		[JM__REMOVED] = "Removed",
		[JM__CONTIGUOUS] = "Contiguous",
		[JM__WITH_PREVIOUS] = "MergedWithPrevious",
		[JM__WITH_NEXT] = "MergedWithNext",
		NULL};
	int behavior = index_of(json_string_value(json_object_get(step, "behavior")), names);
	int code = jm__take_pattern(r, step, "pre_tokenizer", &s->regex, &s->find);

	if (!code)
		code = jm__take_flag(r, step, "invert", "pre_tokenizer", false, &s->invert);
	if (!code && behavior < 0)
		code = jm__refuse(
			r, JM_EFORMAT, "the behavior of a Split in its 'pre_tokenizer' is unknown");
	s->behavior = behavior < 0 ? JM__ISOLATED : (enum jm__behavior)behavior;
	return code;
}

static int byte_level(struct jm__reader *r, const json_t *step, struct jm__split *s)
{
	bool words = true;
	char why[300];
	int code =
		jm__take_flag(r, step, "add_prefix_space", "pre_tokenizer", true, &s->prefix_space);

	if (!code)
		code = jm__take_flag(r, step, "use_regex", "pre_tokenizer", true, &words);
	if (code)
		return code;
	r->t->bpe.byte_level = true;
	if (words && jm__regex_new(GPT2_WORDS, strlen(GPT2_WORDS), &s->regex, why, sizeof(why)))
		return jm__reader_no_memory(r);
	return 0;
}

static int digits(struct jm__reader *r, const json_t *step, struct jm__split *s)
{
	bool each = false;
	char why[300];
	int code = jm__take_flag(r, step, "individual_digits", "pre_tokenizer", false, &each);
	const char *pattern = each ? "\\p{N}" : "\\p{N}+";

	if (!code && jm__regex_new(pattern, strlen(pattern), &s->regex, why, sizeof(why)))
		code = jm__reader_no_memory(r);
	return code;
}

/* Old files have add_prefix_space, newer ones prepend_scheme. */
static int prepend_scheme(struct jm__reader *r, const json_t *step, enum jm__prepend *ret)
{
	static const char *const names[] = {
		[JM__NEVER] = "never", [JM__FIRST] = "first", [JM__ALWAYS] = "always", NULL};
	const json_t *scheme = json_object_get(step, "prepend_scheme");
	int which = index_of(json_string_value(scheme), names), code;
	bool prefix = true;

	if (scheme && which < 0)
		return jm__refuse(r, JM_EFORMAT, "the 'prepend_scheme' of a Metaspace is unknown");
	*ret = (enum jm__prepend)which;
	if (scheme)
		return 0;
	code = jm__take_flag(r, step, "add_prefix_space", "pre_tokenizer", true, &prefix);
	*ret = prefix ? JM__ALWAYS : JM__NEVER;
	return code;
}

static int metaspace(struct jm__reader *r, const json_t *step, struct jm__split *s)
{
	int code = jm__take_member(r, step, "replacement", "pre_tokenizer", &s->find);

	if (!code && !s->find.n)
		code = jm__refuse(r, JM_EFORMAT, "the 'replacement' of a Metaspace is empty");
	if (!code)
		code = prepend_scheme(r, step, &s->prepend);
	if (!code)
		code = jm__take_flag(r, step, "split", "pre_tokenizer", true, &s->splits);
	s->behavior = JM__WITH_NEXT;
	return code;
}

static const struct {
	const char *type;
	enum jm__split_kind kind;
	int (*take)(struct jm__reader *r, const json_t *step, struct jm__split *s);
} splits[] = {
	{"Split", JM__SPLIT, split},
	{"Digits", JM__SPLIT, digits},
	{"ByteLevel", JM__BYTE_LEVEL, byte_level},
	{"Metaspace", JM__METASPACE, metaspace},
};

static int take_split(struct jm__reader *r, const json_t *step, const char *type)
{
	struct jm__pre_tokenizer *p = &r->t->pre_tokenizer;
	size_t i = 0, n = sizeof(splits) / sizeof(splits[0]);

	while (i < n && strcmp(splits[i].type, type) != 0)
		i++;
	if (i == n)
		return jm__refuse(r, JM_ENOSUP,
			"its 'pre_tokenizer' is of type '%.40s'; supported are Split, Digits, "
			"ByteLevel, Metaspace and Sequence",
			type);
	if (p->n == JM__STEPS_MOST || r->t->bpe.byte_level)
		return jm__refuse(r, JM_ENOSUP, "its 'pre_tokenizer' has %s",
			p->n == JM__STEPS_MOST ? "too many steps" : "a step behind ByteLevel");
	p->steps[p->n].kind = splits[i].kind;
	p->n++;
	return splits[i].take(r, step, &p->steps[p->n - 1]);
}

int jm__read_pre_tokenizer(struct jm__reader *r)
{
	return jm__each_step(r, "pre_tokenizer", "pretokenizers", take_split);
}
