/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/child_process.h"
#include "base/process/shell_words.h"
#include "cli/frame/interrupts.h"
#include "guard/guard_requests.h"
#include "measure/session/session.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IDLE_NS (5 * JM_SECOND)	 /* a GPU that was busy lowers its clock after seconds */
#define LOAD_NS (30 * JM_SECOND) /* the start of a program on a GPU takes seconds */
#define STEP_MS 20
#define END_MS	5000 /* for the end of the load; it is killed then */
#define CLOSE	0.02 /* clocks have steps of about 1 % */

/* The knob and the devices of "KNOB=probe". */
static int parse(
	const char *text, const struct jm_knobs *knobs, struct jm_setting *ret, struct jm_err *err)
{
	char name[300];

	snprintf(name, sizeof(name), "%.*s", (int)(strrchr(text, '=') - text), text);
	return jm_target_parse(name, knobs, ret, err);
}

/* ---- one knob ---- */

struct probe {
	struct jm_cli *cli;
	struct jm_session *session;
	const struct jm_knob *knob;
	int signal;
	double clock; /* that was read last, Hz; NAN = none */
};

static int find_signal(struct probe *p, struct jm_err *err)
{
	const struct jm_meters *set = jm_session_meters(p->session);
	enum jm_quantity what = strcmp(p->knob->name, "gpu.clock") ? JM_Q_MEMORY_CLOCK : JM_Q_CLOCK;

	p->signal = -1;
	for (int i = 0; i < set->n && p->signal < 0; i++)
		if (!strcmp(set->meter[i].device, p->knob->device))
			p->signal = jm_meter_signal(set, i, what);
	return p->signal >= 0 ? 0
			      : jm_err_set(err, JM_ENOSUP,
					"%s of %s cannot be probed: its clock is not reported. "
					"State what it has: --found %s=unlocked, or the range.",
					p->knob->name, p->knob->label, p->knob->name);
}

/* Waits until the clock is as low, or as high, as it goes; false: it was not within that time.
 * load: NULL = none; its end ends the wait. */
static bool await_clock(struct probe *p, bool low, int64_t limit_ns, const struct jm_proc *load)
{
	struct jm_ctx *ctx = &p->cli->ctx;
	int64_t begin = jm_ctx_now(ctx);
	struct pollfd end = {.fd = load ? load->pidfd : -1, .events = POLLIN};

	do {
		struct jm_reading r = jm_session_newest(p->session, p->signal);

		/* one from before the load says nothing about it */
		p->clock = r.t_ns >= begin ? r.value : NAN;
		if (low ? p->clock <= p->knob->min * (1 + CLOSE)
			: p->clock >= p->knob->max * (1 - CLOSE))
			return true;
		poll(&end, 1, STEP_MS);
	} while (!end.revents && !jm_last_interrupt() && jm_ctx_now(ctx) - begin < limit_ns);
	return false;
}

/* In the child. */
static int silence(void *arg)
{
	int fd = open("/dev/null", O_RDWR);

	(void)arg;
	return fd < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0;
}

static int refuse(const struct probe *p, const char *when, double want, struct jm_err *err)
{
	char was[40] = "has no reading";

	if (jm_last_interrupt())
		return jm_err_set(err, JM_EINTR, "Interrupted; nothing was set.");
	if (!isnan(p->clock))
		snprintf(was, sizeof(was), "is %.0f MHz", p->clock * 1e-6);
	return jm_err_set(err, JM_ENOSUP,
		"The probe does not show that %s of %s is unlocked: %s its clock %s, and not "
		"%.0f MHz. Nothing was set; if you know what is locked, state it: --found "
		"%s=unlocked, or the range.",
		p->knob->name, p->knob->label, when, was, want * 1e-6, p->knob->name);
}

static int probe_loaded(struct probe *p, char *const *argv, struct jm_err *err)
{
	char only[JM_ID_MAX + 30];
	const char *const env[] = {only, NULL};
	const struct jm_proc_options o = {.argv = argv, .env = env, .before_exec = silence};
	struct jm_proc load = {.pidfd = -1, .out_fd = -1};
	bool high;
	int rc;

	snprintf(only, sizeof(only), "CUDA_VISIBLE_DEVICES=%s", p->knob->device);
	rc = jm_proc_start(&load, &p->cli->ctx, &o, err);
	if (rc)
		return rc;
	high = await_clock(p, false, LOAD_NS, &load);
	kill(load.pid, SIGTERM); /* it is not reaped yet, so the id is its own */
	poll(&(struct pollfd){.fd = load.pidfd, .events = POLLIN}, 1, END_MS);
	jm_proc_done(&load);
	return high ? 0 : refuse(p, "under the load of --probe-load", p->knob->max, err);
}

static int probe_knob(struct probe *p, char *const *argv, struct jm_err *err)
{
	int rc = find_signal(p, err);

	if (!rc && !await_clock(p, true, IDLE_NS, NULL))
		rc = refuse(p, "idle", p->knob->min, err);
	return rc ? rc : probe_loaded(p, argv, err);
}

/* ---- all that a text means ---- */

static int probe_knobs(struct probe *p, const struct jm_knobs *knobs,
	const struct jm_setting *target, char *const *argv, struct jm_err *err)
{
	static const char *const sources[] = {"nvml", NULL};
	const struct jm_session_options o = {.sources = sources, .no_trace = true};
	int rc = jm_session_open(&p->cli->ctx, &o, &p->session, err);

	if (rc)
		return rc;
	rc = jm_session_start(p->session, err);
	for (int i = 0; i < knobs->n && !rc; i++) {
		p->knob = &knobs->knob[i];
		if (p->knob->unreadable && jm_setting_matches(target, p->knob))
			rc = probe_knob(p, argv, err);
	}
	jm_session_stop(p->session, NULL);
	jm_session_close(p->session);
	return rc;
}

static int probe_text(struct jm_cli *cli, const struct jm_knobs *knobs, const char *text,
	const char *load, struct jm_err *err)
{
	static char *const own[] = {
		"/proc/self/exe", "run", "stream", "--device", "cuda:0", "--seconds", "60", NULL};
	struct probe p = {.cli = cli};
	struct jm_setting target;
	char **words = NULL;
	int rc = parse(text, knobs, &target, err);

	if (!rc && load)
		rc = jm_shell_words("probe-load", load, &words, err);
	if (!rc)
		rc = probe_knobs(&p, knobs, &target, words ? words : own, err);
	jm_shell_words_free(words);
	return rc;
}

int jm_probe_state(struct jm_cli *cli, struct jm_guard *guard, char *const *texts, const char *load,
	struct jm_err *err)
{
	int rc = 0;

	for (char *const *text = texts; text && *text && !rc; text++)
		if (jm_guard_is_probe(*text))
			rc = probe_text(cli, jm_guard_knobs(guard), *text, load, err);
	return rc ? rc : jm_guard_state(guard, texts, true, err);
}
