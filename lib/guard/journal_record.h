/* SPDX-License-Identifier: Apache-2.0 */
/* The state in a journal and its text: reads and writes its record and the copy. journal.h has the
 * format. */
#ifndef JM_JOURNAL_RECORD_H
#define JM_JOURNAL_RECORD_H

#include "base/process/process_identity.h"
#include "guard/control.h"
#include "guard/knob_table.h"

#include <string.h>

#define JM_JOURNAL_NAME 160 /* of a file in its folder: knob, device, hash */
#define JM_JOURNAL_END	".journal"
#define JM__LOCK_END	".lock"
#define JM__RECORD_SIZE 2048	   /* of the two lines */
#define JM__MAX_BYTES	(64 << 20) /* those of 0.1 grew */

enum jm_journal_verb { JM_JOURNAL_FOUND, JM_JOURNAL_BACK, JM_JOURNAL_KEPT, JM_JOURNAL_GONE };

/* The state that results from the lines. */
struct jm_journal_state {
	char knob[32], unit[8], device[JM_ID_MAX],
		control[JM_SPEC_MAX]; /* control: opens it again */
	char boot[40];		      /* of the machine's start; "" = unknown */
	char machine[40];	      /* which wrote it; "" = unknown, as before format 4 */
	enum jm_ends ends;	      /* what ends its settings */
	bool open; /* a session has changed it, or was about to; found is the value to put back */
	struct jm_knob_value found;
	bool kept; /* left by a session that ended well; base is the value from before the first */
	struct jm_knob_value base, left; /* left: what it left in place; unknown before format 3 */
	enum jm_known_by known_by;	 /* found and base */
	struct jm_process client, guard; /* of the last session; guard.pid 0 = written by 0.1 */
	int damaged;			 /* damaged lines; an empty file counts as one */
};

/* Was it written by another machine, which uses the same folder? machine: the id of this one. */
static inline bool jm__journal_foreign(const struct jm_journal_state *s, const char *machine)
{
	return *s->machine && *machine && strcmp(s->machine, machine) != 0;
}

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
 * Reads record and copy and chooses one of them. folder -1: it belongs to another user, so only the
 * copy counts; copies -1: there are none. ret_damage: what was wrong with the record when the copy
 * was used instead, else "". JM_ENOENT: there is no record; JM_EFORMAT: neither is valid.
 */
int jm__journal_read(int folder, int copies, const char *name, struct jm_journal_state *ret,
	char *ret_damage, size_t size, struct jm_err *err);
/* Replaces the record or the copy or, when there is no value to restore, removes it. */
int jm__journal_put(int folder, const char *name, const struct jm_journal_state *s, mode_t mode,
	struct jm_err *err);

#endif
