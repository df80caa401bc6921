/* SPDX-License-Identifier: Apache-2.0 */
/* Captions become the tokens that the package `tokenizers` gave (tests/data/tokenizers), with its
 * template, cut and padded, and stay with their pictures. */
#include "data/sets/cifar.h"
#include "data/sets/conversation_list.h"
#include "data/sets/talk_rows.h"
#include "data/tokenizer/tokenizer_json.h"
#include "kit/test.h"
#include "workloads/train/picture_loader.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N     20 /* pictures */
#define BATCH 4
#define SIDE  32
#define PLANE (SIDE * SIDE)
#define BEGIN 0 /* tokens of the template, in the file's post_processor */
#define END   1
#define PAD   7
#define BELOW 2000

extern const struct jm_data_format jm_data_format_cifar;

static json_t *load(const char *name, char *path, size_t size)
{
	const char *source = getenv("JM_SOURCE");
	json_t *all;

	snprintf(path, size, "%s/tests/data/tokenizers/%s.json", source ? source : ".", name);
	all = json_load_file(path, JSON_ALLOW_NUL, NULL);
	assert_non_null(all);
	return all;
}

/* Pictures of CIFAR whose red is their number; picture i has texts 2 i and 2 i + 1. */
static void make_set(struct jm_data_set *ret, const json_t *texts)
{
	unsigned char *bytes = calloc(N, 3073);
	struct jm_err err = JM_ERR_INIT;
	struct jm_sample_texts *t = &ret->texts;
	int64_t at = 0;

	*ret = (struct jm_data_set){.path = strdup("test"), .format = &jm_data_format_cifar};
	for (int i = 0; i < N; i++)
		memset(bytes + 3073 * i + 1, 10 * i, PLANE);
	assert_ok(jm_cifar_parse(ret, bytes, (size_t)N * 3073, 10, &err), err);
	t->first = calloc(N + 1, sizeof(*t->first));
	t->start = calloc(2 * N + 1, sizeof(*t->start));
	t->bytes = malloc(1 << 20);
	for (int k = 0; k < 2 * N; k++) {
		const json_t *text = json_array_get(texts, (size_t)k);

		memcpy(t->bytes + at, json_string_value(text), json_string_length(text));
		at += (int64_t)json_string_length(text);
		t->start[k + 1] = at;
		t->first[k / 2 + 1] = 2 * (k / 2 + 1);
	}
}

struct fixture {
	json_t *expected;
	struct jm_tokenizer *tokenizer;
	struct jm_data_set set;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct jm_err err = JM_ERR_INIT;
	char path[512];

	f->expected = load("expected", path, sizeof(path));
	make_set(&f->set, json_object_get(f->expected, "texts"));
	json_decref(load("clip", path, sizeof(path)));
	assert_ok(jm_tokenizer_open(path, &f->tokenizer, &err), err);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	json_decref(f->expected);
	jm_tokenizer_close(f->tokenizer);
	jm_data_set_close(&f->set);
	free(f);
	return 0;
}

/* The row of text k, from the ids in the file. */
static void row_of(const struct fixture *f, int k, int length, int32_t *ret)
{
	json_t *ids = json_array_get(
		json_object_get(json_object_get(f->expected, "ids"), "clip"), (size_t)k);
	int n = (int)json_array_size(ids);

	n = n < length - 2 ? n : length - 2;
	ret[0] = BEGIN;
	for (int i = 0; i < n; i++)
		ret[i + 1] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
	ret[n + 1] = END;
	for (int i = n + 2; i < length; i++)
		ret[i] = PAD;
}

/* Texts that do not fit into a row. */
static int64_t longer(const struct fixture *f, int length)
{
	json_t *ids = json_object_get(json_object_get(f->expected, "ids"), "clip");
	int64_t n = 0;

	for (size_t k = 0; k < 2 * N; k++)
		n += json_array_size(json_array_get(ids, k)) > (size_t)length - 2;
	return n;
}

static bool is_row(const struct fixture *f, int k, int length, const int32_t *row)
{
	int32_t wanted[77];

	row_of(f, k, length, wanted);
	return !memcmp(row, wanted, (size_t)length * sizeof(*row));
}

static void rows_have_the_ids_of_tokenizers(void **state)
{
	static const int lengths[] = {77, 8, 2};
	const struct fixture *f = *state;
	struct jm_err err = JM_ERR_INIT;

	for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
		struct jm_token_rows rows;
		bool second = false;
		int32_t row[77];

		assert_ok(jm_token_rows_make(
				  &f->set, f->tokenizer, lengths[k], PAD, BELOW, &rows, &err),
			err);
		assert_int_equal(rows.cut, longer(f, lengths[k]));
		for (int i = 0; i < N; i++) {
			jm_token_rows_write(&rows, i, 0, row);
			assert_true(is_row(f, 2 * i, lengths[k], row));
			jm_token_rows_write(&rows, i, 12345 + (uint64_t)i, row);
			second = second || is_row(f, 2 * i + 1, lengths[k], row);
			assert_true(is_row(f, 2 * i, lengths[k], row) ||
				    is_row(f, 2 * i + 1, lengths[k], row));
		}
		assert_true(second);
		jm_token_rows_done(&rows);
	}
}

static void refuses_tokens_outside_the_vocabulary(void **state)
{
	const struct fixture *f = *state;
	struct jm_token_rows rows;
	struct jm_err err = JM_ERR_INIT, other = JM_ERR_INIT;

	assert_int_equal(
		jm_token_rows_make(&f->set, f->tokenizer, 77, PAD, 30, &rows, &err), JM_ERANGE);
	assert_non_null(strstr(err.text, "vocabulary has only tokens 0 to 29"));
	assert_int_equal(
		jm_token_rows_make(&f->set, f->tokenizer, 1, PAD, BELOW, &rows, &other), JM_ERANGE);
	assert_non_null(strstr(other.text, "puts 2 tokens around a text"));
}

/* Number of a picture, whose red is 10 times it, as -1 to 1. */
static int picture_in(const float *pixels)
{
	return (int)((pixels[PLANE / 2] + 1) * 127.5f / 10 + 0.5f);
}

static void captions_stay_with_their_pictures(void **state)
{
	const struct fixture *f = *state;
	struct jm_token_rows rows;
	struct jm_err err = JM_ERR_INIT;
	struct jm_loader_way way = {.set = &f->set,
		.part = {{.type = JM_DATA_TEXT, .bytes = 77 * sizeof(int32_t), .tokens = &rows},
			{.type = JM_DATA_PICTURE, .bytes = 3 * PLANE * sizeof(float)}},
		.parts = 2,
		.crop = {.size = SIDE,
			.kind = JM_CROP_SQUARE,
			.type = JM_F32,
			.colours = JM_COLOURS_SIGNED},
		.memory = 1 << 24,
		.seed = 3,
		.batch = BATCH,
		.threads = 3,
		.world = 1};
	struct jm_picture_loader *l;
	float *pixels = malloc(BATCH * way.part[1].bytes);
	int32_t tokens[BATCH][77];
	int seen[N] = {0};

	assert_ok(jm_token_rows_make(&f->set, f->tokenizer, 77, PAD, BELOW, &rows, &err), err);
	assert_ok(jm_picture_loader_open(&way, &l, &err), err);
	for (int64_t k = 0; k < 2 * N / BATCH; k++) {
		assert_ok(jm_picture_loader_take(l, k, (void *[]){tokens, pixels}, &err), err);
		for (int b = 0; b < BATCH; b++) {
			int i = picture_in(pixels + (size_t)b * 3 * PLANE);

			assert_in_range(i, 0, N - 1);
			assert_true(is_row(f, 2 * i, 77, tokens[b]) ||
				    is_row(f, 2 * i + 1, 77, tokens[b]));
			seen[i]++;
		}
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(seen[i], 2); /* once in each epoch */
	jm_picture_loader_close(l);
	jm_token_rows_done(&rows);
	free(pixels);
}

/* "USER: ", the picture and the text behind it are two texts for the tokenizer, as in LLaVA's
 * tokenizer_image_token. */
static void assert_rows(const struct jm_data_set *set, const char *behind)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ids wanted = {0};
	struct jm_tokenizer *t;
	struct jm_talk_rows rows;
	char path[512];

	json_decref(load("llama2", path, sizeof(path)));
	assert_ok(jm_tokenizer_open(path, &t, &err), err);
	assert_ok(jm_tokenizer_encode(t, "USER: ", 6, JM_TOKENIZER_BEFORE, &wanted, &err), err);
	assert_ok(jm_tokenizer_encode(t, behind, strlen(behind), 0, &wanted, &err), err);
	assert_ok(jm_talk_rows_make(set, t, 200, 4, BELOW, &rows, &err), err);
	assert_int_equal(rows.start[1], wanted.n);
	assert_memory_equal(rows.ids, wanted.at, wanted.n * sizeof(*wanted.at));
	assert_true(rows.is_learnt[wanted.n - 1] && !rows.is_learnt[0]);
	jm_talk_rows_done(&rows);
	jm_tokenizer_close(t);
	free(wanted.at);
}

/* Each part of a conversation is turned into tokens by itself; LLaVA does so with all that stands
 * behind the picture at once. */
static void later_questions_have_the_tokens_of_the_whole_text(void **state)
{
	static char texts[] = "Which colour?redAnd now? As before.";
	static int64_t start[] = {0, 13, 16, 24, sizeof(texts) - 1}, first[] = {0, 4};
	const struct jm_data_set set = {
		.path = (char *)"test", .n = 1, .texts = {texts, start, first}};

	(void)state;
	assert_rows(&set,
		"\nWhich colour? ASSISTANT: red</s>USER: And now? ASSISTANT:  As before.</s>");
}

/* LLaVA's preprocess_multimodal: '<image>\n' + value.replace('<image>', '').strip() */
static void a_question_stands_below_its_picture(void **state)
{
	static const char *const cases[][2] = {
		{"<image>\\nWhich colour?", "\nWhich colour? ASSISTANT: red</s>"},
		{"Which colour?\\n<image>", "\nWhich colour? ASSISTANT: red</s>"},
		{" \\n <image> \\n Which colour? \\n", "\nWhich colour? ASSISTANT: red</s>"},
		{" Of <image> which?", "\nOf  which? ASSISTANT: red</s>"},
		{"Which <image>\\n", "\nWhich ASSISTANT: red</s>"},
		{"<image>", "\n ASSISTANT: red</s>"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct jm_conversations c = {0};
		struct jm_err err = JM_ERR_INIT;
		char json[400];

		snprintf(json, sizeof(json),
			"[{\"image\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": "
			"\"%s\"}, {\"from\": \"gpt\", \"value\": \"red\"}]}]",
			cases[i][0]);
		assert_ok(jm_conversations_read(&c, "test", json, strlen(json), &err), err);
		assert_rows(
			&(struct jm_data_set){.path = (char *)"test", .n = c.n, .texts = c.texts},
			cases[i][1]);
		jm_conversations_done(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rows_have_the_ids_of_tokenizers, setup, teardown),
		cmocka_unit_test_setup_teardown(
			refuses_tokens_outside_the_vocabulary, setup, teardown),
		cmocka_unit_test_setup_teardown(captions_stay_with_their_pictures, setup, teardown),
		cmocka_unit_test(later_questions_have_the_tokens_of_the_whole_text),
		cmocka_unit_test(a_question_stands_below_its_picture),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
