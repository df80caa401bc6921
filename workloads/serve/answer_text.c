/* SPDX-License-Identifier: Apache-2.0 */
#include "answer_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/parts/prompts.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, which stands for bytes that are no character */
#define EACH	    8 /* tokens that are kept back, up to which each one is followed by an attempt */

/* How a tokenizer with byte fallback writes a byte: "<0x0A>". */
static bool is_byte(const struct jm_tokenizer *tokenizer, int32_t token)
{
	size_t n;
	const char *text = jm_tokenizer_token(tokenizer, token, &n);

	return text && n == 6 && !memcmp(text, "<0x", 3) && text[5] == '>';
}

/* May more tokens change this text, not only add to it? */
static bool is_open(const struct jm_bytes *text, const struct jm_tokenizer *tokenizer, int32_t last)
{
	size_t n = strlen(REPLACEMENT);

	return (text->n >= n && !memcmp(text->at + text->n - n, REPLACEMENT, n)) ||
	       is_byte(tokenizer, last);
}

/* Tokens that are kept for long are decoded again when there are twice as many, so that their
 * number does not count squared. */
static bool is_due(int kept)
{
	return kept <= EACH || !(kept & (kept - 1));
}

static json_t *numbers(struct jm_answer_text *t, const int32_t *token, int n)
{
	size_t room = 12 * (size_t)(n - t->given) + 1, used = 0;
	char *text = calloc(1, room);
	json_t *ret;

	for (; text && t->given < n; t->given++)
		used += (size_t)snprintf(text + used, room - used, "%d ", token[t->given]);
	ret = text ? json_stringn(text, used) : NULL;
	free(text);
	return ret;
}

/* The piece was given: the window begins with its tokens. */
static void move_on(
	struct jm_answer_text *t, const struct jm_tokenizer *tokenizer, const int32_t *token, int n)
{
	struct jm_bytes text = {0};

	t->from = t->given;
	t->given = n;
	jm_prompts_decode(tokenizer, token + t->from, n - t->from, &text);
	t->told = text.n;
	free(text.at);
}

json_t *jm_answer_text_next(struct jm_answer_text *t, const struct jm_tokenizer *tokenizer,
	const int32_t *token, int n, bool is_last)
{
	struct jm_bytes text = {0};
	json_t *ret = NULL;

	if (!tokenizer)
		return numbers(t, token, n);
	if (n == t->given || (!is_last && !is_due(n - t->given)))
		return json_string("");
	jm_prompts_decode(tokenizer, token + t->from, n - t->from, &text);
	if (text.n > t->told && (is_last || !is_open(&text, tokenizer, token[n - 1]))) {
		ret = json_stringn(text.at + t->told, text.n - t->told);
		move_on(t, tokenizer, token, n);
	}
	free(text.at);
	return ret ? ret : json_string("");
}
