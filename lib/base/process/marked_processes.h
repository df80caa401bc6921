/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that have a mark in their environment, even if they left their group, their session or
 * their parent. Children inherit it. Nested marks are joined by a colon: JM_CASE=OUTER:INNER.
 */
#ifndef JM_MARKED_PROCESSES_H
#define JM_MARKED_PROCESSES_H

#include <sys/types.h>

#include "process_identity.h"

#define JM_CASE_VARIABLE "JM_CASE"
#define JM_MARK_SIZE	 33 /* 128 random bits in hex, and a 0 */

struct jm_marked {
	char mark[JM_MARK_SIZE];
	uid_t uid, caller; /* users that they may belong to: ours, and the one who called sudo */
	unsigned long long since; /* no such process has started earlier (struct jm_process) */
};

/* A new mark; false when the kernel gives no random numbers. */
bool jm_mark_new(char out[JM_MARK_SIZE]);
/* "JM_CASE=...": the mark, appended to those that this process itself carries. */
void jm_mark_text(const char *mark, char *out, size_t size);
/* Does this process carry the mark itself? */
bool jm_mark_is_ours(const char *mark);

/*
 * Asks all of them to end (SIGTERM), kills them two seconds later, and looks again until there is
 * none. Never a joulemark guard, which ends by itself when it has put settings back. Returns how
 * many there were; ret_names: the first of them, for a sentence.
 */
int jm_marked_end(const struct jm_marked *m, char *ret_names, size_t size);

#endif
