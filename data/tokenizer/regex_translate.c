/* SPDX-License-Identifier: Apache-2.0 */
/* From Oniguruma's regular expressions to PCRE2's. */
#include "data/tokenizer/regex_translate.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

/* White_Space of Unicode; \s of PCRE2 also has U+180E. */
#define SPACE                                                                                      \
	"\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
	"\\x{205f}\\x{3000}"

struct translation {
	const char *at, *end;
	bool in_class;
	struct jm_bytes *ret;
	const char *what; /* what is not supported */
	bool ok;	  /* memory did not run out */
};

static void put(struct translation *t, const char *text, size_t n)
{
	t->ok = t->ok && jm__bytes_add(t->ret, text, n);
}

static void put_text(struct translation *t, const char *text)
{
	put(t, text, strlen(text));
}

/* "\uHHHH" */
static void put_code(struct translation *t)
{
	size_t digits = 0;

	while (digits < 4 && t->at + 2 + digits < t->end &&
		isxdigit((unsigned char)t->at[2 + digits]))
		digits++;
	if (digits < 4) {
		t->what = "\\u without four digits";
		return;
	}
	put_text(t, "\\x{");
	put(t, t->at + 2, 4);
	put_text(t, "}");
	t->at += 6;
}

static bool is_script(const char *name, size_t n)
{
	char pattern[64];
	int length = snprintf(pattern, sizeof(pattern), "\\p{sc:%.*s}", (int)n, name), error;
	pcre2_code *code;
	size_t at;

	if (length >= (int)sizeof(pattern))
		return false;
	code = pcre2_compile((PCRE2_SPTR)pattern, (size_t)length, PCRE2_UTF, &error, &at, NULL);
	pcre2_code_free(code);
	return code;
}

/* \p{Han} is what belongs to that script alone. To PCRE2 since 10.40 it is also what is used with
 * it, and \p{sc:Han} the former; older ones do not know "sc:" and mean the former. */
static void put_property(struct translation *t)
{
	const char *brace = t->at + 2, *close = memchr(t->at, '}', (size_t)(t->end - t->at));
	const char *name = brace + 1 < t->end && brace[1] == '^' ? brace + 2 : brace + 1;

	if (!close || *brace != '{')
		name = close = brace;
	put(t, t->at, (size_t)(name - t->at));
	if (close > name && is_script(name, (size_t)(close - name)))
		put_text(t, "sc:");
	put(t, name, (size_t)(close - name));
	t->at = close;
}

/* A backslash and what it gives a meaning to. */
static void put_escape(struct translation *t)
{
	static const struct {
		char letter;
		const char *what;
	} refused[] = {{'w', "\\w"}, {'W', "\\W"}, {'b', "\\b"}, {'B', "\\B"}, {'h', "\\h"},
		{'H', "\\H"}, {'K', "\\K"}, {'G', "\\G"}, {'R', "\\R"}, {'X', "\\X"}, {'Q', "\\Q"},
		{'E', "\\E"}, {'c', "\\c"}, {'M', "\\M"}, {'C', "\\C"}, {'g', "\\g"}, {'k', "\\k"},
		{'N', "\\N"}, {'O', "\\O"}, {'o', "\\o"}, {'v', "\\v"}, {'y', "\\y"}, {'Y', "\\Y"}};
	char letter = t->at + 1 < t->end ? t->at[1] : '\0';

	if (!letter)
		t->what = "a backslash at its end";
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (letter == refused[i].letter)
			t->what = refused[i].what;
	if (letter == 'S' && t->in_class)
		t->what = "\\S in a class";
	if (letter == 'u')
		put_code(t);
	if (letter == 'p' || letter == 'P')
		put_property(t);
	if (t->what || strchr("upP", letter))
		return;
	if (letter == 's')
		put_text(t, t->in_class ? SPACE : "[" SPACE "]");
	else if (letter == 'S')
		put_text(t, "[^" SPACE "]");
	else if (letter == 'd' || letter == 'D')
		put_text(t, letter == 'd' ? "\\p{Nd}" : "\\P{Nd}");
	else
		put(t, t->at, 2);
	t->at += 2;
}

static void put_in_class(struct translation *t)
{
	if (*t->at == '[')
		t->what = "a class in a class";
	if (*t->at == '&' && t->at + 1 < t->end && t->at[1] == '&')
		t->what = "&& in a class";
	if (*t->at == ']')
		t->in_class = false;
	put(t, t->at++, 1);
}

static void begin_class(struct translation *t)
{
	size_t n = t->at + 1 < t->end && t->at[1] == '^' ? 2 : 1;

	if (t->at + n < t->end && t->at[n] == ']')
		t->what = "']' as the first character of a class";
	t->in_class = true;
	put(t, t->at, n);
	t->at += n;
}

/* "(?" and what kind of group it is. */
static void begin_group(struct translation *t)
{
	size_t left = (size_t)(t->end - t->at), n = 1;
	static const char *const known[] = {
		"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?i)"};

	if (left > 1 && t->at[1] == '*')
		t->what = "(*";
	if (left > 1 && t->at[1] == '?') {
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			if (left >= strlen(known[i]) && !memcmp(t->at, known[i], strlen(known[i])))
				n = strlen(known[i]);
		if (n == 1)
			t->what = "a kind of group that is not (?:, (?=, (?!, (?>, (?<=, (?<! or "
				  "(?i:";
	}
	put(t, t->at, n);
	t->at += n;
}

/* "{2}", "{2,3}" */
static bool is_count(const char *at, const char *end)
{
	while (at < end && (isdigit((unsigned char)*at) || *at == ','))
		at++;
	return at == end;
}

/* "{,n}" counts from 0. "{n}+" is possessive in one syntax and a repeat in the other; "{n}?" is
 * lazy in one and may be missing in the other. */
static void put_brace(struct translation *t)
{
	const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));
	bool counts = close && is_count(t->at + 1, close);

	if (counts && close + 1 < t->end && close[1] == '+')
		t->what = "{n}+";
	if (counts && close + 1 < t->end && close[1] == '?' &&
		!memchr(t->at, ',', (size_t)(close - t->at)))
		t->what = "{n}?";
	put_text(t, counts && t->at[1] == ',' ? "{0" : "{");
	t->at++;
}

static void put_outside(struct translation *t)
{
	if (*t->at == '[')
		begin_class(t);
	else if (*t->at == '(')
		begin_group(t);
	else if (*t->at == '{')
		put_brace(t);
	else
		put(t, t->at++, 1);
}

int jm__regex_translate(const char *pattern, size_t n, struct jm_bytes *ret, const char **ret_what)
{
	struct translation t = {.at = pattern, .end = pattern + n, .ret = ret, .ok = true};

	while (t.at < t.end && !t.what && t.ok) {
		if (*t.at == '\\')
			put_escape(&t);
		else if (t.in_class)
			put_in_class(&t);
		else
			put_outside(&t);
	}
	if (t.what)
		*ret_what = t.what;
	return !t.ok ? JM_ENOMEM : t.what ? JM_ENOSUP : 0;
}
