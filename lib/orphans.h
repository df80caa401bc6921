/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a killed case leaves behind: a process that left its group (setsid) is adopted by us instead of
 * by init, and can be ended with the case.
 */
#ifndef JM_ORPHANS_H
#define JM_ORPHANS_H

#include <stdbool.h>
#include <sys/types.h>

#define JM_ORPHANS_KNOWN 64

struct jm_orphans {
	bool adopting;		       /* we do since jm_orphans_begin */
	bool found;		       /* one that was not known */
	int was;		       /* whether we did before */
	pid_t known[JM_ORPHANS_KNOWN]; /* our children of before */
	int n_known;
};

/* From now on orphans come to us. */
void jm_orphans_begin(struct jm_orphans *o);
/* No more; kill: those that have come since, and theirs, are killed first. */
void jm_orphans_end(struct jm_orphans *o, bool kill);

#endif
