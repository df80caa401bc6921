/* SPDX-License-Identifier: Apache-2.0 */
/* Journals of knobs: the lock, and writing. See journal.h. */
#include "guard/journal.h"

#include "base/ctx.h"
#include "base/clock.h"
#include "base/files/private_file.h"
#include "base/files/state_folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define WAIT_STEP  (10 * JM_MILLISECOND)
#define WAIT_YOUNG JM_SECOND /* for a holder that has not written yet */
#define ANNOUNCE   JM_SECOND

/* "gpu.power@GPU-8f...-1a2b3c4d": readable, and unlike any other by the hash. */
void jm_journal_name(const char *knob, const char *device, char *out, size_t size)
{
	char plain[80];
	size_t n = 0;

	for (; device[n] && n < sizeof(plain) - 1; n++)
		plain[n] = isalnum((unsigned char)device[n]) || device[n] == '-' ? device[n] : '_';
	plain[n] = '\0';
	snprintf(out, size, "%s@%s-%08x", knob, plain,
		(unsigned int)XXH3_64bits(device, strlen(device)));
}

/* ---- folders --------------------------------------------------------------------------------- */

static int open_folder(const struct jm_ctx *ctx, const char *sub, mode_t mode, bool make,
	int *ret_fd, struct jm_err *err)
{
	char path[900];
	int rc = make ? jm_state_folder(ctx, sub, path, sizeof(path), err)
		      : jm_state_path(ctx, sub, path, sizeof(path), err);

	return rc ? rc : jm_private_folder(path, mode, ret_fd, err);
}

static void close_folders(struct jm_journal *j)
{
	if (j->folder >= 0)
		close(j->folder);
	if (j->copies >= 0)
		close(j->copies);
	j->folder = j->copies = -1;
}

/* Restoring works without copies; only a caller that is about to change something needs them. */
static int open_folders(
	const struct jm_ctx *ctx, bool make, struct jm_journal *j, struct jm_err *err)
{
	int rc = open_folder(ctx, JM_JOURNAL_FOLDER, 0700, make, &j->folder, err);

	if (rc)
		return rc;
	rc = open_folder(ctx, JM_JOURNAL_COPIES, 0755, make, &j->copies, make ? err : NULL);
	if (rc && make) {
		close_folders(j);
		return rc;
	}
	return 0;
}

int jm_journal_sync_folder(const struct jm_ctx *ctx, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int fd, rc = open_folder(ctx, JM_JOURNAL_FOLDER, 0700, false, &fd, &why);

	/* some file systems cannot sync a folder and need not */
	if (!rc && fsync(fd) && errno != EINVAL)
		rc = jm_err_set(&why, JM_EIO, "%s.", strerror(errno));
	if (rc)
		return jm_err_set(err, rc,
			"Cannot sync the journals' folder: %s Nothing was changed.", why.text);
	close(fd);
	return 0;
}

/* ---- the lock -------------------------------------------------------------------------------- */

/* Is the lock still the file with its name in the folder with its name? A user may have removed
 * them. */
static bool is_in_place(const struct jm_journal *j)
{
	char file[JM_JOURNAL_NAME + 16];
	struct stat ours, there;

	jm__journal_file(j->name, JM__LOCK_END, file, sizeof(file));
	return !fstat(j->lock, &ours) && !fstatat(j->folder, file, &there, AT_SYMLINK_NOFOLLOW) &&
	       ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/* On a read-only file system without a lock no process can begin a change: the folder is locked
 * instead. */
static int open_lock(struct jm_journal *j, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	char file[JM_JOURNAL_NAME + 16];
	int rc;

	j->stand_in = false;
	jm__journal_file(j->name, JM__LOCK_END, file, sizeof(file));
	rc = jm_private_open(j->folder, file, O_RDONLY, &j->lock, NULL);
	if (rc)
		rc = jm_private_open(j->folder, file, O_RDWR | O_CREAT, &j->lock, &why);
	if (rc != JM_EPERM)
		return rc ? jm_err_set(err, rc, "%s", why.text) : 0;
	j->lock = openat(j->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	j->stand_in = j->lock >= 0;
	return j->lock < 0 ? jm_err_set(err, rc, "%s", why.text) : 0;
}

/* A process of joulemark 0.1 locks the record itself. Any user can lock a file that was once
 * readable to all, so the lock alone proves nothing: the client in the record has to be running,
 * too. */
static bool held_by_old(const struct jm_journal *j, const struct jm_journal_state *s)
{
	char file[JM_JOURNAL_NAME + 16];
	bool held = false;
	int fd;

	if (s->guard.pid || !s->open || !jm_process_runs(&s->client))
		return false;
	jm__journal_file(j->name, JM_JOURNAL_END, file, sizeof(file));
	if (jm_private_open(j->folder, file, O_RDONLY, &fd, NULL))
		return false;
	held = flock(fd, LOCK_SH | LOCK_NB) != 0;
	close(fd);
	return held;
}

/* The holder, as far as lock and record show. */
static void name_holder(
	const struct jm_journal *j, const struct jm_journal_state *s, char *out, size_t size)
{
	char holder[120], client[120];
	pid_t pid = jm_process_with_lock(j->lock);

	jm_process_text(pid	       ? pid
			: s->guard.pid ? s->guard.pid
				       : s->client.pid,
		holder, sizeof(holder));
	jm_process_text(s->client.pid, client, sizeof(client));
	if (!pid && !s->open)
		snprintf(out, size, "another joulemark");
	else if ((pid && pid != s->guard.pid) || !s->open)
		snprintf(out, size, "%s", holder);
	else if (jm_process_runs(&s->client))
		snprintf(out, size, "%s, by its guard, process %d", client, (int)s->guard.pid);
	else
		snprintf(out, size, "%s, which has to put it back for process %d, which has ended",
			holder, (int)s->client.pid);
	if (pid && jm_process_stopped(pid))
		snprintf(out + strlen(out), size - strlen(out),
			"; process %d is stopped: 'kill -CONT %d' continues it", (int)pid,
			(int)pid);
}

static int busy(const struct jm_journal *j, const struct jm_journal_state *s, struct jm_err *err)
{
	char holder[360];

	name_holder(j, s, holder, sizeof(holder));
	return jm_err_set(err, JM_EBUSY,
		"%s%s%s is held by %s. Wait until that has ended, or stop it, and try again.",
		s->open ? s->knob : "The lock of ", s->open ? " of " : "",
		s->open ? s->device : j->name, holder);
}

/* True if the holder may release the lock soon. One whose client runs may keep it for hours. */
static bool is_worth_waiting(
	const struct jm_journal_state *s, const struct jm_patience *p, int64_t waited_ns)
{
	if (p->interrupts && *p->interrupts > 1)
		return false;
	if (!s->open)
		return waited_ns < WAIT_YOUNG && waited_ns < p->limit_ns;
	return p->waited_ns < p->limit_ns && !jm_process_runs(&s->client);
}

static void announce(
	struct jm_patience *p, const struct jm_journal *j, const struct jm_journal_state *s)
{
	char holder[360];

	if (p->announced || p->waited_ns < ANNOUNCE || !p->ctx)
		return;
	p->announced = true;
	name_holder(j, s, holder, sizeof(holder));
	jm_log(p->ctx, JM_WARNING, "Waiting up to %.0f s for %s of %s, which is held by %s.",
		(double)p->limit_ns / 1e9, s->open ? s->knob : "the lock",
		s->open ? s->device : j->name, holder);
}

/* The contents of the record while another process has the lock; empty when it cannot be read. */
static void look(const struct jm_journal *j, struct jm_journal_state *ret)
{
	char damage[200];

	*ret = (struct jm_journal_state){0};
	if (jm__journal_read(j->folder, j->copies, j->name, ret, damage, sizeof(damage), NULL))
		*ret = (struct jm_journal_state){0};
}

/* One try; JM_EBUSY with what the holder has written. */
static int try_lock(struct jm_journal *j, struct jm_journal_state *ret_seen, struct jm_err *err)
{
	int rc = open_lock(j, err);

	if (rc)
		return rc;
	if (flock(j->lock, LOCK_EX | LOCK_NB)) {
		look(j, ret_seen);
		return JM_EBUSY;
	}
	if (!j->stand_in && !is_in_place(j))
		return JM_EGONE;
	look(j, ret_seen);
	return held_by_old(j, ret_seen) ? JM_EBUSY : 0;
}

static void drop(struct jm_journal *j)
{
	if (j->lock >= 0)
		close(j->lock);
	j->lock = -1;
}

/* Opens folders and lock until the lock is ours; the files may be removed at any time in
 * between. */
static int lock_name(const struct jm_ctx *ctx, bool make, struct jm_patience *p,
	struct jm_journal *j, struct jm_err *err)
{
	struct jm_patience plain = {.ctx = ctx, .limit_ns = JM_LOCK_LIMIT_NS};
	struct timespec step = {.tv_nsec = WAIT_STEP};

	p = p ? p : &plain;
	for (int64_t waited = 0;; waited += WAIT_STEP) {
		struct jm_journal_state seen = {0};
		int rc = open_folders(ctx, make, j, err);
		bool again;

		if (rc)
			return rc;
		rc = try_lock(j, &seen, err);
		if (!rc)
			return 0;
		again = rc == JM_EGONE || (rc == JM_EBUSY && is_worth_waiting(&seen, p, waited));
		if (rc == JM_EBUSY && again)
			announce(p, j, &seen);
		else if (rc == JM_EBUSY)
			busy(j, &seen, err);
		drop(j);
		close_folders(j);
		if (!again)
			return rc;
		nanosleep(&step, NULL);
		p->waited_ns += WAIT_STEP;
	}
}

/* ---- opening, writing, closing --------------------------------------------------------------- */

/* "NAME.journal.damaged", or with a number when there is one already. */
static int set_aside(struct jm_journal *j, char *ret, size_t size, struct jm_err *err)
{
	char file[JM_JOURNAL_NAME + 16], aside[JM_JOURNAL_NAME + 48];
	struct stat st;

	jm__journal_file(j->name, JM_JOURNAL_END, file, sizeof(file));
	snprintf(aside, sizeof(aside), "%s.damaged", file);
	for (int i = 2; i < 1000 && !fstatat(j->folder, aside, &st, AT_SYMLINK_NOFOLLOW); i++)
		snprintf(aside, sizeof(aside), "%s.damaged.%d", file, i);
	if (renameat(j->folder, file, j->folder, aside) && errno != ENOENT)
		return jm_err_set(err, JM_EIO, "The damaged journal %s cannot be set aside: %s.",
			j->path, strerror(errno));
	snprintf(ret, size, "%s", aside);
	return 0;
}

/* With the lock held: the copy was used, and becomes the record. */
static void mend(struct jm_journal *j)
{
	char aside[JM_JOURNAL_NAME + 48], damage[sizeof(j->damage)];

	memcpy(damage, j->damage, sizeof(damage));
	if (set_aside(j, aside, sizeof(aside), NULL))
		return; /* on a read-only file system the copy will be used again */
	jm__journal_put(j->folder, j->name, &j->now, 0600, NULL);
	snprintf(j->damage, sizeof(j->damage), "%.150s", damage);
}

/* Two machines that share a folder, in a home on the network, have one file where their devices
 * have one name. */
static int check_machine(const struct jm_ctx *ctx, const struct jm_journal *j, struct jm_err *err)
{
	char machine[40];

	if (!jm__journal_says(&j->now))
		return 0;
	jm_process_machine(ctx->root, machine, sizeof(machine));
	if (!jm__journal_foreign(&j->now, machine))
		return 0;
	return jm_err_set(err, JM_EBUSY,
		"%s of %s is set on another machine, which uses the same folder for its journals "
		"(%s has the machine-id %s). Give each machine its own: JM_STATE=FOLDER.",
		j->now.knob, j->now.device, j->path, j->now.machine);
}

static int open_name(const struct jm_ctx *ctx, const char *name, bool make, struct jm_patience *p,
	struct jm_journal *ret, struct jm_err *err)
{
	struct jm_journal j = {.folder = -1, .copies = -1, .lock = -1};
	struct jm_err why = JM_ERR_INIT;
	char folder[900];
	int rc;

	snprintf(j.name, sizeof(j.name), "%s", name);
	rc = jm_state_path(ctx, JM_JOURNAL_FOLDER, folder, sizeof(folder), err);
	if (rc)
		return rc;
	snprintf(j.path, sizeof(j.path), "%.800s/%s" JM_JOURNAL_END, folder, j.name);
	rc = lock_name(ctx, make, p, &j, &why);
	if (rc)
		return jm_err_set(err, rc, "%s", why.text);
	rc = jm__journal_read(j.folder, j.copies, j.name, &j.now, j.damage, sizeof(j.damage), &why);
	if (rc == JM_ENOENT && j.copies >= 0)
		jm__journal_put(j.copies, j.name, &(struct jm_journal_state){0}, 0644, NULL);
	if (rc == JM_ENOENT && make) {
		j.now = (struct jm_journal_state){0};
		rc = 0;
	}
	if (!rc && *j.damage)
		mend(&j);
	if (!rc)
		rc = check_machine(ctx, &j, &why);
	*ret = j;
	if (rc)
		jm_journal_close(ret);
	return rc ? jm_err_set(err, rc, "%s", why.text) : 0;
}

int jm_journal_open_name(const struct jm_ctx *ctx, const char *name, struct jm_patience *patience,
	struct jm_journal *ret, struct jm_err *err)
{
	return open_name(ctx, name, false, patience, ret, err);
}

int jm_journal_open(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_patience *patience, struct jm_journal *ret, struct jm_err *err)
{
	char name[JM_JOURNAL_NAME];

	jm_journal_name(knob, device, name, sizeof(name));
	return open_name(ctx, name, true, patience, ret, err);
}

int jm_journal_open_damaged(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_patience *patience, struct jm_journal *ret, struct jm_err *err)
{
	struct jm_journal j = {.folder = -1, .copies = -1, .lock = -1};
	int rc;

	jm_journal_name(knob, device, j.name, sizeof(j.name));
	jm__journal_file(j.name, JM_JOURNAL_END, j.path, sizeof(j.path));
	rc = lock_name(ctx, false, patience, &j, err);
	if (!rc)
		*ret = j;
	return rc;
}

int jm_journal_set_aside(struct jm_journal *j, char *ret, size_t size, struct jm_err *err)
{
	char file[JM_JOURNAL_NAME + 16];
	int rc = set_aside(j, ret, size, err);

	jm__journal_file(j->name, JM_JOURNAL_END, file, sizeof(file));
	if (!rc && j->copies >= 0 && unlinkat(j->copies, file, 0) && errno != ENOENT)
		rc = jm_err_set(err, JM_EIO, "The copy of %s cannot be removed: %s.", file,
			strerror(errno));
	return rc;
}

int jm_journal_write(struct jm_journal *j, const struct jm_journal_state *next,
	enum jm_journal_verb verb, const struct jm_knob_value *value, struct jm_err *err)
{
	struct jm_journal_state after = *next;
	bool begins = verb == JM_JOURNAL_FOUND;
	int rc = 0;

	after.open = j->now.open;
	after.found = j->now.found;
	after.kept = j->now.kept;
	after.base = j->now.base;
	after.left = verb == JM_JOURNAL_KEPT ? next->left : j->now.left;
	after.damaged = 0;
	jm__journal_apply(&after, verb, value);
	if (begins)
		rc = jm__journal_put(j->folder, j->name, &after, 0600, err);
	if (!rc && j->copies >= 0)
		rc = jm__journal_put(j->copies, j->name, &after, 0644, err);
	if (!rc && !begins)
		rc = jm__journal_put(j->folder, j->name, &after, 0600, err);
	if (!rc)
		j->now = after;
	return rc;
}

void jm_journal_close(struct jm_journal *j)
{
	if (j->lock < 0)
		return;
	drop(j);
	close_folders(j);
}
