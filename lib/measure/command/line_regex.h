/* SPDX-License-Identifier: Apache-2.0 */
/* A regular expression (PCRE2) for untrusted lines: limits end every search. */
#ifndef JM_LINE_REGEX_H
#define JM_LINE_REGEX_H

#include <stddef.h>

#include "joulemark.h"

struct jm_regex;

struct jm_regex_match {
	const char *
		group; /* first group, in the line; NULL = the expression has none, or it took no part */
	size_t n_group;
	const char *text; /* of the match, up to the end of the first group where it has one */
	size_t n_text;
};

/* What is no expression, is nested deeper than 250, or is too large: a sentence with the place. */
int jm_regex_new(const char *pattern, struct jm_regex **ret, struct jm_err *err);
bool jm_regex_has_group(const struct jm_regex *r);
/* Finds the next match from *at on, and moves *at after it. 1 = a match, 0 = none; JM_ERANGE = the
 * search reached a limit of steps, depth or memory, so it is unknown whether the line holds one. */
int jm_regex_next(
	struct jm_regex *r, const char *line, size_t n, size_t *at, struct jm_regex_match *ret);
void jm_regex_free(struct jm_regex *r); /* takes NULL */

#endif
