/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that only their owner may read, write or lock: 0600 in a folder of 0700. A link, a pipe, a
 * file with a second name, or one that does not belong to the owner of its folder is refused, and
 * nothing of it is read.
 */
#ifndef JM_PRIVATE_FILE_H
#define JM_PRIVATE_FILE_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/types.h>

#include "joulemark.h"

/* Opens the folder for the calls below; a folder of ours is closed to other users first. mode:
 * 0700, or 0755 for a folder that all may read. JM_ENOENT: not there; JM_EPERM: no access, or not
 * ours. */
int jm_private_folder(const char *path, mode_t mode, int *ret_fd, struct jm_err *err);
/* Opens a folder that another user may have made, to read what its owner has put there. */
int jm_public_folder(const char *path, int *ret_fd, struct jm_err *err);
/* Lists the folder, for closedir; the folder stays open. NULL: errno. */
DIR *jm_private_list(int folder);
/* flags: O_RDONLY, O_RDWR, O_CREAT. JM_ENOENT: not there; JM_EPERM; JM_EFORMAT: no plain file of
 * ours. */
int jm_private_open(int folder, const char *name, int flags, int *ret_fd, struct jm_err *err);
/* The whole file, terminated by 0, for the caller to free. JM_EFORMAT: larger than max. */
int jm_private_read(
	int folder, const char *name, size_t max, char **ret, size_t *ret_n, struct jm_err *err);
/* Writes a new file, syncs it and renames it to the old one: a kill leaves the old or the new file,
 * complete. */
int jm_private_replace(
	int folder, const char *name, const char *text, size_t n, mode_t mode, struct jm_err *err);
/* The same without the sync, for files that need not survive a crash of the machine: readers see
 * the old or the new file. */
int jm_private_publish(
	int folder, const char *name, const char *text, size_t n, mode_t mode, struct jm_err *err);

#endif
