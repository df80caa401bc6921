/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all journals without their locks; for another user, the copies. */
#ifndef JM_JOURNAL_EACH_H
#define JM_JOURNAL_EACH_H

#include "journal.h"

/* Reads without the lock. JM_ENOENT: there is no value to restore; JM_EFORMAT: damaged. */
int jm_journal_peek(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_journal_state *ret);

/*
 * Calls fn for every record of the state folder that another machine has not written, also those
 * that cannot be read, and for every copy without a record; fn returns non-zero to end. JM_EPERM:
 * the folder belongs to another user, and there are no copies to read.
 */
int jm_journal_each(const struct jm_ctx *ctx,
	int (*fn)(void *arg, const struct jm_journal_view *view, struct jm_err *err), void *arg,
	struct jm_err *err);
/* The copies that root has put on this machine, for those whose own state folder is another one. */
int jm_journal_each_of_root(const struct jm_ctx *ctx,
	int (*fn)(void *arg, const struct jm_journal_view *view, struct jm_err *err), void *arg,
	struct jm_err *err);

#endif
