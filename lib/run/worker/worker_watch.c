/* SPDX-License-Identifier: Apache-2.0 */
/* How long a parent waits for its workers, and what it does to those that do not end. */
#include "worker_watch.h"
#include "base/clock.h"
#include "base/process/driver_call.h"
#include "result/record.h"

#include <signal.h>
#include <sys/wait.h>

#define GRACE_NS      (5 * JM_SECOND)  /* between SIGTERM and SIGKILL */
#define CLOSING_NS    (10 * JM_SECOND) /* from an error, or from the last record, until the end */
#define STEP_NS	      (20 * JM_SECOND) /* from Ctrl-C to the end of the step, at least */
#define STEP_SILENCES 4		       /* and so many times the longest silence before */
#define POLL_LIMIT_MS 1000

static int64_t real_now(void)
{
	return jm_clock_now(jm_clock_real());
}

static void signal_all(const struct jm__child *c, int number, bool with_children)
{
	for (int r = 0; r < c->world; r++)
		c->launcher->signal(&c->member[r].rank, number, with_children);
}

static bool has_result(const struct jm__member *m)
{
	return jm_record_is_ok(m->record) || jm_record_is_interrupted(m->record);
}

/* Notes the first rank that failed: the other ranks of the gang would wait for it forever. Rank 0
 * may have clients to tell before it ends. */
void jm__note_failure(struct jm__child *c, const struct jm__member *m)
{
	bool over = m->ended || m->record || m->error.code;

	if (c->failed >= 0 || c->stop != JM__RUNNING || !over || has_result(m))
		return;
	c->failed = (int)(m - c->member);
	c->kill_ns = real_now() + (m->ended || m->record ? GRACE_NS : CLOSING_NS);
	for (int r = 0; r < c->world; r++)
		if (r != c->failed)
			c->launcher->signal(&c->member[r].rank, r ? SIGKILL : SIGTERM, r > 0);
}

void jm__stop_workers(struct jm__child *c, enum jm__stop why)
{
	if (c->stop == JM__RUNNING) {
		c->kill_ns = real_now() + GRACE_NS;
		signal_all(c, SIGTERM, false);
	} else {
		c->hurried = c->hurried || why == JM__CANCELLED;
		signal_all(c, SIGKILL, true);
	}
	/* a signal that ends the run is handled even while a case is being stopped */
	if (c->stop == JM__RUNNING || why == JM__CANCELLED)
		c->stop = why;
}

/* ---- deadlines ---- */

void jm__note_heard(struct jm__child *c)
{
	int64_t now = real_now();

	if (now - c->heard_ns > c->silence_ns)
		c->silence_ns = now - c->heard_ns;
	c->heard_ns = now;
}

/* Ctrl-C awaits the end of the step that is under way, unless that takes much longer than any did,
 * and of a verification, which may take four times as long as all before it. */
static void check_step(struct jm__child *c, int64_t now)
{
	int64_t since = c->asked_ns > c->heard_ns ? c->asked_ns : c->heard_ns;
	int64_t limit = STEP_SILENCES * c->silence_ns;

	if (c->verifies && limit < STEP_SILENCES * (c->heard_ns - c->start_ns))
		limit = STEP_SILENCES * (c->heard_ns - c->start_ns);
	if (limit < STEP_NS)
		limit = STEP_NS;
	if (!c->asked || c->member[0].record || now < since + limit)
		return;
	jm_log(c->ctx, JM_WARNING,
		"%s has not ended for %.0f s, as when a device hangs; the case is ended without a "
		"result.",
		c->verifies    ? "The verification"
		: c->has_begun ? "The step that is under way"
			       : "The setup or the warm-up",
		(double)(now - since) * 1e-9);
	jm__stop_workers(c, JM__CANCELLED);
}

/* Some ways to exchange data close only when all ranks do. */
static bool all_have_results(const struct jm__child *c)
{
	for (int r = 0; r < c->world; r++)
		if (!has_result(&c->member[r]))
			return false;
	return true;
}

/* One that does not end though all have sent their results: its device does not close. */
static void check_closing(struct jm__child *c, struct jm__member *m, int64_t now)
{
	if (m->ended)
		return;
	if (!m->closing_ns)
		m->closing_ns = now + CLOSING_NS;
	if (now < m->closing_ns)
		return;
	m->overdue = true;
	c->launcher->signal(&m->rank, SIGKILL, true);
}

/* A process in a driver that hangs may outlive SIGKILL; nothing more is awaited from it. */
static void give_up(struct jm__child *c, int64_t now)
{
	for (int r = 0; r < c->world; r++) {
		struct jm__member *m = &c->member[r];
		int64_t killed_ns = m->overdue ? m->closing_ns : c->kill_ns;

		if (!m->ended && killed_ns && now > killed_ns + JM_DRIVER_LIMIT_NS)
			m->ended = m->overdue = true;
	}
}

static void check_deadlines(struct jm__child *c)
{
	int64_t now = real_now();
	bool closing = all_have_results(c);

	for (int r = 0; r < c->world && closing; r++)
		check_closing(c, &c->member[r], now);
	if (c->stop == JM__RUNNING)
		check_step(c, now);
	give_up(c, now);
	if ((c->stop != JM__RUNNING || c->failed >= 0) && now > c->kill_ns)
		signal_all(c, SIGKILL, true);
	else if (c->stop == JM__RUNNING && c->o->timeout_s > 0 &&
		 now > c->start_ns + (int64_t)(c->o->timeout_s * 1e9))
		jm__stop_workers(c, JM__TIMED_OUT);
}

/* Several ranks: the others wait for one that is stopped. */
static void check_stopped(struct jm__child *c)
{
	for (int r = 0; r < c->world && c->world > 1; r++) {
		struct jm__member *m = &c->member[r];

		if (c->failed < 0 && c->stop == JM__RUNNING && !m->ended && !m->error.code &&
			jm_rank_end_stopped(&m->rank, &m->error))
			jm__note_failure(c, m);
	}
}

void jm__watch(struct jm__child *c)
{
	check_deadlines(c);
	check_stopped(c);
}

int jm__watch_ms(const struct jm__child *c)
{
	int64_t until = JM_FOREVER, ms;

	if (c->stop != JM__RUNNING || c->failed >= 0)
		until = c->kill_ns;
	else if (c->o->timeout_s > 0)
		until = c->start_ns + (int64_t)(c->o->timeout_s * 1e9);
	if (until == JM_FOREVER)
		return POLL_LIMIT_MS;
	ms = (until - real_now()) / JM_MILLISECOND + 1;
	return ms < 0 ? 0 : ms < POLL_LIMIT_MS ? (int)ms : POLL_LIMIT_MS;
}

void jm__note_end(struct jm__child *c, struct jm__member *m)
{
	bool stays = m->status == -1, result = has_result(m);

	if (stays)
		jm_log(c->ctx, JM_WARNING,
			"Process %ld of the case does not end, even by SIGKILL, as while it is in "
			"a "
			"driver that hangs; see the kernel's log.",
			(long)m->pid);
	else if (m->overdue && result)
		jm_log(c->ctx, JM_WARNING,
			"Process %ld of the case sent its result, but its device had not closed %d "
			"s "
			"later; it was killed.",
			(long)m->pid, (int)(CLOSING_NS / JM_SECOND));
	if (m->overdue && result)
		m->status = 0; /* its result was complete */
	else if (stays)
		m->status = SIGKILL; /* as of waitpid */
}
