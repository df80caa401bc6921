/* SPDX-License-Identifier: Apache-2.0 */
/* Journals of knobs: lock, lines with checksums, and what they add up to. See journal.h. */
#include "guard/journal.h"
#include "base/state_folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define FORMAT	  "1"
#define N_FIELDS  10
#define MAX_BYTES (1 << 20)
/* How long to wait for a holder: whose client has died, and who has not written yet; ms. */
#define WAIT_DYING 10000
#define WAIT_YOUNG 1000
#define WAIT_STEP  10

static const char *const verbs[] = {"found", "back", "kept", "gone"};

int jm_journal_folder(const struct jm_ctx *ctx, char *out, size_t size, struct jm_err *err)
{
	return jm_state_folder(ctx, JM_JOURNAL_FOLDER, out, size, err);
}

int jm_journal_sync_folder(const struct jm_ctx *ctx, struct jm_err *err)
{
	char folder[PATH_MAX];
	int rc = jm_journal_folder(ctx, folder, sizeof(folder), err), fd;

	if (rc)
		return rc;
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* some file systems cannot sync a folder and need not */
	if (fd < 0 || (fsync(fd) && errno != EINVAL))
		rc = jm_err_set(err, JM_EIO,
			"Cannot sync the journals' folder %s: %s; nothing was changed.", folder,
			strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

void jm_journal_boot(const struct jm_ctx *ctx, char *out, size_t size)
{
	char path[PATH_MAX];
	FILE *file;

	out[0] = '\0';
	snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", ctx->root);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(out, (int)size, file))
		out[strcspn(out, "\n")] = '\0';
	fclose(file);
}

/* ---- lines ------------------------------------------------------------------------------------------- */

static unsigned long long checksum(const char *line, size_t n)
{
	return XXH3_64bits(line, n);
}

static int format_line(char *out, size_t size, const struct jm_journal_state *s,
	enum jm_journal_verb verb, double value)
{
	int n = snprintf(out, size, FORMAT "\t%s\t%s\t%s\t%s\t%s\t%s\t%.17g\t%d\t", verbs[verb],
		s->boot, s->control, s->knob, s->unit, s->device, value, s->pid);

	if (n < 0 || (size_t)n + 18 > size)
		return -1;
	return n + snprintf(out + n, size - (size_t)n, "%016llx\n", checksum(out, (size_t)n));
}

/* Splits a line of n characters (without its end) into its fields; false when it is damaged. */
static bool split_line(char *line, size_t n, char **field)
{
	char *tab = memrchr(line, '\t', n), *save = line;
	int i = 0;

	if (!tab || strtoull(tab + 1, NULL, 16) != checksum(line, (size_t)(tab - line) + 1))
		return false;
	for (char *f; (f = strsep(&save, "\t"));) {
		if (i == N_FIELDS)
			return false;
		field[i++] = f;
	}
	return i == N_FIELDS && !strcmp(field[0], FORMAT);
}

/* Takes one good line into the state; false when it is not one after all. */
static bool apply_line(struct jm_journal_state *s, char **field)
{
	double value = strtod(field[7], NULL);
	int verb = 0;

	while (verb < 4 && strcmp(field[1], verbs[verb]) != 0)
		verb++;
	if (verb == 4 || !isfinite(value))
		return false;
	snprintf(s->boot, sizeof(s->boot), "%s", field[2]);
	snprintf(s->control, sizeof(s->control), "%s", field[3]);
	snprintf(s->knob, sizeof(s->knob), "%s", field[4]);
	snprintf(s->unit, sizeof(s->unit), "%s", field[5]);
	snprintf(s->device, sizeof(s->device), "%s", field[6]);
	s->pid = (int)strtol(field[8], NULL, 10);
	s->open = verb == JM_JOURNAL_FOUND;
	if (verb == JM_JOURNAL_FOUND)
		s->found = value;
	if (verb == JM_JOURNAL_KEPT)
		s->base = value;
	s->kept = verb == JM_JOURNAL_KEPT || (s->kept && verb != JM_JOURNAL_GONE);
	return true;
}

/* Adds up all lines of the text; returns how many bytes from the start are good lines. */
static size_t fold(char *text, size_t n, struct jm_journal_state *s)
{
	size_t good = 0, start = 0;

	*s = (struct jm_journal_state){.found = NAN, .base = NAN};
	while (start < n) {
		char *end = memchr(text + start, '\n', n - start);
		size_t len = end ? (size_t)(end - text) - start : n - start;
		char *field[N_FIELDS];

		text[start + len] = '\0';
		if (end && split_line(text + start, len, field) && apply_line(s, field))
			good = start + len + 1;
		else if (end && (size_t)(end - text) + 1 < n)
			s->damaged++;
		start += len + 1;
	}
	return good;
}

/* Reads the open file from its beginning. */
static int load(int fd, const char *path, struct jm_journal_state *ret, size_t *ret_good,
	struct jm_err *err)
{
	struct stat st;
	char *text;
	ssize_t n;

	if (fstat(fd, &st))
		return jm_err_set(
			err, JM_EIO, "Cannot read the journal %s: %s.", path, strerror(errno));
	if (st.st_size > MAX_BYTES)
		return jm_err_set(err, JM_EFORMAT,
			"%s is no journal: it is larger than any can be; move it away and compare "
			"'joulemark get'.",
			path);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the journal %s.", path);
	n = pread(fd, text, (size_t)st.st_size, 0);
	if (n >= 0)
		*ret_good = fold(text, (size_t)n, ret);
	free(text);
	if (n < 0)
		return jm_err_set(
			err, JM_EIO, "Cannot read the journal %s: %s.", path, strerror(errno));
	return 0;
}

/* ---- the lock ------------------------------------------------------------------------------------------ */

/* A process that has ended but not been reaped does not run. */
static bool runs(int pid)
{
	struct pollfd p = {.events = POLLIN};
	bool ended;

	if (pid <= 0)
		return false;
	p.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (p.fd < 0)
		return errno != ESRCH;
	ended = poll(&p, 1, 0) > 0;
	close(p.fd);
	return !ended;
}

/* What the process was started as, for a sentence. */
static void command_of(int pid, char *out, size_t size)
{
	char path[64];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	file = fopen(path, "re");
	n = file ? fread(out, 1, size - 1, file) : 0;
	if (file)
		fclose(file);
	while (n && !out[n - 1])
		n--;
	out[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)out[i]))
			out[i] = ' ';
}

static int busy(const struct jm_journal_state *s, const char *path, struct jm_err *err)
{
	char command[64];

	if (!s->pid)
		return jm_err_set(err, JM_EBUSY,
			"Another joulemark holds the lock on %s; wait until it has ended.", path);
	command_of(s->pid, command, sizeof(command));
	return jm_err_set(err, JM_EBUSY,
		"%s of %s is held by process %d (%s); wait until it has ended, or stop it.",
		s->knob, s->device, s->pid, *command ? command : "ended");
}

/* Is the holder worth waiting for, after `waited` ms? */
static bool worth_waiting(const struct jm_journal_state *s, int waited)
{
	if (!s->open)
		return waited < WAIT_YOUNG;
	return waited < WAIT_DYING && !runs(s->pid);
}

/* Is it still the file of that name? A holder removes it, or moves a damaged one aside. */
static bool is_at(int fd, const char *path)
{
	struct stat ours, there;

	return !fstat(fd, &ours) && !lstat(path, &there) && ours.st_dev == there.st_dev &&
	       ours.st_ino == there.st_ino;
}

/* Opens and locks; the file may be removed or replaced by its holder at any time in between. */
static int open_locked(const char *path, int flags, struct jm_journal *j, struct jm_err *err)
{
	struct timespec step = {.tv_nsec = WAIT_STEP * 1000000};

	for (int waited = 0;; waited += WAIT_STEP) {
		struct jm_journal_state seen = {0};
		size_t good;
		int rc;

		j->fd = open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (j->fd < 0)
			return jm_err_set(err,
				errno == ENOENT			    ? JM_ENOENT
				: errno == EACCES || errno == EROFS ? JM_EPERM
								    : JM_EIO,
				"Cannot open the journal %s: %s; nothing was changed.", path,
				strerror(errno));
		if (!flock(j->fd, LOCK_EX | LOCK_NB)) {
			if (is_at(j->fd, path))
				return 0;
		} else {
			rc = load(j->fd, path, &seen, &good, err);
			if (!rc && !worth_waiting(&seen, waited))
				rc = busy(&seen, path, err);
			if (rc) {
				close(j->fd);
				return rc;
			}
			nanosleep(&step, NULL);
		}
		close(j->fd);
	}
}

static int open_path(const char *path, int flags, struct jm_journal *ret, struct jm_err *err)
{
	struct jm_journal j = {.fd = -1};
	int rc = open_locked(path, flags, &j, err);

	if (rc)
		return rc;
	snprintf(j.path, sizeof(j.path), "%s", path);
	rc = load(j.fd, path, &j.now, &j.good_bytes, err);
	if (rc) {
		close(j.fd);
		return rc;
	}
	j.fresh = j.good_bytes == 0;
	*ret = j;
	return 0;
}

int jm_journal_open_file(const char *path, struct jm_journal *ret, struct jm_err *err)
{
	return open_path(path, 0, ret, err);
}

/* "gpu.power@GPU-8f...-1a2b3c4d.journal": readable, and unlike any other by the hash. */
static void file_name(const char *knob, const char *device, char *out, size_t size)
{
	char plain[80];
	size_t n = 0;

	for (; device[n] && n < sizeof(plain) - 1; n++)
		plain[n] = isalnum((unsigned char)device[n]) || device[n] == '-' ? device[n] : '_';
	plain[n] = '\0';
	snprintf(out, size, "%s@%s-%08x.journal", knob, plain,
		(unsigned int)checksum(device, strlen(device)));
}

int jm_journal_open(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_journal *ret, struct jm_err *err)
{
	char folder[900], name[JM_JOURNAL_NAME], path[JM_JOURNAL_PATH];
	int rc = jm_journal_folder(ctx, folder, sizeof(folder), err);

	if (rc)
		return rc;
	file_name(knob, device, name, sizeof(name));
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return open_path(path, O_CREAT, ret, err);
}

int jm_journal_write(struct jm_journal *j, const struct jm_journal_state *next,
	enum jm_journal_verb verb, double value, struct jm_err *err)
{
	char line[1024];
	int n = format_line(line, sizeof(line), next, verb, value);
	struct jm_journal_state after = j->now;
	char *field[N_FIELDS];

	if (n < 0)
		return jm_err_set(err, JM_EBUG, "A line of the journal %s is too long.", j->path);
	/* a torn last line is cut off; what cannot be written whole is taken back */
	if (ftruncate(j->fd, (off_t)j->good_bytes) ||
		pwrite(j->fd, line, (size_t)n, (off_t)j->good_bytes) != n || fsync(j->fd)) {
		int saved = errno;

		if (ftruncate(j->fd, (off_t)j->good_bytes))
			saved = errno;
		return jm_err_set(err, JM_EIO,
			"Cannot write the journal %s: %s; free some space and try again.", j->path,
			strerror(saved ? saved : ENOSPC));
	}
	j->good_bytes += (size_t)n;
	line[n - 1] = '\0';
	if (!split_line(line, (size_t)n - 1, field) || !apply_line(&after, field))
		return jm_err_set(err, JM_EBUG, "The journal %s does not read back.", j->path);
	j->now = after;
	return 0;
}

void jm_journal_close(struct jm_journal *j)
{
	char aside[sizeof(j->path) + 16];

	if (j->fd < 0)
		return;
	if (!j->now.open && !j->now.kept) {
		snprintf(aside, sizeof(aside), "%s.damaged", j->path);
		if (!j->now.damaged || rename(j->path, aside))
			unlink(j->path);
	}
	close(j->fd);
	j->fd = -1;
}

int jm_journal_peek(
	const char *path, struct jm_journal_state *ret, bool *ret_live, struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc;
	size_t good;

	if (fd < 0)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EPERM,
			"Cannot read the journal %s: %s.", path, strerror(errno));
	*ret_live = flock(fd, LOCK_SH | LOCK_NB) != 0;
	rc = load(fd, path, ret, &good, err);
	close(fd);
	return rc;
}
