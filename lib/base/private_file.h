/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that nobody but their owner may read, write or lock: 0600 in a folder of 0700. A link, a pipe, a file
 * with a second name, or one that does not belong to the owner of its folder is refused, and nothing of it is read.
 */
#ifndef JM_PRIVATE_FILE_H
#define JM_PRIVATE_FILE_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/types.h>

#include "joulemark.h"

/* Opens the folder for the calls below; one that is ours is closed to others first. mode: 0700, or 0755 for what all
 * may read. JM_ENOENT: not there; JM_EPERM: closed to us, or not ours. */
int jm_private_folder(const char *path, mode_t mode, int *ret_fd, struct jm_err *err);
/* A folder that another user may have made, to read in it what its owner has put there. */
int jm_public_folder(const char *path, int *ret_fd, struct jm_err *err);
/* To list what is in the folder, for closedir; the folder stays open. NULL: errno. */
DIR *jm_private_list(int folder);
/* flags: O_RDONLY, O_RDWR, O_CREAT. JM_ENOENT: not there; JM_EPERM; JM_EFORMAT: no plain file of ours. */
int jm_private_open(int folder, const char *name, int flags, int *ret_fd, struct jm_err *err);
/* The whole file with a 0 behind it, for the caller to free. JM_EFORMAT: larger than max. */
int jm_private_read(
	int folder, const char *name, size_t max, char **ret, size_t *ret_n, struct jm_err *err);
/* Writes it anew beside the old one, syncs it, and puts it in its place: a kill leaves the old or the new. */
int jm_private_replace(
	int folder, const char *name, const char *text, size_t n, mode_t mode, struct jm_err *err);
/* The same without the sync, for what need not outlive the machine: readers see the old or the new. */
int jm_private_publish(
	int folder, const char *name, const char *text, size_t n, mode_t mode, struct jm_err *err);

#endif
