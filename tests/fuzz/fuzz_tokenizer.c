/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer.json, and a text behind its first NUL: what is accepted encodes and decodes every
 * text, and a text that is cut where the tokenizer allows it gives the same tokens. Without a NUL a
 * fixed tokenizer gets all bytes as its text.
 */
#include "fuzz.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/tokenizer_cut.h"

static const char fixed[] =
	"{\"added_tokens\": [{\"id\": 9, \"content\": \"<s>\", \"lstrip\": true, \"special\": "
	"true}],"
	"\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, "
	"{\"type\": \"Lowercase\"},"
	"{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\s+\"}, \"content\": \" \"}]},"
	"\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", "
	"\"prepend_scheme\": \"first\"},"
	"\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"},"
	"\"model\": {\"type\": \"BPE\", \"unk_token\": \"u\", \"fuse_unk\": true, \"vocab\": "
	"{\"a\": 0, \"b\": 1, \"ab\": 2, \"u\": 3,"
	"\"\xe2\x96\x81\": 4, \"\xe2\x96\x81\x61\": 5, \"aab\": 6, \"abab\": 7, \"\\u0000\": 8},"
	"\"merges\": [\"a b\", \"a ab\", \"ab ab\", \"\xe2\x96\x81 a\"]}}";

static void cut_and_compare(
	struct jm_tokenizer *t, const char *text, size_t n, const struct jm_ids *whole)
{
	size_t cut = jm_tokenizer_cut(t, text, n);
	struct jm_ids parts = {0};

	assert(cut < n || !n);
	if (!cut)
		return;
	if (!jm_tokenizer_encode(t, text, cut, 0, &parts, NULL) &&
		!jm_tokenizer_encode(
			t, text + cut, n - cut, JM_TOKENIZER_CONTINUES, &parts, NULL)) {
		assert(parts.n == whole->n);
		assert(!parts.n || !memcmp(parts.at, whole->at, parts.n * sizeof(*parts.at)));
	}
	free(parts.at);
}

static void use(struct jm_tokenizer *t, const char *text, size_t n, bool compare)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ids ids = {0};
	struct jm_bytes back = {0};
	int rc = jm_tokenizer_encode(t, text, n, JM_TOKENIZER_TEMPLATE, &ids, &err);

	fuzz_check(rc, &err);
	for (size_t i = 0; i < ids.n; i++)
		assert(ids.at[i] >= 0 && ids.at[i] < jm_tokenizer_size(t));
	if (!rc)
		assert(!jm_tokenizer_decode(t, ids.at, ids.n, true, &back, &err));
	ids.n = 0;
	if (compare && !jm_tokenizer_encode(t, text, n, 0, &ids, &err))
		cut_and_compare(t, text, n, &ids);
	free(ids.at);
	free(back.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
	const char *json = nul ? (const char *)data : fixed;
	size_t n = nul ? (size_t)(nul - data) : sizeof(fixed) - 1, at = nul ? n + 1 : 0;
	char *text = malloc(size - at + 1);
	struct jm_err err = JM_ERR_INIT;
	struct jm_tokenizer *t = NULL;
	int rc = jm_tokenizer_read("fuzz.json", json, n, &t, &err);

	assert(text);
	memcpy(text, data + at, size - at);
	text = realloc(
		text, size - at ? size - at : 1); /* so that the sanitizer sees a read beyond it */
	fuzz_check(rc, &err);
	if (!rc)
		use(t, text, size - at, !nul);
	jm_tokenizer_close(t);
	free(text);
	return 0;
}
