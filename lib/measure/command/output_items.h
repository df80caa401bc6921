/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of items in what a command prints: by a regular expression, or a key of JSON. */
#ifndef JM_OUTPUT_ITEMS_H
#define JM_OUTPUT_ITEMS_H

#include "measure/session/progress.h"

/* ---- numbers in what a command prints ---- */
struct jm_scan;
/* Give one of the two. regex (PCRE2): its first group is a number, each match is
 * a mark with it; without a group a match is one item. json_key: "tokens" or "result.tokens" of
 * each line that is a JSON object, or else of the whole output. */
int jm_scan_new(const char *regex, const char *json_key, struct jm_scan **ret, struct jm_err *err);
void jm_scan_feed(
	struct jm_scan *s, const char *bytes, size_t n, int64_t t_ns, jm_mark_fn *fn, void *arg);
void jm_scan_end(struct jm_scan *s, int64_t t_ns, jm_mark_fn *fn, void *arg);
/* Matches are names instead: each is a mark with the text of the match, up to the end of its first
 * group, and no items. */
int jm_scan_new_names(const char *regex, struct jm_scan **ret, struct jm_err *err);
/* Does it look for numbers? It does not where the expression has no group. */
bool jm_scan_has_numbers(const struct jm_scan *s);
/* JM_EUSAGE where it does not; s may be NULL. */
int jm_scan_check_numbers(const struct jm_scan *s, struct jm_err *err);
/* A key that was there and looks like the one that was not found; NULL = none. */
const char *jm_scan_near(const struct jm_scan *s);
/* How many matched groups were no numbers and were left out; the first of them. */
long jm_scan_unread(const struct jm_scan *s, const char **ret_first);
/* In how many lines the regular expression came to a limit: what they hold is not known. */
long jm_scan_limited(const struct jm_scan *s);
void jm_scan_free(struct jm_scan *s); /* takes NULL */

#endif
