/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a journal share: journal_record.c (its text), journal.c (its lock), journal_each.c (a look). */
#ifndef JM_JOURNAL_PRIVATE_H
#define JM_JOURNAL_PRIVATE_H

#include "guard/journal.h"

#define JM__LOCK_END	".lock"
#define JM__RECORD_SIZE 2048	   /* of the two lines */
#define JM__MAX_BYTES	(64 << 20) /* those of 0.1 grew */

/* Formats a state; returns the length, or -1 when it does not fit. */
int jm__journal_format(const struct jm_journal_state *s, char *out, size_t size);
/* Parses the text, which is modified, into a state. */
void jm__journal_parse(char *text, size_t n, struct jm_journal_state *ret);
/* The state after a line of this kind. */
void jm__journal_apply(
	struct jm_journal_state *s, enum jm_journal_verb verb, const struct jm_knob_value *value);
static inline bool jm__journal_says(const struct jm_journal_state *s)
{
	return s->open || s->kept;
}

/* "NAME.journal" */
void jm__journal_file(const char *name, const char *end, char *out, size_t size);
/*
 * Reads record and copy and chooses one of them. folder -1: it belongs to another user, so only the copy
 * counts; copies -1: there are none. ret_damage: what was wrong with the record when the copy was used
 * instead, else "". JM_ENOENT: there is no record; JM_EFORMAT: neither is valid.
 */
int jm__journal_read(int folder, int copies, const char *name, struct jm_journal_state *ret,
	char *ret_damage, size_t size, struct jm_err *err);
/* Replaces the record or the copy or, when there is no value to restore, removes it. */
int jm__journal_put(int folder, const char *name, const struct jm_journal_state *s, mode_t mode,
	struct jm_err *err);

#endif
