/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that have a mark in their environment, even if they left their group, their session or
 * their parent. Children inherit it. Nested marks are joined by a colon: JM_CASE=OUTER:INNER.
 */
#ifndef JM_MARKED_PROCESSES_H
#define JM_MARKED_PROCESSES_H

#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "process_identity.h"

#define JM_CASE_VARIABLE "JM_CASE"
#define JM_MARK_POLITE	 (2 * JM_SECOND) /* of jm_marked_end, where nothing is promised */
#define JM_MARK_SIZE	 33		 /* 128 random bits in hex, and a 0 */

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

/* Is the mark one of those in the environment of the process? */
bool jm_carries_mark(pid_t pid, const char *mark);
/* Of JM_CASE or its value: "C" of "A:B:C". */
const char *jm_innermost_mark(const char *marks);
/* What carries the innermost mark that this process carries itself; false: it carries none. */
bool jm_marked_like_us(struct jm_marked *ret);

/*
 * Asks all of them but this process to end (SIGTERM), kills them when the time is over, or as soon
 * as hurry_fd (-1 = none) is readable, and looks again until there is none, for three more seconds
 * at most. Never a joulemark guard, which ends by itself when it has put settings back. Returns how
 * many there were; ret_names: the first of them, for a sentence.
 */
int jm_marked_end(
	const struct jm_marked *m, int64_t polite_ns, int hurry_fd, char *ret_names, size_t size);

#endif
