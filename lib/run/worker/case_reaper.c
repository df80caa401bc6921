/* SPDX-License-Identifier: Apache-2.0 */
/* One line, MARK USER CALLER SINCE, goes to the reaper and to its record; END after it ends the
 * reaper. */
#include "case_reaper.h"

#include "base/clock.h"
#include "base/files/private_file.h"
#include "base/files/state_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FOLDER	  "cases"
#define LINE_SIZE 128
#define END	  "end\n"
#define WAIT_NS	  (6 * JM_SECOND) /* longer than jm_marked_end takes */

static void format(const struct jm_marked *m, char *out, size_t size)
{
	snprintf(out, size, "%s %lu %lu %llu\n", m->mark, (unsigned long)m->uid,
		(unsigned long)m->caller, m->since);
}

static bool parse(const char *text, struct jm_marked *ret)
{
	unsigned long uid, caller;
	int end = 0;

	if (sscanf(text, "%32[0-9a-f] %lu %lu %llu%n", ret->mark, &uid, &caller, &ret->since,
		    &end) < 4 ||
		text[end] != '\n' || strlen(ret->mark) != JM_MARK_SIZE - 1)
		return false;
	ret->uid = (uid_t)uid;
	ret->caller = (uid_t)caller;
	return true;
}

/* ---- the run's side -------------------------------------------------------------------------- */

/* A locked record that the reaper will hold; without a place for one it is /dev/null. */
static int make_record(struct jm_ctx *ctx, struct jm_case_reaper *k)
{
	char path[900], line[LINE_SIZE];
	int folder, fd, rc = jm_state_folder(ctx, FOLDER, path, sizeof(path), NULL);

	if (!rc)
		rc = jm_private_folder(path, 0700, &folder, NULL);
	if (rc)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	rc = jm_private_open(folder, k->marked.mark, O_RDWR | O_CREAT, &fd, NULL);
	close(folder);
	if (rc)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	format(&k->marked, line, sizeof(line));
	if (flock(fd, LOCK_EX | LOCK_NB) || write(fd, line, strlen(line)) < 0) {
		close(fd);
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	}
	snprintf(k->record, sizeof(k->record), "%s/%s", path, k->marked.mark);
	return fd;
}

/* Descriptors below 5 would be overwritten in the child before they are used. */
static int spawn(const char *program, int pipe_fd, int record_fd, pid_t *ret)
{
	char *argv[] = {(char *)(uintptr_t) "joulemark", (char *)(uintptr_t) "reaper", NULL};
	int from = fcntl(pipe_fd, F_DUPFD_CLOEXEC, 16), rc;
	int record = fcntl(record_fd, F_DUPFD_CLOEXEC, 16);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;

	posix_spawnattr_init(&attr);
	/* its own session, so that the end of the run's session does not end it */
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&files, from, JM_REAPER_FD);
	posix_spawn_file_actions_adddup2(&files, record, JM_REAPER_RECORD);
	rc = from < 0 || record < 0 ? EMFILE
				    : posix_spawn(ret, program ? program : "/proc/self/exe", &files,
					      &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	close(from);
	close(record);
	return rc;
}

static void describe(struct jm_case_reaper *k)
{
	gid_t gid;

	k->marked.uid = k->marked.caller = geteuid();
	jm_sudo_caller(&k->marked.caller, &gid);
	k->marked.since = jm_process_of(getpid()).start;
	jm_mark_text(k->marked.mark, k->variable, sizeof(k->variable));
}

void jm_case_reaper_start(struct jm_ctx *ctx, const char *program, struct jm_case_reaper *ret)
{
	struct jm_case_reaper k = {.fd = -1, .lock = -1};
	int fds[2] = {-1, -1}, rc;
	char line[LINE_SIZE];

	*ret = k;
	if (!jm_mark_new(k.marked.mark) || pipe2(fds, O_CLOEXEC)) {
		jm_log(ctx, JM_WARNING, "No reaper of the case: %s.", strerror(errno));
		return;
	}
	describe(&k);
	k.lock = make_record(ctx, &k);
	rc = spawn(program, fds[0], k.lock, &k.pid);
	close(fds[0]);
	k.fd = fds[1];
	format(&k.marked, line, sizeof(line));
	if (!rc && write(k.fd, line, strlen(line)) < 0)
		rc = errno;
	if (rc) {
		jm_log(ctx, JM_WARNING,
			"No reaper of the case could be started: %s. What the case leaves behind "
			"stays if joulemark is killed.",
			strerror(rc));
		close(k.fd);
		close(k.lock);
		k = (struct jm_case_reaper){.fd = -1, .lock = -1};
	}
	*ret = k;
}

void jm_case_reaper_stop(struct jm_case_reaper *k)
{
	if (k->pid <= 0)
		return;
	if (*k->record)
		unlink(k->record);
	if (write(k->fd, END, sizeof(END) - 1) < 0)
		kill(k->pid,
			/* otherwise the reaper would take the closed pipe for the death of the
			 * run */
			SIGKILL);
	close(k->fd);
	close(k->lock);
	while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
		;
	*k = (struct jm_case_reaper){.fd = -1, .lock = -1};
}

/* ---- the reaper's own process ---------------------------------------------------------------- */

/* Everything that arrives until the other end closes. */
static void listen(char *out, size_t size)
{
	size_t n = 0;
	ssize_t got = 1;

	while (n < size - 1 && (got > 0 || (got < 0 && errno == EINTR))) {
		got = read(JM_REAPER_FD, out + n, size - 1 - n);
		n += got > 0 ? (size_t)got : 0;
	}
	out[n] = '\0';
}

static void remove_record(struct jm_ctx *ctx, const char *mark)
{
	char path[900], file[1000];

	if (jm_state_path(ctx, FOLDER, path, sizeof(path), NULL))
		return;
	snprintf(file, sizeof(file), "%s/%s", path, mark);
	unlink(file);
}

static void end_marked(struct jm_ctx *ctx, const struct jm_marked *m)
{
	char names[400];
	int n = jm_marked_end(m, JM_MARK_POLITE, -1, names, sizeof(names));

	remove_record(ctx, m->mark);
	if (n)
		jm_log(ctx, JM_WARNING,
			"A joulemark run was killed; %d %s that its case had left behind %s ended: "
			"%s%s.",
			n, n == 1 ? "process" : "processes", n == 1 ? "was" : "were", names,
			n > 3 ? " and others" : "");
}

int jm_case_reaper_serve(struct jm_ctx *ctx, struct jm_err *err)
{
	struct jm_marked m;
	sigset_t signals;
	char text[LINE_SIZE + sizeof(END)];
	const char *end;

	sigfillset(&signals);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (fcntl(JM_REAPER_FD, F_GETFD) < 0 || fcntl(JM_REAPER_RECORD, F_GETFD) < 0)
		return jm_err_set(err, JM_EUSAGE, "'reaper' is for 'joulemark run' alone.");
	listen(text, sizeof(text));
	end = strchr(text, '\n');
	if (!end || !parse(text, &m) || !strcmp(end + 1, END))
		return 0;
	end_marked(ctx, &m);
	return 0;
}

/* ---- the next start -------------------------------------------------------------------------- */

/* The content of a record without a holder. The descriptor keeps the lock. */
static int take_record(int folder, const char *name, bool wait, struct jm_marked *ret)
{
	const struct timespec pause = {.tv_nsec = 20 * JM_MILLISECOND};
	int64_t until = jm_clock_now(jm_clock_real()) + (wait ? WAIT_NS : 0);
	char text[LINE_SIZE];
	ssize_t n;
	int fd;

	if (jm_private_open(folder, name, O_RDONLY, &fd, NULL))
		return -1;
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (jm_clock_now(jm_clock_real()) > until) {
			close(fd);
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	if (parse(text, ret) && !strcmp(ret->mark, name))
		return fd;
	if (n >= 0) /* killed before it was written: nothing had been started yet */
		unlinkat(folder, name, 0);
	close(fd);
	return -1;
}

static void recover_one(struct jm_ctx *ctx, int folder, const char *name, bool wait)
{
	struct jm_marked m;
	int fd;

	if (strlen(name) != JM_MARK_SIZE - 1 || jm_mark_is_ours(name))
		return;
	fd = take_record(folder, name, wait, &m);
	if (fd < 0)
		return;
	end_marked(ctx, &m);
	close(fd);
}

void jm_case_reaper_recover(struct jm_ctx *ctx, bool wait)
{
	const struct dirent *e;
	char path[900];
	int folder;
	DIR *dir;

	if (jm_state_path(ctx, FOLDER, path, sizeof(path), NULL) ||
		jm_private_folder(path, 0700, &folder, NULL))
		return;
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		recover_one(ctx, folder, e->d_name, wait);
	if (dir)
		closedir(dir);
	close(folder);
}
