/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The share of processor time that a control group may use: cpu.quota in processors, 1.5 = one and
 * a half.
 *
 * Version 2 has it in cpu.max, "QUOTA PERIOD" or "max PERIOD"; version 1 in cpu.cfs_quota_us, where
 * -1 is no limit, with cpu.cfs_period_us; both in microseconds
 * (Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst of the kernel). The period
 * stays as it is. The quota holds for all processes of the group, joulemark's own included, and
 * also for groups below it; the group at the top of a hierarchy has none.
 *
 * The device is the group's folder below /sys/fs/cgroup with the number of its inode,
 * "cpu/jobs/7#4711": a group that is removed takes its quota with it, and another one of the same
 * name is another device.
 */
#include "guard/control.h"
#include "base/ctx.h"
#include "sysfs_file.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CGROUPS	 "/sys/fs/cgroup"
#define LEAST_US 1000 /* the kernel takes no smaller quota */

struct state {
	char folder[PATH_MAX];
	size_t top; /* length of the part of the folder above all groups */
	unsigned long long inode;
	bool version2;
	double min; /* processors */
};

/* ---- one group's files ---- */

struct quota {
	double us, period_us; /* us INFINITY = no limit */
};

static void file_of(const char *folder, const char *name, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.*s/%s", PATH_MAX - 40, folder, name);
}

static int bad_file(const char *path, const char *line, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT,
		"%s has '%.40s' where a quota and a period in microseconds are expected.", path,
		line);
}

/* "150000 100000" or "max 100000" */
static int read_version2(const char *folder, struct quota *ret, struct jm_err *err)
{
	char path[PATH_MAX], line[JM_SYSFS_LINE], *end;
	struct quota q = {.us = INFINITY};
	int rc;

	file_of(folder, "cpu.max", path);
	rc = jm_sysfs_read_line(path, line, err);
	if (rc)
		return rc;
	if (!strncmp(line, "max ", 4))
		end = line + 3;
	else
		q.us = (double)strtoull(line, &end, 10);
	q.period_us = *end == ' ' ? (double)strtoull(end + 1, &end, 10) : 0;
	if (*end || !(q.period_us > 0) || !(q.us > 0))
		return bad_file(path, line, err);
	*ret = q;
	return 0;
}

static int read_version1(const char *folder, struct quota *ret, struct jm_err *err)
{
	char path[PATH_MAX];
	long long us, period_us;
	int rc;

	file_of(folder, "cpu.cfs_quota_us", path);
	rc = jm_sysfs_read_number(path, &us, err);
	if (rc)
		return rc;
	file_of(folder, "cpu.cfs_period_us", path);
	rc = jm_sysfs_read_number(path, &period_us, err);
	if (!rc && period_us <= 0)
		rc = bad_file(path, "0", err);
	if (!rc)
		*ret = (struct quota){
			.us = us < 0 ? INFINITY : (double)us, .period_us = (double)period_us};
	return rc;
}

static int read_quota(
	const struct state *s, const char *folder, struct quota *ret, struct jm_err *err)
{
	return s->version2 ? read_version2(folder, ret, err) : read_version1(folder, ret, err);
}

static struct jm_knob_value value_of(double processors)
{
	return isinf(processors) ? jm_knob_value_word(JM_UNLOCKED) : jm_knob_value_of(processors);
}

static int removed(const struct state *s, struct jm_err *err)
{
	return jm_err_set(err, JM_EGONE, "The control group %s has been removed.", s->folder);
}

/* Only a folder that is not there has been removed; one that cannot be looked at may still have its
 * quota. */
static int not_found(const struct state *s, int number, struct jm_err *err)
{
	return number == ENOENT
		       ? removed(s, err)
		       : jm_err_set(err, JM_EIO, "Cannot look at the control group %s: %s.",
				 s->folder, strerror(number));
}

/* ---- which group ---- */

static bool has_file(const char *folder, const char *name)
{
	char path[PATH_MAX];

	file_of(folder, name, path);
	return !access(path, F_OK);
}

/* Is the folder a group with a quota? The group at the top of version 1 has the files, but takes no
 * quota; it is the only one with a release agent. */
static bool is_group(const char *folder)
{
	return has_file(folder, "cpu.max") ||
	       (has_file(folder, "cpu.cfs_quota_us") && !has_file(folder, "release_agent"));
}

/* The folder of a group below one at the top, "/cpu,cpuacct" or ""; false: that is none with a
 * quota. */
static bool take_folder(
	const struct jm_ctx *ctx, const char *top, const char *group, struct state *s)
{
	int n = snprintf(s->folder, sizeof(s->folder), "%s" CGROUPS "%s", ctx->root, top);

	s->top = (size_t)n;
	snprintf(s->folder + n, sizeof(s->folder) - (size_t)n, "%.2000s", group);
	return is_group(s->folder);
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);
	const char *at = strstr(list, word);

	while (at && ((at > list && at[-1] != ',') || (at[n] && at[n] != ',')))
		at = strstr(at + 1, word);
	return at;
}

/* A line of /proc/self/cgroup, "4:cpu,cpuacct:/jobs/7" or, of version 2, "0::/jobs/7". */
static bool find_in_line(const struct jm_ctx *ctx, char *line, struct state *s)
{
	char *save = NULL, top[100];
	const char *controllers, *group;

	line[strcspn(line, "\n")] = '\0';
	if (!strncmp(line, "0::", 3))
		return take_folder(ctx, "", line + 3, s) ||
		       take_folder(ctx, "/unified", line + 3, s);
	strtok_r(line, ":", &save);
	controllers = strtok_r(NULL, ":", &save);
	group = strtok_r(NULL, "", &save);
	if (!controllers || !group || !has_word(controllers, "cpu"))
		return false;
	snprintf(top, sizeof(top), "/%.90s", controllers);
	return take_folder(ctx, top, group, s) || take_folder(ctx, "/cpu", group, s);
}

static int find_own(const struct jm_ctx *ctx, struct state *s, struct jm_err *err)
{
	char path[PATH_MAX], line[PATH_MAX];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", ctx->root);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file))
		found = find_in_line(ctx, line, s);
	if (file)
		fclose(file);
	if (found)
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"joulemark is in no control group with a processor quota (%s); name one, as "
		"--control cgroup:PATH below " CGROUPS ".",
		path);
}

/* The "#4711" at the end; NULL: there is none. */
static const char *inode_mark(const char *arg)
{
	const char *mark = strrchr(arg, '#');

	return mark && mark[1] && !mark[1 + strspn(mark + 1, "0123456789")] ? mark : NULL;
}

/* "cpu/jobs/7", "/sys/fs/cgroup/cpu/jobs/7", and with "#4711" the group that had this inode. */
static int find_named(
	const struct jm_ctx *ctx, const char *arg, struct state *s, struct jm_err *err)
{
	const char *mark = inode_mark(arg);
	size_t n = mark ? (size_t)(mark - arg) : strlen(arg);
	struct stat st;

	if (!strncmp(arg, CGROUPS "/", sizeof(CGROUPS))) {
		arg += sizeof(CGROUPS);
		n -= sizeof(CGROUPS);
	}
	s->top = (size_t)snprintf(s->folder, sizeof(s->folder), "%s" CGROUPS, ctx->root);
	snprintf(s->folder + s->top, sizeof(s->folder) - s->top, "/%.*s", (int)n, arg);
	if (mark && stat(s->folder, &st))
		return not_found(s, errno, err);
	if (mark && strtoull(mark + 1, NULL, 10) != st.st_ino)
		return removed(s, err);
	if (is_group(s->folder))
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"%s is not a control group with a processor quota; it needs the file cpu.max or "
		"cpu.cfs_quota_us, and the path begins below " CGROUPS ".",
		s->folder);
}

/* One spelling of each group, so that it has one journal: its path below the folder of all
 * groups. */
static int find_path(
	const struct jm_ctx *ctx, struct state *s, char out[PATH_MAX], struct jm_err *err)
{
	char all[PATH_MAX], above[PATH_MAX], plain[PATH_MAX];
	size_t n;

	snprintf(all, sizeof(all), "%s" CGROUPS, ctx->root);
	if (!realpath(all, above) || !realpath(s->folder, plain))
		return not_found(s, errno, err);
	n = strlen(above);
	if (strncmp(plain, above, n) != 0 || plain[n] != '/')
		return jm_err_set(
			err, JM_EUSAGE, "The control group %s is not below %s.", s->folder, all);
	memcpy(s->folder, plain, sizeof(plain));
	s->top = n;
	memcpy(out, plain + n + 1, strlen(plain + n + 1) + 1);
	return 0;
}

static int describe(
	const struct jm_ctx *ctx, struct state *s, struct jm_knob *ret, struct jm_err *err)
{
	struct jm_knob knob = {.name = "cpu.quota",
		.fallback = jm_knob_value_word(JM_UNLOCKED),
		.ends = JM_ENDS_PROCESS,
		.unlockable = true};
	struct quota q = {0};
	char path[PATH_MAX];
	struct stat st;
	int n, rc = find_path(ctx, s, path, err);

	s->version2 = has_file(s->folder, "cpu.max");
	if (!rc)
		rc = read_quota(s, s->folder, &q, err);
	if (rc)
		return rc;
	if (stat(s->folder, &st))
		return not_found(s, errno, err);
	s->inode = st.st_ino;
	n = snprintf(knob.device, sizeof(knob.device), "%s#%llu", path, s->inode);
	if (n >= (int)sizeof(knob.device))
		return jm_err_set(err, JM_ENOSUP,
			"The path of the control group %s is too long: up to %zu characters can be "
			"journalled.",
			s->folder, sizeof(knob.device) - 22);
	snprintf(knob.label, sizeof(knob.label), "control group %.49s", path);
	knob.min = s->min = LEAST_US / q.period_us;
	knob.max = (double)sysconf(_SC_NPROCESSORS_CONF);
	if (isfinite(q.us)) /* what was found can be set again */
		knob.max = fmax(knob.max, q.us / q.period_us);
	knob.settle_s = q.period_us * 1e-6; /* a new quota holds from the next period on */
	*ret = knob;
	return 0;
}

static int cgroup_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	struct jm_knob knob;
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a control group.");
	rc = *arg ? find_named(ctx, arg, s, err) : find_own(ctx, s, err);
	if (!rc)
		rc = describe(ctx, s, &knob, err);
	if (!rc)
		rc = jm_knobs_add(set, &knob, err);
	if (rc < 0) {
		free(s);
		return rc;
	}
	*ret_state = s;
	return 0;
}

/* ---- the knob ---- */

/* Another group of the same name must not get the quota of the one that was removed. */
static int check_same(const struct state *s, struct jm_err *err)
{
	struct stat st;

	if (stat(s->folder, &st))
		return not_found(s, errno, err);
	return st.st_ino == s->inode ? 0 : removed(s, err);
}

static int read_own_quota(const struct state *s, struct quota *ret, struct jm_err *err)
{
	int rc = check_same(s, err);

	return rc ? rc : read_quota(s, s->folder, ret, err);
}

/* The least quota of the group and of those above it. */
static double enforced(const struct state *s, double processors)
{
	char folder[PATH_MAX];
	struct quota q;

	snprintf(folder, sizeof(folder), "%s", s->folder);
	for (char *end; (end = strrchr(folder, '/')) && end > folder + s->top;) {
		*end = '\0';
		if (!read_quota(s, folder, &q, NULL))
			processors = fmin(processors, q.us / q.period_us);
	}
	return processors;
}

static int cgroup_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	const struct state *s = state;
	struct quota q;
	int rc = read_own_quota(s, &q, err);

	(void)i;
	if (rc)
		return rc;
	*ret_accepted = value_of(q.us / q.period_us);
	*ret_enforced = value_of(enforced(s, q.us / q.period_us));
	return 0;
}

static int cgroup_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	const struct state *s = state;
	bool unlocked = jm_knob_value_is(value, JM_UNLOCKED);
	double processors = jm_knob_value_number(value);
	char path[PATH_MAX], text[40];
	struct quota q;
	int rc = read_own_quota(s, &q, err);

	(void)i;
	if (rc)
		return rc;
	if (!unlocked && !(processors >= s->min && processors < 1e6))
		return jm_err_set(err, JM_ERANGE,
			"The quota of %s is at least %g processors, or unlocked; %g is outside.",
			s->folder, s->min, processors);
	file_of(s->folder, s->version2 ? "cpu.max" : "cpu.cfs_quota_us", path);
	if (unlocked)
		snprintf(text, sizeof(text), "%s", s->version2 ? "max" : "-1");
	else
		snprintf(text, sizeof(text), "%.0f", processors * q.period_us);
	return fn(arg, path, text, err);
}

static int cgroup_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	return cgroup_writes(state, i, value, jm_sysfs_write, NULL, err);
}

static void cgroup_close(void *state)
{
	free(state);
}

static void cgroup_say_knob(
	void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	const struct state *s = state;
	char why[400], path[PATH_MAX], now[JM_KNOB_TEXT], held[JM_KNOB_TEXT];
	struct jm_finding f = {.what = knob->label, .why = why, .mend = ""};
	struct jm_knob_value accepted = jm_knob_value_of(NAN), enforces = accepted;

	cgroup_get(state, i, &accepted, &enforces, NULL);
	jm_knob_value_text(&accepted, "", now, sizeof(now));
	jm_knob_value_text(&enforces, "", held, sizeof(held));
	file_of(s->folder, s->version2 ? "cpu.max" : "cpu.cfs_quota_us", path);
	f.ok = !access(path, W_OK);
	if (!f.ok)
		f.mend = "use sudo, or a group that is delegated to this user";
	snprintf(why, sizeof(why), "cpu.quota %g to %g processors, now %s, enforced %s; %s",
		knob->min, knob->max, now, held,
		f.ok ? "this user may set it" : "this user may not write its file");
	say(arg, &f);
}

const struct jm_control jm_control_cgroup = {
	.name = "cgroup",
	.summary = "processor quota of a control group, its own without PATH",
	.knobs = "cpu.quota",
	.argument = "PATH",
	.origin = JM_MEASURED,
	.device_is_argument = true,
	.open = cgroup_open,
	.get = cgroup_get,
	.set = cgroup_set,
	.writes = cgroup_writes,
	.close = cgroup_close,
	.say_knob = cgroup_say_knob,
};
