/* SPDX-License-Identifier: Apache-2.0 */
/* The folder where joulemark keeps what must outlive a process: journals, simulated knobs. */
#ifndef JM_STATE_FOLDER_H
#define JM_STATE_FOLDER_H

#include <sys/types.h>

#include "joulemark.h"

/*
 * Path of the folder `sub` ("" = the state folder itself), made when it is not there: JM_STATE,
 * else <root>/var/lib/joulemark as root, else $XDG_STATE_HOME/joulemark or
 * ~/.local/state/joulemark. JM_EPERM as root: the state folder belongs to another user, or others
 * can write in it.
 */
int jm_state_folder(
	const struct jm_ctx *ctx, const char *sub, char *out, size_t size, struct jm_err *err);

/* The same path, without creating anything: for readers. */
int jm_state_path(
	const struct jm_ctx *ctx, const char *sub, char *out, size_t size, struct jm_err *err);

/* The same path of root's, for users whose own state folder is a different one. False: it is the
 * same one, or JM_STATE names one. */
bool jm_state_path_of_root(const struct jm_ctx *ctx, const char *sub, char *out, size_t size);

/* The user who called sudo, to whom files and work belong. False: this is not a process of root, or
 * no other user called sudo. */
bool jm_sudo_caller(uid_t *ret_uid, gid_t *ret_gid);

#endif
