/* SPDX-License-Identifier: Apache-2.0 */
/* What crashed holders left behind, and what was kept: putting it back, and telling of it. */
#include "guard/guard.h"
#include "guard/journal.h"
#include "guard/guard_apply.h"
#include "base/state_folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One pass over all journals. */
struct pass {
	struct jm_ctx *ctx;
	bool kept_too;
	char boot[40];
	struct jm_knob_table table; /* of the journal before, which is mostly of the same control */
	char spec[JM_SPEC_MAX];	    /* "" = none is open */
	int n_back;
	int failed; /* code of the first failure */
	struct jm_err *err;
};

/* Calls fn with the path of each journal. fn returns non-zero to end. */
static int each_journal(const struct jm_ctx *ctx,
	int (*fn)(void *arg, const char *path, struct jm_err *err), void *arg, struct jm_err *err)
{
	char folder[900], path[JM_JOURNAL_PATH];
	int rc = jm_state_path(ctx, JM_JOURNAL_FOLDER, folder, sizeof(folder), err);
	struct dirent *e;
	DIR *dir;

	if (rc)
		return rc;
	dir = opendir(folder);
	if (!dir && errno == ENOENT)
		return 0;
	if (!dir)
		return jm_err_set(err, errno == EACCES ? JM_EPERM : JM_EIO,
			"Cannot read the journals' folder %s: %s.", folder, strerror(errno));
	while (!rc && (e = readdir(dir))) {
		size_t n = strlen(e->d_name);

		if (n < 8 || strcmp(e->d_name + n - 8, ".journal") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%.*s", folder, JM_JOURNAL_NAME - 1, e->d_name);
		rc = fn(arg, path, err);
	}
	closedir(dir);
	return rc;
}

static void close_board(struct pass *p)
{
	if (*p->spec)
		jm_knob_table_close(&p->table);
	*p->spec = '\0';
}

static const struct jm_knob_table *table_of(struct pass *p, const char *spec, struct jm_err *err)
{
	if (*p->spec && !strcmp(p->spec, spec))
		return &p->table;
	close_board(p);
	if (jm_knob_table_open(p->ctx, spec, &p->table, err))
		return NULL;
	snprintf(p->spec, sizeof(p->spec), "%s", spec);
	return &p->table;
}

static bool outlived(const struct pass *p, const struct jm_journal_state *s)
{
	char name[JM_SPEC_MAX];
	const struct jm_control *control;

	snprintf(name, sizeof(name), "%s", s->control);
	name[strcspn(name, ":")] = '\0';
	control = jm_control_find(name, NULL);
	return control && control->lost_at_reboot && *s->boot && *p->boot &&
	       strcmp(s->boot, p->boot) != 0;
}

/* Sets the knob the journal speaks of. */
static int put_back(
	struct pass *p, const struct jm_journal_state *s, double value, struct jm_err *err)
{
	const struct jm_knob_table *table = table_of(p, s->control, err);
	double now = NAN, enforced;
	int i, rc;

	if (!table)
		return err->code;
	i = jm_knob_table_find(table, s->knob, s->device);
	if (i < 0)
		return jm_err_set(
			err, JM_EGONE, "%s with its %s is not here now.", s->device, s->knob);
	jm_knob_table_get(table, i, &now, &enforced, NULL);
	rc = jm_put_back(table, i, value, err);
	if (rc)
		return rc;
	p->n_back++;
	jm_log(p->ctx, s->open ? JM_WARNING : JM_INFO,
		"%s of %s is back at %g%s; %s (process %d) had left it at %g%s.", s->knob,
		table->knobs.knob[i].label, value, s->unit,
		s->open ? "a joulemark that was killed" : "'joulemark set'", s->pid, now, s->unit);
	return 0;
}

/* The journal is locked and has something to put back. */
static int recover_knob(struct pass *p, struct jm_journal *j, struct jm_err *err)
{
	struct jm_journal_state s = j->now;
	int rc = 0;

	if (s.damaged)
		jm_log(p->ctx, JM_WARNING,
			"The journal %s has %d damaged lines; compare 'joulemark get' with what "
			"should be.",
			j->path, s.damaged);
	if ((s.open || s.kept) && outlived(p, &s)) {
		jm_log(p->ctx, JM_INFO,
			"The machine has been restarted since process %d set %s of %s; the restart "
			"has put it back.",
			s.pid, s.knob, s.device);
		return jm_journal_write(j, &s, JM_JOURNAL_GONE, 0, err);
	}
	if (s.open)
		rc = put_back(p, &s, s.found, err);
	if (s.open && !rc)
		rc = jm_journal_write(j, &s, JM_JOURNAL_BACK, s.found, err);
	s.open = false;
	if (!rc && s.kept && p->kept_too)
		rc = put_back(p, &s, s.base, err);
	if (!rc && s.kept && p->kept_too)
		rc = jm_journal_write(j, &s, JM_JOURNAL_GONE, s.base, err);
	return rc;
}

/* One journal; its failure is told and the others go on. */
static int visit(void *arg, const char *path, struct jm_err *err)
{
	struct pass *p = arg;
	struct jm_err why = JM_ERR_INIT;
	struct jm_journal j;
	struct jm_journal_state s;
	int rc = jm_journal_open_file(path, &j, &why);

	(void)err;
	/* a living holder's is its own business; the lock is waited for when the holder has died */
	if (rc == JM_ENOENT || (rc == JM_EBUSY && !p->kept_too))
		return 0;
	if (!rc) {
		s = j.now;
		rc = recover_knob(p, &j, &why);
		jm_journal_close(&j);
		if (rc)
			jm_log(p->ctx, JM_WARNING,
				"%s of %s is NOT back: %s It stays in the journal %s; 'joulemark "
				"restore' tries again.",
				s.knob, s.device, why.text, path);
	}
	if (rc) {
		jm_err_set(p->err, rc, "%s", why.text);
		p->failed = p->failed ? p->failed : rc;
	}
	return 0;
}

static int run_pass(struct jm_ctx *ctx, bool kept_too, int *ret_n, struct jm_err *err)
{
	struct pass p = {.ctx = ctx, .kept_too = kept_too, .err = err};
	int rc;

	jm_journal_boot(ctx, p.boot, sizeof(p.boot));
	rc = each_journal(ctx, visit, &p, err);
	close_board(&p);
	if (!rc)
		rc = p.failed;
	*ret_n = p.n_back;
	return rc;
}

int jm_guard_recover(struct jm_ctx *ctx, int *ret_n, struct jm_err *err)
{
	return run_pass(ctx, false, ret_n, err);
}

int jm_guard_release(struct jm_ctx *ctx, int *ret_n, struct jm_err *err)
{
	return run_pass(ctx, true, ret_n, err);
}

/* ---- telling ------------------------------------------------------------------------------------------- */

struct holds {
	struct jm_hold *hold;
	int n;
};

static int collect(void *arg, const char *path, struct jm_err *err)
{
	struct holds *h = arg;
	struct jm_hold *grown, hold = {0};
	struct jm_journal_state s;
	bool live;
	int rc = jm_journal_peek(path, &s, &live, err);

	if (rc == JM_ENOENT)
		return 0;
	if (rc || (!s.open && !s.kept))
		return rc;
	snprintf(hold.knob, sizeof(hold.knob), "%s", s.knob);
	snprintf(hold.unit, sizeof(hold.unit), "%s", s.unit);
	snprintf(hold.device, sizeof(hold.device), "%s", s.device);
	snprintf(hold.control, sizeof(hold.control), "%.*s", (int)sizeof(hold.control) - 1,
		s.control);
	hold.found = s.open ? s.found : s.base;
	hold.held = live ? JM_HELD_LIVE : s.open ? JM_HELD_STALE : JM_HELD_KEPT;
	hold.pid = s.pid;
	grown = reallocarray(h->hold, (size_t)h->n + 1, sizeof(*grown));
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d journals.", h->n + 1);
	h->hold = grown;
	grown[h->n++] = hold;
	return 0;
}

static int by_device(const void *a, const void *b)
{
	const struct jm_hold *x = a, *y = b;
	int order = strcmp(x->knob, y->knob);

	return order ? order : strcmp(x->device, y->device);
}

int jm_guard_holds(struct jm_ctx *ctx, struct jm_hold **ret, int *ret_n, struct jm_err *err)
{
	struct holds h = {0};
	int rc = each_journal(ctx, collect, &h, err);

	if (rc) {
		free(h.hold);
		return rc;
	}
	if (h.n)
		qsort(h.hold, (size_t)h.n, sizeof(*h.hold), by_device);
	*ret = h.hold;
	*ret_n = h.n;
	return 0;
}
