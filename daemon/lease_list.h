/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leases that are there: one process each, a guard, which goes on when joulemarkd ends and is
 * found again when it starts.
 *
 * Each has a file UID-NUMBER in the folder, which its guard holds locked while it lives, writes its
 * process to, and removes when all was put back. A file without a lock is that of a guard that was
 * killed: its journals have to be recovered.
 */
#ifndef JM_LEASE_LIST_H
#define JM_LEASE_LIST_H

#include "base/ctx.h"
#include "base/process/process_identity.h"
#include "policy.h"

#define JM_LEASE_FOLDER "/run/joulemark/leases"

struct jm_lease_row {
	uid_t uid;
	pid_t guard;
	int pidfd;     /* of the guard */
	char file[40]; /* in the folder */
};

struct jm_lease_list {
	int folder;
	unsigned int last; /* number */
	struct jm_lease_row row[JM_LEASES_MOST];
	int n;
};

/* Opens the folder, making it, and finds the guards that live. ret_killed: files of guards that do
 * not, now removed. */
int jm_lease_list_open(
	struct jm_lease_list *ret, const char *path, int *ret_killed, struct jm_err *err);
void jm_lease_list_close(struct jm_lease_list *list);
int jm_lease_list_count(const struct jm_lease_list *list, uid_t uid);
/* A locked file for a new guard; the lock is that of the open file, which the guard inherits. */
int jm_lease_list_file(
	struct jm_lease_list *list, uid_t uid, char out[40], int *ret_fd, struct jm_err *err);
/* Adds the guard that was started. */
void jm_lease_list_add(struct jm_lease_list *list, uid_t uid, pid_t guard, const char *file);
/* The guard of the row has ended. False: it has left its file, which is now removed: it was
 * killed. */
bool jm_lease_list_ended(struct jm_lease_list *list, int i);

/* In the guard: writes who it is; and, when all was put back, removes the file. */
void jm_lease_file_begin(int fd);
void jm_lease_file_end(const struct jm_lease_list *list, const char *file);

#endif
