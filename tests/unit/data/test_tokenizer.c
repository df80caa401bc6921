/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers give the ids and texts that the package `tokenizers` gave (tests/data/tokenizers),
 * refuse what is not right, and may cut a text where they say so. */
#include "kit/test.h"

#include <jansson.h>
#include <stdio.h>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/tokenizer_cut.h"

static const char *const kinds[] = {"gpt2", "gpt2-prefix", "llama3", "starcoder", "qwen", "llama2",
	"llama2-newer", "metaspace", "gemma", "clip"};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void path_of(const char *name, char *path, size_t size)
{
	const char *source = getenv("JM_SOURCE");

	snprintf(path, size, "%s/tests/data/tokenizers/%s.json", source ? source : ".", name);
}

static struct jm_tokenizer *open_kind(const char *kind)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tokenizer *t = NULL;
	char path[512];

	path_of(kind, path, sizeof(path));
	assert_ok(jm_tokenizer_open(path, &t, &err), err);
	return t;
}

static json_t *load(const char *name)
{
	char path[512];
	json_t *all;

	path_of(name, path, sizeof(path));
	all = json_load_file(path, JSON_ALLOW_NUL, NULL);
	assert_non_null(all);
	return all;
}

/* ---- ids and texts --------------------------------------------------------------------------- */

static void check_text(
	struct jm_tokenizer *t, const json_t *text, const json_t *ids, const json_t *decoded)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ids got = {0};
	struct jm_bytes back = {0};

	assert_ok(jm_tokenizer_encode(
			  t, json_string_value(text), json_string_length(text), 0, &got, &err),
		err);
	assert_int_equal(got.n, json_array_size(ids));
	for (size_t i = 0; i < got.n; i++)
		assert_int_equal(got.at[i], json_integer_value(json_array_get(ids, i)));
	assert_ok(jm_tokenizer_decode(t, got.at, got.n, true, &back, &err), err);
	assert_int_equal(back.n, json_string_length(decoded));
	if (back.n)
		assert_memory_equal(back.at, json_string_value(decoded), back.n);
	free(got.at);
	free(back.at);
}

static void ids_and_texts_are_those_of_the_package(void **state)
{
	json_t *all = load("expected"), *texts = json_object_get(all, "texts"), *text;
	size_t i;

	(void)state;
	assert_true(json_array_size(texts) > 20);
	for (size_t k = 0; k < N_KINDS; k++) {
		json_t *ids = json_object_get(json_object_get(all, "ids"), kinds[k]);
		json_t *decoded = json_object_get(json_object_get(all, "decoded"), kinds[k]);
		struct jm_tokenizer *t = open_kind(kinds[k]);

		json_array_foreach(texts, i, text)
		{
			check_text(t, text, json_array_get(ids, i), json_array_get(decoded, i));
		}
		jm_tokenizer_close(t);
	}
	json_decref(all);
}

/* Of bytes nothing is lost. */
static void byte_level_texts_come_back(void **state)
{
	static const char *const lossless[] = {"gpt2", "llama3", "starcoder"};
	json_t *all = load("expected"), *texts = json_object_get(all, "texts"), *text;
	size_t i;

	(void)state;
	for (size_t k = 0; k < sizeof(lossless) / sizeof(lossless[0]); k++) {
		json_t *ids = json_object_get(json_object_get(all, "ids"), lossless[k]);
		struct jm_tokenizer *t = open_kind(lossless[k]);

		json_array_foreach(texts, i, text)
		{
			check_text(t, text, json_array_get(ids, i), text);
		}
		jm_tokenizer_close(t);
	}
	json_decref(all);
}

static struct jm_ids encode(struct jm_tokenizer *t, const char *text, size_t n, unsigned int how)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ids ids = {0};

	assert_ok(jm_tokenizer_encode(t, text, n, how, &ids, &err), err);
	return ids;
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
	static const char bad[] = "a\xff\xe4\xb8z\xed\xa0\x80\xf0\x9f\x98";
	static const char good[] =
		"a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd";
	struct jm_tokenizer *t = open_kind("gpt2");
	struct jm_ids a = encode(t, bad, sizeof(bad) - 1, 0),
		      b = encode(t, good, sizeof(good) - 1, 0);

	(void)state;
	assert_int_equal(a.n, b.n);
	assert_memory_equal(a.at, b.at, a.n * sizeof(*a.at));
	free(a.at);
	free(b.at);
	jm_tokenizer_close(t);
}

static void template_stands_around_the_text(void **state)
{
	struct jm_tokenizer *t = open_kind("clip");
	int32_t start = jm_tokenizer_id(t, "<|startoftext|>", 15),
		end = jm_tokenizer_id(t, "<|endoftext|>", 13);
	struct jm_ids ids = encode(t, "words", 5, JM_TOKENIZER_TEMPLATE);
	struct jm_ids none = encode(t, "", 0, JM_TOKENIZER_TEMPLATE);
	size_t n;

	(void)state;
	assert_true(start >= 0 && end >= 0 && ids.n > 2 && none.n == 2);
	assert_int_equal(ids.at[0], start);
	assert_int_equal(ids.at[ids.n - 1], end);
	assert_memory_equal("<|endoftext|>", jm_tokenizer_token(t, end, &n), 13);
	assert_int_equal(n, 13);
	assert_int_equal(jm_tokenizer_id(t, "no such token", 13), -1);
	assert_null(jm_tokenizer_token(t, jm_tokenizer_size(t), &n));
	assert_null(jm_tokenizer_token(t, -1, &n));
	free(ids.at);
	free(none.at);
	jm_tokenizer_close(t);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static void append(char *to, size_t *n, size_t room, const json_t *text)
{
	size_t length = json_string_length(text);

	if (*n + length + 40 > room)
		return;
	memcpy(to + *n, json_string_value(text), length);
	*n += length;
	*n += (size_t)snprintf(to + *n, 40, "word and more.\nNext <s> line\nXY it's ");
}

/* In parts that end at the last place of each `window` bytes. */
static struct jm_ids encode_parts(
	struct jm_tokenizer *t, const char *text, size_t n, size_t window, size_t *ret_cuts)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ids ids = {0};
	size_t at = 0;

	*ret_cuts = 0;
	while (at < n) {
		size_t left = n - at,
		       cut = left > window ? jm_tokenizer_cut(t, text + at, window) : 0;

		cut = cut ? cut : left > window && window < 1000 ? 0 : left;
		if (!cut) { /* no place: a larger window */
			window += 100;
			continue;
		}
		assert_ok(jm_tokenizer_encode(
				  t, text + at, cut, at ? JM_TOKENIZER_CONTINUES : 0, &ids, &err),
			err);
		at += cut;
		*ret_cuts += 1;
	}
	return ids;
}

static void parts_of_a_text_give_the_tokens_of_the_whole(void **state)
{
	json_t *all = load("expected"), *texts = json_object_get(all, "texts"), *one;
	static char text[60000];
	size_t n = 0, i, cuts;

	(void)state;
	json_array_foreach(texts, i, one)
	{
		append(text, &n, sizeof(text), one);
	}
	for (size_t k = 0; k < N_KINDS; k++) {
		struct jm_tokenizer *t = open_kind(kinds[k]);
		struct jm_ids whole = encode(t, text, n, 0),
			      parts = encode_parts(t, text, n, 60, &cuts);

		assert_true(cuts > 20 || !strcmp(kinds[k], "gpt2-prefix"));
		assert_int_equal(parts.n, whole.n);
		assert_memory_equal(parts.at, whole.at, whole.n * sizeof(*whole.at));
		free(whole.at);
		free(parts.at);
		jm_tokenizer_close(t);
	}
	json_decref(all);
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define MODEL(more)                                                                                \
	"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": " \
	"[\"a b\"]}" more "}"
#define VOCAB(vocab, merges) "{\"model\": {\"vocab\": {" vocab "}, \"merges\": [" merges "]}}"
#define SPLIT(pattern)                                                                             \
	MODEL(", \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", "            \
	      "\"pattern\": {\"Regex\": \"" pattern "\"}}")

static const struct {
	int code;
	const char *json, *names; /* a word of the sentence */
} bad[] = {
	{JM_EFORMAT, "", "not JSON"},
	{JM_EFORMAT, "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\"", "not JSON"},
	{JM_EFORMAT, "[1, 2]", "object"},
	{JM_EFORMAT, "{}", "model"},
	{JM_ENOSUP, "{\"model\": {\"type\": \"Unigram\"}}", "Unigram"},
	{JM_ENOSUP, "{\"model\": {\"type\": 3, \"merges\": []}}", "BPE"},
	{JM_EFORMAT, VOCAB("", ""), "vocab"},
	{JM_EFORMAT, VOCAB("\"a\": 0, \"b\": 0", ""), "twice"},
	{JM_EFORMAT, VOCAB("\"a\": -1", ""), "number"},
	{JM_EFORMAT, VOCAB("\"a\": 4194304", ""), "number"},
	{JM_EFORMAT, VOCAB("\"a\": 1e99", ""), "number"},
	{JM_EFORMAT, VOCAB("\"a\": \"0\"", ""), "number"},
	{JM_EFORMAT, VOCAB("\"a\": 0, \"b\": 1", "\"a b\""), "'ab'"},
	{JM_EFORMAT, VOCAB("\"a\": 0, \"ab\": 1", "\"a b\""), "'b'"},
	{JM_EFORMAT, VOCAB("\"a\": 0", "\"a\""), "merge 0"},
	{JM_EFORMAT, VOCAB("\"a\": 0", "\"a a a\""), "merge 0"},
	{JM_EFORMAT, VOCAB("\"a\": 0", "[\"a\"]"), "merge 0"},
	{JM_EFORMAT, VOCAB("\"a\": 0", "7"), "merge 0"},
	{JM_EFORMAT, "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "merges"},
	{JM_EFORMAT,
		"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], "
		"\"unk_token\": \"u\"}}",
		"unk_token"},
	{JM_ENOSUP,
		"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], "
		"\"dropout\": 0.1}}",
		"dropout"},
	{JM_ENOSUP,
		"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], "
		"\"continuing_subword_prefix\": \"##\"}}",
		"prefix"},
	{JM_ENOSUP, MODEL(", \"normalizer\": {\"type\": \"BertNormalizer\"}"), "BertNormalizer"},
	{JM_EFORMAT, MODEL(", \"normalizer\": {\"type\": \"Sequence\"}"), "normalizers"},
	{JM_EFORMAT,
		MODEL(", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, "
		      "\"content\": \"\"}"),
		"empty"},
	{JM_EFORMAT, MODEL(", \"normalizer\": 5"), "type"},
	{JM_ENOSUP, MODEL(", \"pre_tokenizer\": {\"type\": \"Whitespace\"}"), "Whitespace"},
	{JM_ENOSUP,
		MODEL(", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": "
		      "[{\"type\": \"ByteLevel\"}, "
		      "{\"type\": \"ByteLevel\"}]}"),
		"behind"},
	{JM_EFORMAT, MODEL(", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\"}"),
		"empty"},
	{JM_EFORMAT,
		MODEL(", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", "
		      "\"prepend_scheme\": \"x\"}"),
		"prepend_scheme"},
	{JM_ENOSUP, SPLIT("\\\\w+"), "\\w"},
	{JM_ENOSUP, SPLIT("[a[b]]"), "class in a class"},
	{JM_ENOSUP, SPLIT("a{2}+"), "{n}+"},
	{JM_ENOSUP, SPLIT("a{2}?"), "{n}?"},
	{JM_ENOSUP, SPLIT("(?<x>a)"), "group"},
	{JM_EFORMAT, SPLIT("(a"), "compiled"},
	{JM_EFORMAT, SPLIT("[a"), "compiled"},
	{JM_ENOSUP, MODEL(", \"decoder\": {\"type\": \"CTC\"}"), "CTC"},
	{JM_ENOSUP, MODEL(", \"post_processor\": {\"type\": \"Other\"}"), "Other"},
	{JM_EFORMAT,
		MODEL(", \"post_processor\": {\"type\": \"RobertaProcessing\", \"cls\": [\"x\", "
		      "99]}"),
		"id"},
	{JM_EFORMAT,
		MODEL(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
		      "[{\"SpecialToken\": {\"id\": \"x\"}}]}"),
		"without ids"},
	{JM_EFORMAT, MODEL(", \"added_tokens\": [{\"content\": \"x\", \"id\": 1}]"), "differs"},
	{JM_EFORMAT, MODEL(", \"added_tokens\": [{\"content\": \"a\", \"id\": 1}]"), "differs"},
	{JM_EFORMAT,
		MODEL(", \"added_tokens\": [{\"content\": \"x\", \"id\": 9}, {\"content\": \"y\", "
		      "\"id\": 9}]"),
		"twice"},
	{JM_EFORMAT, MODEL(", \"added_tokens\": [{\"content\": \"x\", \"id\": 999999999}]"),
		"number"},
	{JM_EFORMAT, MODEL(", \"added_tokens\": [{\"id\": 9}]"), "content"},
	{JM_EFORMAT, MODEL(", \"added_tokens\": [{\"content\": \"x\", \"id\": 9, \"lstrip\": 1}]"),
		"lstrip"},
};

static void what_is_wrong_is_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_tokenizer *t = NULL;

		if (!jm_tokenizer_read("t.json", bad[i].json, strlen(bad[i].json), &t, &err))
			fail_msg("accepted: %s", bad[i].json);
		assert_null(t);
		assert_sentence(&err, bad[i].code);
		if (!strstr(err.text, bad[i].names) || !strstr(err.text, "t.json"))
			fail_msg("%s: %s", bad[i].json, err.text);
	}
}

static void files_that_cannot_be_read_are_named(void **state)
{
	struct jm_err missing = JM_ERR_INIT, folder = JM_ERR_INIT;
	struct jm_tokenizer *t = NULL;

	(void)state;
	assert_int_equal(jm_tokenizer_open("no-such.json", &t, &missing), JM_ENOENT);
	assert_sentence(&missing, JM_ENOENT);
	assert_int_equal(jm_tokenizer_open("/", &t, &folder), JM_EFORMAT);
	assert_sentence(&folder, JM_EFORMAT);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static struct jm_tokenizer *read_text(const char *json)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tokenizer *t = NULL;

	assert_ok(jm_tokenizer_read("t.json", json, strlen(json), &t, &err), err);
	return t;
}

/* The JSON library takes no NUL in keys. */
static void token_may_have_a_nul(void **state)
{
	struct jm_tokenizer *t = read_text(VOCAB(
		"\"\\u0000\": 0, \"\\\\u0000\": 1, \"a\": 2, \"a\\u0000\": 3", "\"a \\u0000\""));
	struct jm_ids ids = encode(t, "a\0\0", 3, 0);

	(void)state;
	assert_int_equal(ids.n, 2);
	assert_int_equal(ids.at[0], 3);
	assert_int_equal(ids.at[1], 0);
	assert_int_equal(jm_tokenizer_id(t, "\\u0000", 6), 1);
	free(ids.at);
	jm_tokenizer_close(t);
}

/* A word beyond the limit of the simple search takes the queue: both merge the pair of the lowest
 * rank, the left one first. */
static void long_words_merge_as_short_ones(void **state)
{
	struct jm_tokenizer *t = read_text(VOCAB(
		"\"a\": 0, \"b\": 1, \"ab\": 2, \"aa\": 3, \"abab\": 4, \"aab\": 5, \"ba\": 6",
		"\"a b\", \"ab ab\", \"a ab\", \"a a\", \"b a\""));
	char word[] = "aababaabbaaaababbababaabbbabaaab", text[20000];
	struct jm_ids one = encode(t, word, sizeof(word) - 1, 0), all = {0};
	size_t n = 0;

	(void)state;
	while (n + sizeof(word) < sizeof(text)) {
		memcpy(text + n, word, sizeof(word) - 1);
		text[n + sizeof(word) - 1] = '-'; /* no token: dropped, and its neighbours meet */
		n += sizeof(word) - 1;
	}
	all = encode(t, text, n, 0);
	assert_true(one.n > 5 && all.n > one.n);
	for (size_t i = 0; i + 1 < one.n; i++)
		assert_int_equal(all.at[i], one.at[i]);
	free(one.at);
	free(all.at);
	jm_tokenizer_close(t);
}

/* A model of a few characters with a pattern for its words. */
#define WORDS(vocab, merges, pattern)                                                              \
	"{\"model\": {\"vocab\": {" vocab "}, \"merges\": [" merges "]}, \"pre_tokenizer\": "      \
	"{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"" pattern    \
	"\"}}}"

/* Words of GPT-4o and later take the slashes behind the end of a line. */
static void comment_behind_a_line_is_not_cut_off(void **state)
{
	struct jm_tokenizer *t = read_text(
		WORDS("\"a\": 0, \";\": 1, \"\\n\": 2, \"/\": 3, \"\\n/\": 4", "[\"\\n\", \"/\"]",
			" ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\p{L}+|\\\\s+"));
	static const char text[] = "a;\n//a;\n//a;\n//a\na;\n//a;\n//a;\n//a;\n//a";
	size_t n = sizeof(text) - 1, cuts;
	struct jm_ids whole = encode(t, text, n, 0), parts = encode_parts(t, text, n, 30, &cuts);

	(void)state;
	assert_int_equal(whole.at[2], 4);
	assert_int_equal(cuts, 2); /* behind "a\n" */
	assert_int_equal(parts.n, whole.n);
	assert_memory_equal(parts.at, whole.at, whole.n * sizeof(*whole.at));
	free(whole.at);
	free(parts.at);
	jm_tokenizer_close(t);
}

/* U+3001 is used with Han, but belongs to no script (Scripts.txt of Unicode). */
static void script_has_its_own_characters_only(void **state)
{
	static const char *const patterns[] = {
		WORDS("\"\u4e2d\": 0, \"\u3001\": 1, \"\u4e2d\u3001\": 2", "\"\u4e2d \u3001\"",
			"\\\\p{Han}+"),
		WORDS("\"\u4e2d\": 0, \"\u3001\": 1, \"\u4e2d\u3001\": 2", "\"\u4e2d \u3001\"",
			"[\\\\p{Han}a]+|[\\\\P{Han}]+|\\\\p{^Han}+|\\\\p{Lu}|\\\\pN")};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct jm_tokenizer *t = read_text(patterns[i]);
		struct jm_ids ids = encode(t, "\u4e2d\u3001", 6, 0);

		assert_int_equal(ids.n, 2);
		assert_int_equal(ids.at[0], 0);
		assert_int_equal(ids.at[1], 1);
		free(ids.at);
		jm_tokenizer_close(t);
	}
}

static void unknown_id_is_an_error(void **state)
{
	struct jm_tokenizer *t = open_kind("gpt2");
	struct jm_err err = JM_ERR_INIT;
	struct jm_bytes text = {0};
	const int32_t ids[] = {1, 99999};

	(void)state;
	assert_int_equal(jm_tokenizer_decode(t, ids, 2, true, &text, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	jm_tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_and_texts_are_those_of_the_package),
		cmocka_unit_test(byte_level_texts_come_back),
		cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
		cmocka_unit_test(template_stands_around_the_text),
		cmocka_unit_test(parts_of_a_text_give_the_tokens_of_the_whole),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(files_that_cannot_be_read_are_named),
		cmocka_unit_test(token_may_have_a_nul),
		cmocka_unit_test(long_words_merge_as_short_ones),
		cmocka_unit_test(comment_behind_a_line_is_not_cut_off),
		cmocka_unit_test(script_has_its_own_characters_only),
		cmocka_unit_test(unknown_id_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
