/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of text of random tokens and of texts with characters of several tokens: joined they are
 * what all tokens together are, by the tokenizer itself, and no piece ends within a character. */
#include "kit/test.h"
#include "data/tokenizer/tokenizer_json.h"
#include "workloads/serve/answer_text.h"

#include <stdio.h>

enum { TOKENS = 300, ROUNDS = 20 };

static const char *const kinds[] = {
	"gpt2", "llama3", "qwen", "llama2", "llama2-newer", "metaspace", "gemma", "clip"};

static struct jm_tokenizer *open_kind(const char *kind)
{
	const char *source = getenv("JM_SOURCE");
	struct jm_err err = JM_ERR_INIT;
	struct jm_tokenizer *t = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/data/tokenizers/%s.json", source ? source : ".",
		kind);
	assert_ok(jm_tokenizer_open(path, &t, &err), err);
	return t;
}

static int32_t draw(uint64_t *seed, int32_t below)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (int32_t)((*seed >> 33) % (uint64_t)below);
}

/* Tokens of the vocabulary that have a text; returns how many. */
static int draw_tokens(const struct jm_tokenizer *t, uint64_t *seed, int32_t *token)
{
	int n = 0;
	size_t length;

	while (n < TOKENS) {
		int32_t one = draw(seed, jm_tokenizer_size(t));

		if (jm_tokenizer_token(t, one, &length))
			token[n++] = one;
	}
	return n;
}

static void check_pieces(const struct jm_tokenizer *t, const int32_t *token, int n)
{
	struct jm_answer_text text = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_bytes whole = {0};
	size_t used = 0;

	assert_ok(jm_tokenizer_decode(t, token, (size_t)n, false, &whole, &err), err);
	for (int i = 1; i <= n; i++) {
		json_t *piece = jm_answer_text_next(&text, t, token, i, i == n);

		assert_non_null(piece);
		assert_true(used + json_string_length(piece) <= whole.n);
		assert_memory_equal(
			whole.at + used, json_string_value(piece), json_string_length(piece));
		used += json_string_length(piece);
		json_decref(piece);
	}
	assert_int_equal(used, whole.n);
	free(whole.at);
}

static void joined_pieces_of_random_tokens_are_the_text(void **state)
{
	int32_t token[TOKENS];
	uint64_t seed = 28;

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct jm_tokenizer *t = open_kind(kinds[k]);

		for (int i = 0; i < ROUNDS; i++)
			check_pieces(t, token, draw_tokens(t, &seed, token));
		jm_tokenizer_close(t);
	}
}

static void joined_pieces_of_a_text_are_the_text(void **state)
{
	static const char text[] = "Größe: 5 µm — 漢字 \U0001F642\U0001F468\u200D\U0001F469 "
				   "na\u0308chste,  two  spaces.";
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct jm_tokenizer *t = open_kind(kinds[k]);
		struct jm_ids ids = {0};

		assert_ok(jm_tokenizer_encode(
				  t, text, strlen(text), JM_TOKENIZER_TEMPLATE, &ids, &err),
			err);
		check_pieces(t, ids.at, (int)ids.n);
		free(ids.at);
		jm_tokenizer_close(t);
	}
}

/* The pieces of ASCII come with their own tokens, and at once. */
static void whole_characters_are_not_kept_back(void **state)
{
	static const char text[] = "one two three";
	struct jm_tokenizer *t = open_kind("llama3");
	struct jm_answer_text pieces = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_ids ids = {0};

	(void)state;
	assert_ok(jm_tokenizer_encode(t, text, strlen(text), 0, &ids, &err), err);
	assert_true(ids.n >= 3);
	for (size_t i = 1; i <= ids.n; i++) {
		json_t *piece = jm_answer_text_next(&pieces, t, ids.at, (int)i, i == ids.n);

		assert_true(json_string_length(piece) > 0);
		json_decref(piece);
	}
	free(ids.at);
	jm_tokenizer_close(t);
}

/* A million tokens: decoding all of them for each would take hours. */
static void time_grows_with_the_number_of_tokens(void **state)
{
	static const int n = 1000000;
	struct jm_tokenizer *t = open_kind("llama3");
	struct jm_answer_text pieces = {0};
	int32_t *token = calloc((size_t)n, sizeof(*token));
	uint64_t seed = 5;

	(void)state;
	assert_non_null(token);
	for (int i = 0; i < n; i++)
		token[i] = i < n / 2 ? draw(&seed, 200)
				     : 130; /* bytes; one that no character begins with */
	for (int i = 1; i <= n; i++)
		json_decref(jm_answer_text_next(&pieces, t, token, i, i == n));
	assert_int_equal(pieces.given, n);
	free(token);
	jm_tokenizer_close(t);
}

static void without_a_tokenizer_the_text_is_numbers(void **state)
{
	static const int32_t token[] = {7, 0, 1234567890};
	struct jm_answer_text pieces = {0};
	json_t *first = jm_answer_text_next(&pieces, NULL, token, 1, false),
	       *rest = jm_answer_text_next(&pieces, NULL, token, 3, true);

	(void)state;
	assert_string_equal(json_string_value(first), "7 ");
	assert_string_equal(json_string_value(rest), "0 1234567890 ");
	json_decref(first);
	json_decref(rest);
}

/* A model has more ids than its tokenizer: these change nothing. */
static void ids_without_a_token_have_no_text(void **state)
{
	struct jm_tokenizer *t = open_kind("llama3");
	int32_t token[TOKENS];
	struct jm_answer_text with = {0}, without = {0};
	uint64_t seed = 7;
	json_t *a, *b;
	int n = draw_tokens(t, &seed, token);

	(void)state;
	b = jm_answer_text_next(&without, t, token, n - 1, true);
	memmove(token + 10, token + 9, (size_t)(n - 10) * sizeof(*token));
	token[9] = jm_tokenizer_size(t) + 20;
	a = jm_answer_text_next(&with, t, token, n, true);
	assert_true(json_string_length(b) > 0);
	assert_string_equal(json_string_value(a), json_string_value(b));
	json_decref(a);
	json_decref(b);
	jm_tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joined_pieces_of_random_tokens_are_the_text),
		cmocka_unit_test(ids_without_a_token_have_no_text),
		cmocka_unit_test(joined_pieces_of_a_text_are_the_text),
		cmocka_unit_test(whole_characters_are_not_kept_back),
		cmocka_unit_test(time_grows_with_the_number_of_tokens),
		cmocka_unit_test(without_a_tokenizer_the_text_is_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
