/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of one knob of one device: a small file in the state folder, which is its lock too. Lines
 * are appended, each with a checksum, and synced before what they announce is done:
 *
 *	found  the value found, before the first change of a session
 *	back   it is back
 *	kept   the session ended and left its value; the value to come back to, one day
 *	gone   nothing more is to be put back
 *
 * A file that has nothing to put back is removed. A torn last line was never acted upon and is ignored.
 */
#ifndef JM_JOURNAL_H
#define JM_JOURNAL_H

#include "joulemark.h"
#include "guard/knob_table.h"

#define JM_JOURNAL_FOLDER "knobs" /* in the state folder */
#define JM_JOURNAL_NAME	  160	  /* of a file in it: knob, device, hash */
#define JM_JOURNAL_PATH	  (900 + JM_JOURNAL_NAME)

enum jm_journal_verb { JM_JOURNAL_FOUND, JM_JOURNAL_BACK, JM_JOURNAL_KEPT, JM_JOURNAL_GONE };

/* What the lines add up to. */
struct jm_journal_state {
	char knob[32], unit[8], device[JM_ID_MAX],
		control[JM_SPEC_MAX]; /* control: opens it again */
	char boot[40];		      /* of the machine's start; "" = unknown */
	bool open; /* a session has changed it, or was about to; found is the value to put back */
	double found;
	bool kept; /* left by a session that ended well; base is the value from before the first */
	double base;
	int pid;     /* of the last session's client */
	int damaged; /* lines that could not be read, other than a torn last one */
};

struct jm_journal {
	int fd; /* locked; -1 = closed */
	char path[JM_JOURNAL_PATH];
	size_t good_bytes; /* up to the end of the last good line */
	bool fresh;	   /* the folder does not know it for sure yet */
	struct jm_journal_state now;
};

/*
 * Locks the journal, making it where there is none. JM_EBUSY while another process holds it; the
 * sentence names its client. A holder whose client has died is waited for (it is putting things back).
 */
int jm_journal_open(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_journal *ret, struct jm_err *err);
/* The same by the file's own name, without making it; JM_ENOENT when it is gone. */
int jm_journal_open_file(const char *path, struct jm_journal *ret, struct jm_err *err);
/* Appends a line, made from `next`, and syncs it. value: of found and kept. */
int jm_journal_write(struct jm_journal *j, const struct jm_journal_state *next,
	enum jm_journal_verb verb, double value, struct jm_err *err);
/* Unlocks; removes the file when nothing is to be put back. Takes a closed one. */
void jm_journal_close(struct jm_journal *j);

/* Reads without a lock. ret_live: somebody holds it. */
int jm_journal_peek(
	const char *path, struct jm_journal_state *ret, bool *ret_live, struct jm_err *err);
int jm_journal_folder(const struct jm_ctx *ctx, char *out, size_t size, struct jm_err *err);
/* Makes new files in the folder sure to be found again. */
int jm_journal_sync_folder(const struct jm_ctx *ctx, struct jm_err *err);
/* This start of the machine; "" where the kernel does not tell. */
void jm_journal_boot(const struct jm_ctx *ctx, char *out, size_t size);

#endif
