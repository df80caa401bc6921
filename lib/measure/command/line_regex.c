/* SPDX-License-Identifier: Apache-2.0 */
#include "line_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* The search for a reasonable expression in a line of 64 KiB takes some 100,000 steps; a million
 * take a tenth of a second. The limit of an expression that reached it in many lines is lowered
 * step by step: all lines together must not delay the response to signals of the user. */
#define STEPS_MOST    1000000
#define STEPS_LEAST   1000
#define LIMITED_LINES 8 /* that bring the steps down by half */
#define DEPTH_MOST    10000
#define HEAP_KIB      20000
#define PATTERN_BYTES 65536

struct jm_regex {
	pcre2_code *code;
	pcre2_match_data *match;
	pcre2_match_context *context;
	uint32_t groups, steps;
	int n_limited;
};

static int refuse(const char *pattern, int code, size_t place, struct jm_err *err)
{
	char why[160];

	pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
	return jm_err_set(err, JM_EUSAGE,
		"'%.300s' is not a regular expression (PCRE2): %s, at its character %zu.", pattern,
		why, place);
}

static int compile(struct jm_regex *r, const char *pattern, struct jm_err *err)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	PCRE2_SIZE place = 0;
	int code = 0;

	if (!context)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a regular expression.");
	pcre2_set_max_pattern_length(context, PATTERN_BYTES);
	/* what a command prints need not be UTF-8 */
	r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
		PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &place,
		context);
	pcre2_compile_context_free(context);
	return r->code ? 0 : refuse(pattern, code, place, err);
}

static int prepare(struct jm_regex *r, struct jm_err *err)
{
	r->match = pcre2_match_data_create_from_pattern(r->code, NULL);
	r->context = pcre2_match_context_create(NULL);
	if (!r->match || !r->context)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a regular expression.");
	pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &r->groups);
	pcre2_set_match_limit(r->context, r->steps);
	pcre2_set_depth_limit(r->context, DEPTH_MOST);
	pcre2_set_heap_limit(r->context, HEAP_KIB);
	return 0;
}

int jm_regex_new(const char *pattern, struct jm_regex **ret, struct jm_err *err)
{
	struct jm_regex *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a regular expression.");
	r->steps = STEPS_MOST;
	rc = compile(r, pattern, err);
	if (!rc)
		rc = prepare(r, err);
	if (rc)
		jm_regex_free(r);
	else
		*ret = r;
	return rc;
}

bool jm_regex_has_group(const struct jm_regex *r)
{
	return r->groups > 0;
}

static int limited(struct jm_regex *r)
{
	if (++r->n_limited % LIMITED_LINES == 0 && r->steps > STEPS_LEAST)
		pcre2_set_match_limit(r->context, r->steps /= 2);
	return JM_ERANGE;
}

/* The offset after the UTF-8 character that begins at `at`. */
static size_t next_character(const char *line, size_t n, size_t at)
{
	do {
		at++;
	} while (at < n && ((unsigned char)line[at] & 0xc0) == 0x80);
	return at;
}

int jm_regex_next(
	struct jm_regex *r, const char *line, size_t n, size_t *at, struct jm_regex_match *ret)
{
	const PCRE2_SIZE *place = pcre2_get_ovector_pointer(r->match);
	int found;

	if (*at >= n)
		return 0;
	found = pcre2_match(r->code, (PCRE2_SPTR)line, n, *at, 0, r->match, r->context);
	if (found == PCRE2_ERROR_NOMATCH)
		return 0;
	if (found < 0)
		return limited(r);
	*ret = (struct jm_regex_match){
		.text = line + place[0], .n_text = place[1] > place[0] ? place[1] - place[0] : 0};
	if (found > 1 && place[2] != PCRE2_UNSET && place[3] >= place[2]) {
		ret->group = line + place[2];
		ret->n_group = place[3] - place[2];
		ret->n_text = place[3] > place[0] ? place[3] - place[0] : 0;
	}
	*at = place[1] > *at ? place[1] : next_character(line, n, *at);
	return 1;
}

void jm_regex_free(struct jm_regex *r)
{
	if (!r)
		return;
	pcre2_match_context_free(r->context);
	pcre2_match_data_free(r->match);
	pcre2_code_free(r->code);
	free(r);
}
