/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regular expressions of tokenizers. They are written for Oniguruma (Ruby's syntax) and
 * compiled for PCRE2; what the two read differently is translated (white space, \d, \u, scripts,
 * {,n}) or refused (\w, \b, classes in classes, {n}?).
 */
#ifndef JM_SPLIT_REGEX_H
#define JM_SPLIT_REGEX_H

#include "joulemark.h"

struct jm__regex;

/* The error is a part of a sentence: "its pattern ... ". JM_ENOSUP, JM_EFORMAT, JM_ENOMEM. */
int jm__regex_new(
	const char *pattern, size_t n, struct jm__regex **ret, char *ret_why, size_t why_size);
void jm__regex_free(struct jm__regex *r); /* takes NULL */

/* The first match at or behind `from`. text: valid UTF-8. 1 = found, 0 = none, -1 = the search took
 * too many steps. */
int jm__regex_find(const struct jm__regex *r, const char *text, size_t n, size_t from,
	size_t *ret_start, size_t *ret_end);

#endif
