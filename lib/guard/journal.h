/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of one knob of one device: the value to restore, and the client that changed it.
 *
 *	knobs/NAME.journal	the record; for its owner alone
 *	knobs/NAME.lock		the holder of its lock (flock) may change the knob; never renamed or
 *				removed
 *	held/NAME.journal	a copy that every user may read: for `status`, and for a damaged
 *				record
 *
 * A record is a line or two, each with a checksum:
 *
 *	kept   the value to restore later: an earlier session ended and left its setting in place
 *	found  the value found, before the first change of a session that has not ended
 *
 * A new record is written to a second file, synced and renamed before the change that it announces
 * is made; without a value to restore there is no record. When a session begins the record comes
 * first, when it ends the copy does: whichever of the two a kill leaves is correct. Joulemark 0.1
 * appended lines in the same file (also `back` and `gone`) and locked the file itself; its records
 * are read, and its running holders respected. A change announced by their incomplete last line was
 * never made.
 */
#ifndef JM_JOURNAL_H
#define JM_JOURNAL_H

#include "base/ctx.h"
#include "guard/journal_record.h"

#define JM_JOURNAL_FOLDER "knobs" /* in the state folder */
#define JM_JOURNAL_COPIES "held"
#define JM_JOURNAL_PATH	  (900 + JM_JOURNAL_NAME)

struct jm_journal {
	int folder, copies; /* its folder */
	int lock;	    /* -1 = closed */
	bool stand_in;	    /* it locks the folder, so all journals, as no lock can be made */
	char name[JM_JOURNAL_NAME]; /* without the end */
	char path[JM_JOURNAL_PATH]; /* of the record, for sentences */
	char damage[200];	    /* the damage, if the copy was used; "" = none */
	struct jm_journal_state now;
};

/*
 * How long to wait for all locks together: a holder whose client has died is restoring. The wait is
 * logged after a second, with the holder. interrupts: of the user; two end the wait; may be NULL.
 */
struct jm_patience {
	const struct jm_ctx *ctx;
	int64_t limit_ns, waited_ns;
	bool announced;
	const volatile int *interrupts;
};

/*
 * Locks the journal and reads it. JM_EBUSY while another process holds it, or another machine has
 * written it; the sentence names it.
 * JM_EFORMAT: it is damaged, and so is its copy or there is none; the files stay as they are. If
 * the copy is intact, it replaces the damaged record: the damaged file is renamed, and `damage`
 * reports this. JM_EPERM on a file system that is read-only, unless there is a value to restore.
 */
int jm_journal_open(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_patience *patience, struct jm_journal *ret, struct jm_err *err);
/* The same by name (without its end); JM_ENOENT when there is none, also no copy from then on. */
int jm_journal_open_name(const struct jm_ctx *ctx, const char *name, struct jm_patience *patience,
	struct jm_journal *ret, struct jm_err *err);
/* Locks a damaged one, for jm_journal_set_aside: under its lock another value may be chosen for
 * it. */
int jm_journal_open_damaged(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_patience *patience, struct jm_journal *ret, struct jm_err *err);
/* Renames a damaged file; it is not used for restoring any more. ret: its new name. */
int jm_journal_set_aside(struct jm_journal *j, char *ret, size_t size, struct jm_err *err);
/* Of path and damage. */
#define JM_JOURNAL_MENDED                                                                          \
	"The journal %s was damaged: %s Its copy has replaced it; the damaged journal is kept "    \
	"beside it."
#define JM_LOCK_LIMIT_NS INT64_C(10000000000) /* of one call, for all its locks */
/* Writes the new state to the record, with client and guard from `next`. value: of found and
 * kept; else NULL. */
int jm_journal_write(struct jm_journal *j, const struct jm_journal_state *next,
	enum jm_journal_verb verb, const struct jm_knob_value *value, struct jm_err *err);
/* Unlocks. Takes a closed one. */
void jm_journal_close(struct jm_journal *j);
struct jm_journal_view {
	char name[JM_JOURNAL_NAME]; /* without the end */
	struct jm_journal_state state;
	bool unreadable; /* damaged, and without an intact copy */
	bool forgotten;	 /* a copy whose record was removed */
	char why[300];	 /* when it is */
};
/* What a journal of this knob is called, without the end. */
void jm_journal_name(const char *knob, const char *device, char *out, size_t size);
/* Syncs the folder, so that new files in it survive a crash. */
int jm_journal_sync_folder(const struct jm_ctx *ctx, struct jm_err *err);

#endif
