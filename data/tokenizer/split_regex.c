/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/split_regex.h"
#include "data/tokenizer/regex_translate.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK_FIRST 32768
#define STACK_MOST  (8 << 20)
#define STEPS_MOST  10000000

struct jm__regex {
	pcre2_code *code;
	pcre2_match_data *match;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
	bool jit;
};

static pcre2_code *compile(const struct jm_bytes *pattern, int *ret_error)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	pcre2_code *code;
	size_t at;

	*ret_error = PCRE2_ERROR_NOMEMORY;
	if (!context)
		return NULL;
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	/* ^ and $ of Ruby are those of lines */
	code = pcre2_compile((PCRE2_SPTR)pattern->at, pattern->n,
		PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, ret_error, &at,
		context);
	pcre2_compile_context_free(context);
	return code;
}

/* False: memory ran out. Without JIT, where the system forbids it, the interpreter runs. */
static bool prepare(struct jm__regex *r)
{
	r->match = pcre2_match_data_create_from_pattern(r->code, NULL);
	r->context = pcre2_match_context_create(NULL);
	if (!r->match || !r->context)
		return false;
	pcre2_set_match_limit(r->context, STEPS_MOST);
	r->jit = !pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
	if (r->jit) {
		r->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
		if (!r->stack)
			return false;
		pcre2_jit_stack_assign(r->context, NULL, r->stack);
	}
	return true;
}

int jm__regex_new(const char *pattern, size_t n, struct jm__regex **ret, char *why, size_t size)
{
	struct jm__regex *r = calloc(1, sizeof(*r));
	struct jm_bytes translated = {0};
	const char *what = "";
	int code = r ? jm__regex_translate(pattern, n, &translated, &what) : JM_ENOMEM, error = 0;

	if (code == JM_ENOSUP)
		snprintf(why, size, "its pattern '%.*s' has %s, which is not supported",
			(int)(n < 80 ? n : 80), pattern, what);
	if (!code) {
		char text[120] = "";

		r->code = compile(&translated, &error);
		code = r->code ? 0 : error == PCRE2_ERROR_NOMEMORY ? JM_ENOMEM : JM_EFORMAT;
		pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof(text));
		if (code == JM_EFORMAT)
			snprintf(why, size, "its pattern '%.*s' cannot be compiled: %s",
				(int)(n < 80 ? n : 80), pattern, text);
	}
	if (!code && !prepare(r))
		code = JM_ENOMEM;
	free(translated.at);
	if (code) {
		jm__regex_free(r);
		return code;
	}
	*ret = r;
	return 0;
}

void jm__regex_free(struct jm__regex *r)
{
	if (!r)
		return;
	pcre2_match_data_free(r->match);
	pcre2_match_context_free(r->context);
	pcre2_jit_stack_free(r->stack);
	pcre2_code_free(r->code);
	free(r);
}

int jm__regex_find(const struct jm__regex *r, const char *text, size_t n, size_t from,
	size_t *ret_start, size_t *ret_end)
{
	const PCRE2_SIZE *found = pcre2_get_ovector_pointer(r->match);
	int got = PCRE2_ERROR_JIT_STACKLIMIT;

	if (r->jit)
		got = pcre2_jit_match(r->code, (PCRE2_SPTR)text, n, from, 0, r->match, r->context);
	if (got == PCRE2_ERROR_JIT_STACKLIMIT)
		got = pcre2_match(r->code, (PCRE2_SPTR)text, n, from,
			PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->match, r->context);
	if (got == PCRE2_ERROR_NOMATCH)
		return 0;
	/* \K in a lookaround may put the start behind the end */
	if (got < 0 || found[0] > found[1] || found[0] < from)
		return -1;
	*ret_start = found[0];
	*ret_end = found[1];
	return 1;
}
