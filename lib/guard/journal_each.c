/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all journals without their locks; for another user, the copies. */
#include "journal_each.h"
#include "base/ctx.h"
#include "base/files/private_file.h"
#include "base/files/state_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct look {
	int folder, copies; /* -1 = not readable, or not there */
	char machine[40];
	int (*fn)(void *arg, const struct jm_journal_view *view, struct jm_err *err);
	void *arg;
};

static int show(const struct look *l, const char *name, struct jm_err *err)
{
	struct jm_journal_view view = {0};
	struct jm_err why = JM_ERR_INIT;
	char damage[200];
	int rc = jm__journal_read(
		l->folder, l->copies, name, &view.state, damage, sizeof(damage), &why);

	view.forgotten = rc == JM_ENOENT;
	if (!rc && (!jm__journal_says(&view.state) || jm__journal_foreign(&view.state, l->machine)))
		return 0;
	snprintf(view.name, sizeof(view.name), "%s", name);
	view.unreadable = rc && !view.forgotten;
	snprintf(view.why, sizeof(view.why), "%.299s", rc ? why.text : damage);
	return l->fn(l->arg, &view, err);
}

static bool has_record(const struct look *l, const char *file)
{
	struct stat st;

	return l->folder >= 0 && !fstatat(l->folder, file, &st, AT_SYMLINK_NOFOLLOW);
}

struct names {
	char (*name)[JM_JOURNAL_NAME];
	size_t n;
};

static int add_name(struct names *names, const char *file, size_t length, struct jm_err *err)
{
	char(*grown)[JM_JOURNAL_NAME] = reallocarray(names->name, names->n + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %zu journals.", names->n + 1);
	names->name = grown;
	snprintf(grown[names->n++], sizeof(*grown), "%.*s", (int)length, file);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(a, b);
}

/* In the order of their names, so that messages about GPUs come in the order of the GPUs. */
static int list_names(const struct look *l, int folder, bool skip_recorded, struct names *names,
	struct jm_err *err)
{
	const size_t end = strlen(JM_JOURNAL_END);
	DIR *dir = jm_private_list(folder);
	const struct dirent *e;
	int rc = 0;

	if (!dir)
		return jm_err_set(err, JM_EIO, "Cannot list the journals: %s.", strerror(errno));
	while (!rc && (e = readdir(dir))) {
		size_t n = strlen(e->d_name);

		if (n <= end || strcmp(e->d_name + n - end, JM_JOURNAL_END) != 0 ||
			(skip_recorded && has_record(l, e->d_name)))
			continue;
		rc = add_name(names, e->d_name, n - end, err);
	}
	closedir(dir);
	if (names->n)
		qsort(names->name, names->n, sizeof(*names->name), by_name);
	return rc;
}

static int walk(const struct look *l, int folder, bool skip_recorded, struct jm_err *err)
{
	struct names names = {0};
	int rc = list_names(l, folder, skip_recorded, &names, err);

	for (size_t i = 0; i < names.n && !rc; i++)
		rc = show(l, names.name[i], err);
	free(names.name);
	return rc;
}

static int open_both(const struct jm_ctx *ctx, struct look *l, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	char path[900];
	int rc = jm_state_path(ctx, JM_JOURNAL_FOLDER, path, sizeof(path), err);

	if (rc)
		return rc;
	jm_process_machine(ctx->root, l->machine, sizeof(l->machine));
	rc = jm_private_folder(path, 0700, &l->folder, &why);
	if (rc && rc != JM_ENOENT && rc != JM_EPERM)
		return jm_err_set(err, rc, "%s", why.text);
	jm_state_path(ctx, JM_JOURNAL_COPIES, path, sizeof(path), NULL);
	if (jm_public_folder(path, &l->copies, NULL))
		l->copies = -1;
	if (rc == JM_EPERM && l->copies < 0)
		return jm_err_set(err, JM_EPERM,
			"It is unknown what is set: %s There is no copy that all users may read; "
			"ask its owner, or use sudo.",
			why.text);
	return 0;
}

static void close_both(const struct look *l)
{
	if (l->folder >= 0)
		close(l->folder);
	if (l->copies >= 0)
		close(l->copies);
}

static int walk_both(const struct look *l, struct jm_err *err)
{
	int rc = l->folder < 0 ? 0 : walk(l, l->folder, false, err);

	if (!rc && l->copies >= 0)
		rc = walk(l, l->copies, true, err);
	close_both(l);
	return rc;
}

int jm_journal_peek(const struct jm_ctx *ctx, const char *knob, const char *device,
	struct jm_journal_state *ret)
{
	struct look l = {.folder = -1, .copies = -1};
	char name[JM_JOURNAL_NAME], damage[200];
	struct jm_journal_state seen;
	int rc = open_both(ctx, &l, NULL);

	if (rc)
		return rc;
	jm_journal_name(knob, device, name, sizeof(name));
	rc = jm__journal_read(l.folder, l.copies, name, &seen, damage, sizeof(damage), NULL);
	close_both(&l);
	if (!rc && (!jm__journal_says(&seen) || jm__journal_foreign(&seen, l.machine)))
		rc = JM_ENOENT;
	if (!rc)
		*ret = seen;
	return rc;
}

int jm_journal_each(const struct jm_ctx *ctx,
	int (*fn)(void *arg, const struct jm_journal_view *view, struct jm_err *err), void *arg,
	struct jm_err *err)
{
	struct look l = {.folder = -1, .copies = -1, .fn = fn, .arg = arg};
	int rc = open_both(ctx, &l, err);

	return rc ? rc : walk_both(&l, err);
}

int jm_journal_each_of_root(const struct jm_ctx *ctx,
	int (*fn)(void *arg, const struct jm_journal_view *view, struct jm_err *err), void *arg,
	struct jm_err *err)
{
	struct look l = {.folder = -1, .copies = -1, .fn = fn, .arg = arg};
	char path[PATH_MAX];

	if (!jm_state_path_of_root(ctx, JM_JOURNAL_COPIES, path, sizeof(path)) ||
		jm_public_folder(path, &l.copies, NULL))
		return 0;
	jm_process_machine(ctx->root, l.machine, sizeof(l.machine));
	return walk_both(&l, err);
}
