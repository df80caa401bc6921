/* SPDX-License-Identifier: Apache-2.0 */
#include "attach.h"
#include "processor_share.h"
#include "end_watch.h"
#include "own_process.h"
#include "measure/session/session_private.h"
#include "base/ctx.h"
#include "base/text/json.h"
#include "base/process/process_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CGROUPS	   "/sys/fs/cgroup"
#define LOOK_EVERY (100 * JM_MILLISECOND) /* at the processor times */

struct jm_attach {
	struct jm_ctx *ctx;
	const struct jm_attach_options *o;
	int pidfd;		      /* -1 = no process */
	unsigned long long pid_start; /* as of jm_process */
	char what[512];
	char cgroup[PATH_MAX]; /* with the context's root; "" = none */
	int cgroup_fd;	       /* of its folder: one made anew there is another; -1 = none */
	double own_s, machine_s;
	bool gone;
	struct jm_end_watch watch;
	struct jm_own_process own;
	struct jm_device_share *devices;
	int64_t devices_ns; /* of the last look at them */
};

/* ---- processor times ---- */

/* Seconds; NAN = it has ended, though another process may have its id by now. */
static double process_cpu(const struct jm_attach *a)
{
	struct jm_process_times times;

	return jm_process_times(a->ctx->root, a->o->pid, &times) && times.start == a->pid_start
		       ? times.cpu_s
		       : NAN;
}

/* A number in a file of an open folder: the one after the key, or the only one (key ""); NAN = not
 * found. */
static double number_in(int folder, const char *name, const char *key)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	size_t n = strlen(key);
	double value = NAN;
	char line[256];

	while (f && isnan(value) && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, n))
			value = strtod(line + n, NULL);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return value;
}

/* Seconds, of control groups of version 2, else of version 1. */
static double cgroup_cpu(const struct jm_attach *a)
{
	double us = number_in(a->cgroup_fd, "cpu.stat", "usage_usec ");

	return isnan(us) ? number_in(a->cgroup_fd, "cpuacct.usage", "") * 1e-9 : us * 1e-6;
}

static double own_cpu(const struct jm_attach *a)
{
	if (a->pidfd >= 0)
		return process_cpu(a);
	return *a->cgroup ? cgroup_cpu(a) : NAN;
}

/* Reads both processor times at one moment. A process or group that has ended keeps its last
 * time. */
static void look(struct jm_attach *a)
{
	double own = own_cpu(a);

	if (isnan(own) && *a->cgroup)
		a->gone = true;
	if (isnan(own))
		return;
	a->own_s = own;
	a->machine_s = jm_machine_cpu_s(a->ctx);
}

/* ---- finding it ---- */

static int open_process(struct jm_attach *a, struct jm_err *err)
{
	struct jm_process_times times;
	struct pollfd ended;
	int pid = (int)a->o->pid;

	a->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (a->pidfd < 0 && errno == ESRCH)
		return jm_err_set(err, JM_ENOENT,
			"There is no process %d; it may have ended. 'ps -e' lists those that run.",
			pid);
	if (a->pidfd < 0 &&
		(errno == EINVAL ||
			errno ==
				ENOENT)) /* which of the two depends on the version of the kernel */
		return jm_err_set(err, JM_EUSAGE,
			"%d is a thread, not a process; give the id of its process (Tgid in "
			"/proc/%d/status).",
			pid, pid);
	if (a->pidfd < 0)
		return jm_err_set(
			err, JM_EPERM, "Process %d cannot be watched: %s.", pid, strerror(errno));
	ended = (struct pollfd){.fd = a->pidfd, .events = POLLIN};
	if (poll(&ended, 1, 0) > 0)
		return jm_err_set(err, JM_ENOENT,
			"Process %d has already ended, but its parent has not yet waited for it.",
			pid);
	if (!jm_process_times(a->ctx->root, a->o->pid, &times))
		return jm_err_set(err, JM_EPERM,
			"The processor time of process %d cannot be read from /proc/%d/stat. It is "
			"another user's and /proc is mounted with hidepid; run joulemark as that "
			"user or as root.",
			pid, pid);
	a->pid_start = times.start;
	jm_process_text(a->o->pid, a->what, sizeof(a->what));
	return 0;
}

/* Logs whose process it is: a mistyped id may name a process of another user. */
static void say_whose(const struct jm_attach *a)
{
	char path[40];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)a->o->pid);
	if (!stat(path, &st) && st.st_uid != geteuid())
		jm_log(a->ctx, JM_WARNING,
			"%s belongs to another user (uid %d); joulemark can still observe its end "
			"and its processor time.",
			a->what, (int)st.st_uid);
}

static int open_cgroup(struct jm_attach *a, struct jm_err *err)
{
	const char *path = a->o->cgroup;
	bool whole = !strncmp(path, CGROUPS, strlen(CGROUPS));

	snprintf(a->cgroup, sizeof(a->cgroup), "%s%s%s%s", a->ctx->root, whole ? "" : CGROUPS "/",
		"", path + (!whole && *path == '/'));
	a->cgroup_fd = open(a->cgroup, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (a->cgroup_fd < 0)
		return jm_err_set(err, JM_ENOENT,
			"There is no control group %s: %s; 'systemd-cgls' lists the existing ones.",
			a->cgroup, strerror(errno));
	if (isnan(cgroup_cpu(a)))
		return jm_err_set(err, JM_ENOENT,
			"The control group %s reports no processor time (cpu.stat or "
			"cpuacct.usage): it is not a control group, or you may not read it.",
			a->cgroup);
	snprintf(a->what, sizeof(a->what), "control group %.480s", path);
	for (size_t n = strlen(a->cgroup); a->cgroup[n - 1] == '/'; n--)
		a->cgroup[n - 1] = '\0';
	a->own.cgroup = a->cgroup + strlen(a->ctx->root) + strlen(CGROUPS "/");
	return 0;
}

int jm_attach_open(struct jm_ctx *ctx, const struct jm_attach_options *options,
	struct jm_attach **ret, struct jm_err *err)
{
	struct jm_attach *a = calloc(1, sizeof(*a));
	int rc = 0;

	if (!a)
		return jm_err_set(err, JM_ENOMEM, "Out of memory to attach to a process.");
	*a = (struct jm_attach){.ctx = ctx, .o = options, .pidfd = -1, .cgroup_fd = -1};
	a->own = (struct jm_own_process){.ctx = ctx, .pid = options->pid, .cgroup = ""};
	snprintf(a->what, sizeof(a->what), "the machine");
	if (options->pid)
		rc = open_process(a, err);
	else if (options->cgroup)
		rc = open_cgroup(a, err);
	if (rc) {
		jm_attach_close(a);
		return rc;
	}
	if (options->pid)
		say_whose(a);
	*ret = a;
	return 0;
}

/* ---- measuring ---- */

static int timeout_ms(int64_t left_ns)
{
	return left_ns <= 0 ? 0 : (int)((left_ns + JM_MILLISECOND - 1) / JM_MILLISECOND);
}

/* Waits until the next look; true = the measurement has ended. */
static bool wait_on(struct jm_attach *a, int64_t now, int64_t end_ns)
{
	struct pollfd fds[] = {
		{.fd = a->pidfd, .events = POLLIN},
		{.fd = a->o->wake_fd, .events = POLLIN},
	};
	int64_t left = end_ns - now;
	int n = poll(fds, 2, timeout_ms(left < LOOK_EVERY ? left : LOOK_EVERY));

	if (n > 0 && fds[0].revents)
		a->gone = true;
	return a->gone || (n > 0 && fds[1].revents);
}

static void look_at_devices(struct jm_attach *a, int64_t now)
{
	jm_device_share_look(a->devices);
	a->devices_ns = now;
}

/* Looks at intervals until the measurement has ended; returns when that was. */
static int64_t attend(struct jm_attach *a, int64_t start_ns)
{
	int64_t end_ns = a->o->for_ns ? start_ns + a->o->for_ns : JM_FOREVER;
	int64_t now = start_ns, tick = start_ns + a->o->tick_ns;
	bool over = false;

	jm_end_watch_begin(&a->watch, start_ns);
	while (!over && now < end_ns) {
		jm_end_watch_look(&a->watch, now);
		over = wait_on(a, now, end_ns);
		now = jm_ctx_now(a->ctx);
		look(a);
		if (now - a->devices_ns >= JM_DEVICE_SHARE_LOOK)
			look_at_devices(a, now);
		over = over || a->gone;
		if (a->o->tick && now >= tick) {
			a->o->tick(a->o->tick_arg);
			tick = now + a->o->tick_ns;
		}
	}
	return now;
}

static int begin_devices(struct jm_attach *a, struct jm_session *s, struct jm_err *err)
{
	struct jm_device_share_options o = {.arg = &a->own};

	if (a->o->pid || a->o->cgroup)
		o.is_own = jm_own_process;
	if (!jm_own_process_ids(a->ctx))
		o.blind = "joulemark runs in a container with its own process ids, and the driver "
			  "reports those of the host; run it outside the container.";
	a->devices_ns = jm_ctx_now(a->ctx);
	return jm_device_share_new(s, &o, &a->devices, err);
}

int jm_attach_run(
	struct jm_attach *a, struct jm_session *s, struct jm_attached *ret, struct jm_err *err)
{
	struct jm_attached r = {.start_ns = jm_ctx_now(a->ctx)};
	double own, machine;
	int rc = begin_devices(a, s, err);

	if (rc)
		return rc;
	look(a);
	own = a->own_s;
	machine = a->machine_s;
	r.phase = jm_session_begin(s, "attached", r.start_ns, err);
	if (r.phase < 0)
		return r.phase;
	r.end_ns = attend(a, r.start_ns);
	jm_session_end(s, r.phase, r.end_ns);
	look_at_devices(a, r.end_ns);
	r.devices = a->devices;
	r.ended = a->gone;
	if (r.ended)
		r.unseen_ns = jm_end_watch_unseen(&a->watch, a->ctx, a->what, r.end_ns);
	r.cpu_s = a->pidfd >= 0 || *a->cgroup ? a->own_s - own : NAN;
	r.machine_cpu_s = isnan(r.cpu_s) ? NAN : a->machine_s - machine;
	snprintf(r.what, sizeof(r.what), "%s", a->what);
	*ret = r;
	return 0;
}

void jm_attach_close(struct jm_attach *a)
{
	if (!a)
		return;
	if (a->pidfd >= 0)
		close(a->pidfd);
	if (a->cgroup_fd >= 0)
		close(a->cgroup_fd);
	jm_device_share_free(a->devices);
	free(a);
}

/* ---- sharing out ---- */

json_t *jm_attached_json(const struct jm_attached *a, struct jm_session *s, struct jm_err *err)
{
	/* ticks of the machine are coarser than a group's times: a share may come out above 1 */
	double share = a->machine_cpu_s > 0 ? fmin(a->cpu_s / a->machine_cpu_s, 1) : NAN, joules;
	json_t *ids = json_array(), *gpus = jm_device_share_json(a->devices, a->phase, err), *json;

	if (!gpus || jm_processor_joules(s, a->phase, ids, &joules, err)) {
		json_decref(ids);
		json_decref(gpus);
		return NULL;
	}
	json = json_object();
	jm_json_set_text(&json, "what", a->what);
	jm_json_set_number(&json, "cpu_s", a->cpu_s);
	jm_json_set_number(&json, "machine_cpu_s", a->machine_cpu_s);
	jm_json_set_number(&json, "share", share);
	jm_json_set_number(&json, "joules_estimated", share * joules);
	jm_json_set(&json, "meters", ids);
	jm_json_set(&json, "gpus", gpus);
	if (!json)
		jm_err_set(err, JM_ENOMEM, "Out of memory for the share of a process.");
	return json;
}
