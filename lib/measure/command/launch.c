/* SPDX-License-Identifier: Apache-2.0 */
/* An outside command under a session: its marks, its output, signals for it. */
#include "launch.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/forward_signals.h"
#include "end_watch.h"
#include "found_items.h"
#include "measure/session/progress.h"
#include "output_items.h"
#include "output_phases.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAX_PHASES 4096

struct launch {
	struct jm_ctx *ctx;
	struct jm_session *session;
	const struct jm_launch_options *o;
	struct jm_progress *progress;
	struct jm_scan *scan;
	struct jm_proc proc;
	struct jm_end_watch watch;
	int64_t unseen_ns; /* see launch.h */
	struct jm_forward_signals signals;
	int command;	  /* phase */
	int output_errno; /* see launch.h */
	struct jm_tally tally;
	struct jm_item_sums scanned;
	struct jm_output_phases lines;
	/* the phase that marks have opened */
	int phase, n_phases;
	/* items of marks that were ignored, because an expression or key counts them */
	long n_left_out;
	char name[64];
	int64_t credited_ns; /* time of the last mark of the same name with items; 0 = never */
	bool renamed;	     /* a mark was renamed, and that was logged */
	bool extra_closed;   /* nothing more comes from extra_fd */
	/* of the output: bytes read, and those of them that were searched; the difference is the
	 * end of `output` */
	int64_t n_read, n_searched, read_ns;
	char output[16384];
	size_t n_output;
};

/* ---- phases ---- */

/* A phase whose own marks count its items ends with the last of them. */
static void end_phase(struct launch *l, int64_t t_ns)
{
	if (l->phase >= 0)
		jm_session_end(l->session, l->phase, l->credited_ns ? l->credited_ns : t_ns);
	l->phase = -1;
	l->credited_ns = 0;
}

/* A phase of the user must not have the name of one of joulemark's: a record names its main
 * phase. */
static void name_phase(struct launch *l, const char *mark, char *out, size_t size)
{
	static const char *const ours[] = {"settle", "command", "marked", "repeat", "repeats",
		"repeat.warmup", "repeat.prepare", "tune.search", "tune.hold"};
	bool taken = false;

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		taken = taken || !strcmp(mark, ours[i]);
	snprintf(out, size, "%s%s", taken ? "mark." : "", mark);
	if (taken && !l->renamed)
		jm_log(l->ctx, JM_WARNING,
			"The mark '%s' has the name of a phase of joulemark; its phase is named "
			"'%s'.",
			mark, out);
	l->renamed = l->renamed || taken;
}

static void begin_phase(struct launch *l, const struct jm_mark *mark)
{
	struct jm_err err = JM_ERR_INIT;
	char name[sizeof(mark->name) + 8];

	if (++l->n_phases > MAX_PHASES) {
		if (l->n_phases == MAX_PHASES + 1)
			jm_log(l->ctx, JM_WARNING,
				"There are more than %d marks with different names; the later ones "
				"begin no phases.",
				MAX_PHASES);
		return;
	}
	snprintf(l->name, sizeof(l->name), "%s", mark->name);
	name_phase(l, mark->name, name, sizeof(name));
	l->phase = jm_session_begin(l->session, name, mark->t_ns, &err);
	if (l->phase < 0)
		jm_log(l->ctx, JM_WARNING, "%s", err.text);
	else if (l->o->phase)
		l->o->phase(l->o->arg, l->phase, name);
}

/* Marks of all senders are ordered in time and are within the command's time. */
static int64_t within(const struct launch *l, const struct jm_tally *tally, int64_t t_ns)
{
	int64_t first = tally->marks ? tally->last_ns : l->proc.start_ns;
	int64_t last = l->proc.ended ? l->proc.end_ns : jm_ctx_now(l->ctx);

	if (t_ns > last)
		t_ns = last;
	return t_ns < first ? first : t_ns;
}

static void credit(struct launch *l, double items)
{
	jm_session_credit(l->session, l->command, items);
	if (l->phase >= 0)
		jm_session_credit(l->session, l->phase, items);
}

/* Of the command and of the phase of the marks. Where the output is searched for items, those of
 * the marks are not added: they would count the same work again. */
static void on_scanned(void *arg, const struct jm_mark *given)
{
	struct launch *l = arg;
	struct jm_mark mark = *given;

	mark.t_ns = within(l, &l->scanned.amount, mark.t_ns);
	jm_item_sums_add(&l->scanned, &mark,
		(const int[]){l->command, l->lines.phase >= 0 ? l->lines.phase : l->phase});
}

/* ---- output ---- */

static void close_output(struct launch *l)
{
	close(l->proc.out_fd);
	l->proc.out_fd = -1;
}

/* When the reader has gone, the command gets a closed pipe, as if it wrote there itself. */
static void pass_on(struct launch *l, const char *bytes, size_t n)
{
	struct pollfd out = {.fd = l->o->out_fd, .events = POLLOUT};

	while (n) {
		ssize_t k = write(l->o->out_fd, bytes, n);

		if (k < 0 && errno == EINTR)
			continue;
		/* the caller may have made this output non-blocking */
		if (k < 0 && errno == EAGAIN && (poll(&out, 1, -1) >= 0 || errno == EINTR))
			continue;
		if (k < 0) {
			l->output_errno = errno;
			if (errno == EPIPE)
				close_output(l);
			return;
		}
		bytes += k;
		n -= (size_t)k;
	}
}

/* Reads what the command has printed; false when there is no more for now. Everything that was read
 * before has been searched. */
static bool read_output(struct launch *l)
{
	ssize_t n = jm_progress_read(l->progress, l->proc.out_fd, l->output, sizeof(l->output));

	if (n > 0) {
		/* taken before the output is passed on, which may wait for a slow reader */
		l->read_ns = jm_ctx_now(l->ctx);
		l->n_read += n;
		l->n_output = (size_t)n;
		pass_on(l, l->output, (size_t)n);
		return true;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_output(l);
	return false;
}

/* With its end, where that is there: '\n', or '\r' of progress bars. */
static size_t line_length(const char *text, size_t n)
{
	size_t k = 0;

	while (k < n && text[k] != '\n' && text[k] != '\r')
		k++;
	return k + (k < n);
}

/* Searches what was read, up to this byte of all output: line by line, so that items are of the
 * phase of their line. */
static void search(struct launch *l, int64_t end)
{
	int64_t until = end < l->n_read ? end : l->n_read;

	while (l->n_searched < until) {
		const char *line = l->output + l->n_output - (l->n_read - l->n_searched);
		size_t left = (size_t)(until - l->n_searched), n = line_length(line, left);

		if (!l->lines.at_end)
			jm_output_phases_feed(&l->lines, line, n, l->read_ns);
		if (l->scan)
			jm_scan_feed(l->scan, line, n, l->read_ns, on_scanned, l);
		if (l->lines.at_end)
			jm_output_phases_feed(&l->lines, line, n, l->read_ns);
		l->n_searched += (int64_t)n;
	}
}

/* ---- marks ---- */

/* Searches what was printed before a mark that was sent at this byte of the output, and nothing
 * that was printed after it. -1: the sender does not know it; what was read before the mark is then
 * taken for what was printed before it. */
static void search_until(struct launch *l, int64_t byte)
{
	int64_t end = l->n_read;
	int waiting;

	/* the byte is at most the last one in the pipe, so that no sender keeps this process
	 * reading */
	if (byte >= 0 && l->proc.out_fd >= 0 && !ioctl(l->proc.out_fd, FIONREAD, &waiting))
		end = byte < end + waiting ? byte : end + waiting;
	search(l, end);
	while (l->n_searched < end && l->proc.out_fd >= 0 && read_output(l))
		search(l, end);
}

static void on_mark(void *arg, const struct jm_mark *given)
{
	struct launch *l = arg;
	struct jm_mark mark = *given;
	bool same = l->phase >= 0 && !strcmp(mark.name, l->name);

	search_until(l, mark.byte);
	mark.t_ns = within(l, &l->tally, mark.t_ns);
	if (l->scan && !isnan(mark.items)) {
		l->n_left_out++;
		mark.items = NAN; /* they are counted in what it prints */
	}
	jm_tally_add(&l->tally, &mark);
	if (l->o->mark)
		l->o->mark(l->o->mark_arg, &mark);
	if (!l->scan)
		credit(l, mark.items);
	if (same && !isnan(mark.items))
		l->credited_ns = mark.t_ns;
	if (same)
		return;
	end_phase(l, mark.t_ns);
	begin_phase(l, &mark);
}

/* A mark that was sent before a line was printed has arrived when the line has been read; marks
 * that came while one of them made this process read on are looked for as well. */
static void take_marks(struct launch *l, int64_t now_ns)
{
	int64_t n_read;

	do {
		n_read = l->n_read;
		jm_progress_receive(l->progress, now_ns, on_mark, l);
	} while (l->n_read != n_read);
	search(l, l->n_read);
}

/* ---- events ---- */

/* The items found in the output where it is searched, else those of the marks; NAN = none. */
static double items_so_far(const struct launch *l)
{
	const struct jm_tally tally = l->scan ? jm_item_sums_tally(&l->scanned) : l->tally;

	return tally.items > 0 ? tally.items : NAN;
}

static void tell_progress(const struct launch *l, double before)
{
	const struct jm_tally tally = l->scan ? jm_item_sums_tally(&l->scanned) : l->tally;

	if (l->o->progress && tally.items != before)
		l->o->progress(l->o->progress_arg, tally.last_ns, items_so_far(l));
}

/* Calls tick when it is due; returns for how long to wait, -1 = for ever. */
static int tick_ms(struct launch *l, int64_t *due_ns)
{
	int64_t now = jm_ctx_now(l->ctx);

	if (!l->o->tick)
		return -1;
	if (now >= *due_ns) {
		l->o->tick(l->o->arg, items_so_far(l), (double)(now - l->proc.start_ns) * 1e-9);
		*due_ns = now + JM_SECOND;
	}
	return (int)((*due_ns - now) / JM_MILLISECOND) + 1;
}

/* Nothing wakes this process for the marks in a pipe, nor after it stood still. */
static int wait_ms(struct launch *l, int64_t *due_ns)
{
	int64_t longest = jm_progress_has_pipes(l->progress) && JM_MARK_PIPE_NS < JM_END_LOOK
				  ? JM_MARK_PIPE_NS
				  : JM_END_LOOK;
	int most = (int)(longest / JM_MILLISECOND), tick = tick_ms(l, due_ns);

	return tick >= 0 && tick < most ? tick : most;
}

static int attend(struct launch *l, struct jm_err *err)
{
	int64_t tick_ns = l->proc.start_ns + JM_SECOND;
	int rc = 0;

	jm_end_watch_begin(&l->watch, l->proc.start_ns);
	while (!rc && !l->proc.ended) {
		struct pollfd fds[] = {
			{.fd = l->proc.pidfd, .events = POLLIN},
			{.fd = l->signals.fd, .events = POLLIN},
			{.fd = jm_progress_fd(l->progress), .events = POLLIN},
			{.fd = l->proc.out_fd, .events = POLLIN},
			{.fd = l->o->extra && !l->extra_closed ? l->o->extra_fd : -1,
				.events = POLLIN},
		};
		int wait = wait_ms(l, &tick_ns);

		jm_end_watch_look(&l->watch, jm_ctx_now(l->ctx));
		if (poll(fds, 5, wait) < 0 && errno != EINTR)
			return jm_err_set(err, JM_EIO, "Cannot wait for '%s': %s.", l->o->argv[0],
				strerror(errno));
		if (fds[0].revents)
			rc = jm_proc_reap(&l->proc, l->ctx, err);
		if (fds[1].revents && !l->proc.ended)
			jm_signals_pass_on(&l->signals, l->proc.pid);
		/* lines come before a mark that does not know its byte, whichever of both ended the
		 * wait */
		if (fds[3].revents || (fds[2].revents && l->proc.out_fd >= 0))
			read_output(l);
		if (fds[2].revents || fds[3].revents || jm_progress_has_pipes(l->progress)) {
			double before = items_so_far(l);

			take_marks(l, jm_ctx_now(l->ctx));
			tell_progress(l, before);
		}
		if (l->o->extra && fds[4].revents & POLLIN)
			l->o->extra(l->o->arg);
		else
			l->extra_closed = l->extra_closed || fds[4].revents;
	}
	return rc;
}

static bool unknown_items(const struct launch *l)
{
	return l->scan && (jm_scan_limited(l->scan) || l->scanned.lost);
}

static void credit_scanned(struct launch *l)
{
	for (int i = 0; i < l->scanned.n_phases && !unknown_items(l); i++)
		jm_session_credit(l->session, i, jm_item_sums_phase(&l->scanned, i));
}

/* What came while it ended. */
static void take_the_rest(struct launch *l)
{
	struct jm_found_items found;

	take_marks(l, l->proc.end_ns);
	while (l->proc.out_fd >= 0 && read_output(l))
		take_marks(l, l->proc.end_ns);
	if (l->scan)
		jm_scan_end(l->scan, l->proc.end_ns, on_scanned, l);
	jm_output_phases_end(&l->lines, l->proc.end_ns, l->o->argv[0]);
	if (l->scan) {
		credit_scanned(l);
		found = (struct jm_found_items){l->ctx, l->o->argv[0], l->o->items_regex,
			l->o->items_json, l->scan, &l->scanned, l->n_left_out};
		jm_found_items_say(&found);
	}
	end_phase(l, l->proc.end_ns);
	if (!l->o->shared_phase)
		jm_session_end(l->session, l->command, l->proc.end_ns);
	if (l->output_errno)
		jm_log(l->ctx, JM_WARNING, "Some output of '%s' could not be written: %s.",
			l->o->argv[0], strerror(l->output_errno));
	if (jm_progress_malformed(l->progress))
		jm_log(l->ctx, JM_WARNING, "%ld marks were malformed and ignored.",
			jm_progress_malformed(l->progress));
}

/* ---- start and end ---- */

static int begin_command(struct launch *l, struct jm_err *err)
{
	int *shared = l->o->shared_phase;

	if (shared && *shared >= 0) {
		l->command = *shared;
		return 0;
	}
	l->command = jm_session_begin(
		l->session, shared ? l->o->phase_name : "command", l->proc.start_ns, err);
	if (shared)
		*shared = l->command;
	return l->command < 0 ? l->command : 0;
}

static void share_output(void *arg, int fd)
{
	struct launch *l = arg;

	jm_progress_share_output(l->progress, fd);
}

static int start(struct launch *l, struct jm_err *err)
{
	struct jm_proc_options o = {
		.argv = l->o->argv,
		.mask = &l->signals.before,
		.capture = l->scan || l->lines.scan,
		.captured = l->scan || l->lines.scan ? share_output : NULL,
		.captured_arg = l,
		.before_exec = l->o->before_exec,
		.before_exec_arg = l->o->before_exec_arg,
	};
	size_t n = 0;
	const char **env;
	int rc;

	while (l->o->env && l->o->env[n])
		n++;
	env = calloc(n + 2, sizeof(*env));
	if (!env)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a command's environment.");
	for (size_t i = 0; i < n; i++)
		env[i] = l->o->env[i];
	env[n] = jm_progress_env(l->progress);
	o.env = env;
	rc = jm_proc_start(&l->proc, l->ctx, &o, err);
	free((void *)env);
	if (rc)
		return rc;
	if (l->proc.out_fd >= 0)
		fcntl(l->proc.out_fd, F_SETFL, O_NONBLOCK);
	rc = begin_command(l, err);
	if (!rc)
		jm_output_phases_begin(&l->lines, l->proc.start_ns);
	return rc;
}

static int run(struct launch *l, struct jm_err *err)
{
	int rc = jm_signals_catch(&l->signals, err);

	if (rc)
		return rc;
	/* a signal that came before does not reach the command; later ones are passed on */
	if (l->o->interrupted && l->o->interrupted())
		rc = jm_err_set(err, JM_EINTR,
			"Interrupted before '%s' was started, so that it did not run.",
			l->o->argv[0]);
	if (!rc)
		rc = start(l, err);
	if (!rc)
		rc = attend(l, err);
	if (!rc)
		take_the_rest(l);
	jm_signals_release(&l->signals);
	if (!rc)
		l->unseen_ns =
			jm_end_watch_unseen(&l->watch, l->ctx, l->o->argv[0], l->proc.end_ns);
	return rc;
}

/* The phase of this stretch: one that is there, or else a new one, "marked". */
static int phase_of(struct launch *l, const struct jm_item_interval *s)
{
	struct jm_err err = JM_ERR_INIT;
	int n, index;
	const struct jm_phase *phase = jm_session_phases(l->session, &n);

	for (int i = 0; i < n; i++)
		if (phase[i].t0_ns == s->t0_ns && phase[i].t1_ns == s->t1_ns)
			return i;
	index = jm_session_begin(l->session, "marked", s->t0_ns, &err);
	if (index < 0) {
		jm_log(l->ctx, JM_WARNING, "%s", err.text);
		return l->command;
	}
	jm_session_credit(l->session, index, s->items);
	jm_session_end(l->session, index, s->t1_ns);
	return index;
}

/* Without items in the output, its marks still bound the stretch that the rate applies to. */
static struct jm_tally tally_of(const struct launch *l)
{
	if (unknown_items(l))
		return (struct jm_tally){.items = NAN, .items_after_first = NAN};
	return l->scanned.amount.marks ? jm_item_sums_tally(&l->scanned) : l->tally;
}

/* Whether the stretch may have ended before t1_ns, as the command was not seen to end. A mark bears
 * its sender's time. */
static bool ends_unseen(const struct launch *l, const struct jm_tally *tally, int64_t t1_ns)
{
	bool by_mark = !tally->late && tally->marks > 1 && t1_ns == tally->last_ns;

	return l->unseen_ns && !by_mark && t1_ns > l->watch.running_ns;
}

static void fill(struct launch *l, struct jm_outcome *ret)
{
	const struct jm_tally tally = tally_of(l);
	struct jm_item_interval stretch =
		jm_tally_interval(&tally, l->proc.start_ns, l->proc.end_ns);
	bool counted = l->scan && jm_scan_has_numbers(l->scan) && tally.items > 0;

	if (unknown_items(l))
		jm_session_forget_items(l->session);
	*ret = (struct jm_outcome){
		.status = l->proc.status,
		.signal = l->proc.signal,
		.phase = l->command,
		.marked = l->o->shared_phase ? l->command : phase_of(l, &stretch),
		.start_ns = l->proc.start_ns,
		.end_ns = l->proc.end_ns,
		.wall_s = (double)(l->proc.end_ns - l->proc.start_ns) * 1e-9,
		.user_s = l->proc.user_s,
		.system_s = l->proc.system_s,
		.unseen_ns = l->unseen_ns,
		.items = tally.items > 0 ? tally.items : NAN,
		.marked_items = stretch.items > 0 ? stretch.items : NAN,
		.items_kind = counted ? jm_item_sums_kind(&l->scanned) : JM_ITEMS_BY_RULE,
		.throughput = ends_unseen(l, &tally, stretch.t1_ns)
				      ? NAN
				      : jm_tally_rate(&tally, l->proc.start_ns, l->proc.end_ns),
		.output_errno = l->output_errno,
	};
}

int jm_launch(struct jm_ctx *ctx, struct jm_session *s, const struct jm_launch_options *o,
	struct jm_outcome *ret, struct jm_err *err)
{
	struct launch l = {
		.ctx = ctx,
		.session = s,
		.o = o,
		.proc = {.pidfd = -1, .out_fd = -1},
		.phase = -1,
	};
	int rc = 0;

	l.lines = (struct jm_output_phases){
		.ctx = ctx, .session = s, .at_end = o->phase_at_end, .regex = o->phase_regex};
	rc = jm_output_phases_open(&l.lines, err);
	jm_item_sums_init(&l.scanned, o->items_kind);
	if (!rc && (o->items_regex || o->items_json))
		rc = jm_scan_new(o->items_regex, o->items_json, &l.scan, err);
	if (!rc && o->items_kind)
		rc = jm_scan_check_numbers(l.scan, err);
	if (!rc)
		rc = jm_progress_open(&l.progress, err);
	/* no settings wait for the beginning of a phase */
	if (!rc && !o->phase)
		jm_progress_take_pipes(l.progress);
	if (!rc)
		rc = run(&l, err);
	if (!rc)
		fill(&l, ret);
	jm_proc_done(&l.proc);
	jm_progress_close(l.progress);
	jm_scan_free(l.scan);
	jm_output_phases_done(&l.lines);
	jm_item_sums_done(&l.scanned);
	return rc;
}
