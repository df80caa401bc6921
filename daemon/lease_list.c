/* SPDX-License-Identifier: Apache-2.0 */
#include "lease_list.h"

#include "base/files/private_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 100 /* at a file whose guard has not written yet, 10 ms apart */

static bool is_locked(int fd)
{
	return flock(fd, LOCK_SH | LOCK_NB) != 0;
}

/* The guard that wrote the file; pid 0 = it has not yet, or not all of it. */
static struct jm_process read_guard(int fd)
{
	char text[60] = "";
	struct jm_process p = {0};
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	char end = '\0';

	if (n <= 0 || sscanf(text, "%d %llu%c", &p.pid, &p.start, &end) != 3 || end != '\n')
		return (struct jm_process){0};
	return p;
}

/* Adds the guard of an open file; false: it does not live. */
static bool adopt(struct jm_lease_list *list, const char *file, uid_t uid, int fd)
{
	const struct timespec step = {.tv_nsec = 10000000};
	struct jm_process guard = {0};

	for (int i = 0; i < LOOKS && !guard.pid; i++) {
		if (!is_locked(fd))
			return false;
		guard = read_guard(fd);
		if (!guard.pid)
			nanosleep(&step, NULL);
	}
	if (guard.pid <= 0 || list->n == JM_LEASES_MOST)
		return true;
	jm_lease_list_add(list, uid, guard.pid, file);
	if (list->row[list->n - 1].pidfd >= 0 && jm_process_runs(&guard))
		return true;
	if (list->row[--list->n].pidfd >= 0)
		close(list->row[list->n].pidfd);
	return false;
}

static void look_at(struct jm_lease_list *list, const char *file, int *ret_killed)
{
	unsigned int uid, number;
	int fd;

	if (sscanf(file, "%u-%u", &uid, &number) != 2 ||
		strlen(file) >= sizeof(list->row[0].file) ||
		jm_private_open(list->folder, file, O_RDONLY, &fd, NULL))
		return;
	if (number > list->last)
		list->last = number;
	if (!adopt(list, file, uid, fd)) {
		++*ret_killed;
		unlinkat(list->folder, file, 0);
	}
	close(fd);
}

int jm_lease_list_open(
	struct jm_lease_list *ret, const char *path, int *ret_killed, struct jm_err *err)
{
	DIR *dir;
	int rc;

	ret->n = 0;
	ret->last = 0;
	*ret_killed = 0;
	if (mkdir(path, 0700) && errno != EEXIST)
		return jm_err_set(err, JM_EIO, "Cannot make the folder of leases %s: %s.", path,
			strerror(errno));
	rc = jm_private_folder(path, 0700, &ret->folder, err);
	if (rc)
		return rc;
	dir = jm_private_list(ret->folder);
	if (!dir)
		return jm_err_set(err, JM_EIO, "Cannot list the folder of leases %s: %s.", path,
			strerror(errno));
	for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
		look_at(ret, e->d_name, ret_killed);
	closedir(dir);
	return 0;
}

void jm_lease_list_close(struct jm_lease_list *list)
{
	for (int i = 0; i < list->n; i++)
		if (list->row[i].pidfd >= 0)
			close(list->row[i].pidfd);
	close(list->folder);
	list->n = 0;
}

int jm_lease_list_count(const struct jm_lease_list *list, uid_t uid)
{
	int n = 0;

	for (int i = 0; i < list->n; i++)
		n += list->row[i].uid == uid;
	return n;
}

int jm_lease_list_file(
	struct jm_lease_list *list, uid_t uid, char out[40], int *ret_fd, struct jm_err *err)
{
	int fd;

	snprintf(out, 40, "%u-%u", (unsigned int)uid, ++list->last);
	fd = openat(list->folder, out, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB)) {
		*ret_fd = fd;
		return 0;
	}
	jm_err_set(err, JM_EIO, "Cannot write down a lease: %s.", strerror(errno));
	if (fd >= 0)
		close(fd);
	return JM_EIO;
}

void jm_lease_list_add(struct jm_lease_list *list, uid_t uid, pid_t guard, const char *file)
{
	struct jm_lease_row *row = &list->row[list->n++];

	row->uid = uid;
	row->guard = guard;
	row->pidfd = (int)syscall(SYS_pidfd_open, guard, 0);
	snprintf(row->file, sizeof(row->file), "%s", file);
}

bool jm_lease_list_ended(struct jm_lease_list *list, int i)
{
	struct jm_lease_row row = list->row[i];

	waitpid(row.guard, NULL, WNOHANG); /* it is no child after a restart */
	if (row.pidfd >= 0)
		close(row.pidfd);
	list->row[i] = list->row[--list->n];
	return unlinkat(list->folder, row.file, 0) && errno == ENOENT;
}

void jm_lease_file_begin(int fd)
{
	struct jm_process self = jm_process_of(getpid());

	dprintf(fd, "%d %llu\n", (int)self.pid, self.start);
}

void jm_lease_file_end(const struct jm_lease_list *list, const char *file)
{
	unlinkat(list->folder, file, 0);
}
