/* SPDX-License-Identifier: Apache-2.0 */
/* How a case ended: the reason reported by the rank that failed first. */
#include "worker_end.h"
#include "base/net/meeting.h"
#include "run/gang/join_hosts.h"

#include "result/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define TAIL_SHOWN 400

long jm__oom_kills(void)
{
	char line[128];
	long n = -1;
	FILE *f = fopen("/proc/vmstat", "re");

	while (f && n < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, "oom_kill ", 9))
			n = strtol(line + 9, NULL, 10);
	if (f)
		fclose(f);
	return n;
}

void jm__keep_tail(struct jm__member *m, const char *bytes, size_t n)
{
	if (n > JM__TAIL_SIZE) {
		bytes += n - JM__TAIL_SIZE;
		n = JM__TAIL_SIZE;
	}
	if (m->n_tail + n > JM__TAIL_SIZE) {
		size_t drop = m->n_tail + n - JM__TAIL_SIZE;

		memmove(m->tail, m->tail + drop, m->n_tail - drop);
		m->n_tail -= drop;
	}
	memcpy(m->tail + m->n_tail, bytes, n);
	m->n_tail += n;
	m->tail[m->n_tail] = '\0';
}

static bool any_signaled(const struct jm__child *c)
{
	for (int r = 0; r < c->world; r++)
		if (WIFSIGNALED(c->member[r].status))
			return true;
	return false;
}

enum jm_strays_end jm__end_of_strays(const struct jm__child *c)
{
	if (c->hurried)
		return JM_STRAYS_KILL;
	return c->stop != JM__RUNNING || any_signaled(c) ? JM_STRAYS_ASK : JM_STRAYS_LEAVE;
}

/* The end of its standard error on one line, or "". */
static void last_words(const struct jm__member *m, char *out, size_t size)
{
	const char *from = m->tail + (m->n_tail > TAIL_SHOWN ? m->n_tail - TAIL_SHOWN : 0);
	size_t n, used;

	while (((unsigned char)*from & 0xC0) == 0x80) /* of a letter that is cut */
		from++;
	n = strlen(from);
	while (n && strchr(" \n\r\t", from[n - 1]))
		n--;
	if (!n) {
		*out = '\0';
		return;
	}
	used = (size_t)snprintf(out, size, " The end of its standard error: %.*s", (int)n, from);
	for (size_t i = 0; i < used && i < size; i++)
		if (out[i] == '\n' || out[i] == '\r')
			out[i] = ' ';
}

/* "The worker", or "Rank 1" of several. */
static const char *name_of(
	const struct jm__child *c, const struct jm__member *m, char *out, size_t size)
{
	snprintf(out, size, "The worker");
	if (c->world > 1 && c->o->agents)
		snprintf(out, size, "Rank %d of %d (process %ld on %s)", (int)(m - c->member),
			c->world, (long)m->pid, c->o->agents->link[m - c->member].of.name);
	else if (c->world > 1)
		snprintf(out, size, "Rank %d of %d (process %ld)", (int)(m - c->member), c->world,
			(long)m->pid);
	return out;
}

/* By the kernel, which killed a process for this reason at the same time. */
static bool killed_for_memory(const struct jm__child *c, const struct jm__member *m)
{
	return WIFSIGNALED(m->status) && WTERMSIG(m->status) == SIGKILL &&
	       jm__oom_kills() > c->oom_before;
}

static enum jm_failure kind_of_death(const struct jm__child *c, const struct jm__member *m)
{
	if (c->stop == JM__TIMED_OUT)
		return JM_FAILURE_TIMEOUT;
	if (c->stop == JM__REFUSED)
		return JM_FAILURE_DEVICE;
	if (m->error.code)
		return jm_failure_of_code(m->error.code);
	return killed_for_memory(c, m) ? JM_FAILURE_MEMORY : JM_FAILURE_CRASH;
}

static void describe_death(
	const struct jm__child *c, const struct jm__member *m, char *out, size_t size)
{
	int status = m->status;
	char who[160];

	name_of(c, m, who, sizeof(who));
	if (c->stop == JM__TIMED_OUT)
		snprintf(out, size, "The case did not end within %g s (--timeout) and was stopped.",
			c->o->timeout_s);
	else if (c->stop == JM__REFUSED)
		snprintf(out, size, "%s", c->refusal.text);
	else if (m->error.code)
		snprintf(out, size, "%s%s%s%s", c->world > 1 ? who : "", c->world > 1 ? ": " : "",
			m->error.text,
			WIFSIGNALED(status) && m->error.code != JM_EGONE
				? " It did not end in time afterwards and was killed."
				: "");
	else if (killed_for_memory(c, m))
		snprintf(out, size,
			"%s was killed, most likely because memory ran out: the kernel killed a "
			"process for this reason at the same time.",
			who);
	else if (WIFSIGNALED(status))
		snprintf(out, size, "%s was killed by signal %d (%s).", who, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else
		snprintf(out, size, "%s ended with status %d before it sent a result.", who,
			WEXITSTATUS(status));
}

/* The first rank that sent a result and then ended with an error; NULL = none. */
static const struct jm__member *ended_badly(const struct jm__child *c)
{
	for (int r = 0; r < c->world; r++)
		if (c->member[r].status)
			return &c->member[r];
	return NULL;
}

/* The reason of a failed case, as reported by the rank that failed. */
static void tell_failure(const struct jm__child *c, const struct jm__member *m, const char *reason)
{
	char words[TAIL_SHOWN + 64], who[160] = "";
	bool several = c->world > 1;

	if (m != c->member) /* a device of any rank that cannot be used */
		json_object_set(c->member[0].record, "exit_status",
			json_object_get(m->record, "exit_status"));
	last_words(m, words, sizeof(words));
	if (several)
		name_of(c, m, who, sizeof(who));
	jm_record_failed(c->member[0].record, "%s%s%s%s", who, several ? ": " : "", reason, words);
}

/* What each host has measured, in the record of rank 0. */
static int join_hosts(const struct jm__child *c, struct jm_err *err)
{
	json_t *record[JM_MEET_MOST];

	for (int r = 0; r < c->world; r++)
		record[r] = c->member[r].record;
	return jm_join_hosts(c->o->agents, record, err);
}

/* The record of a worker that sent none, or whose work failed. */
int jm__complete_record(struct jm__child *c, struct jm_err *err)
{
	struct jm__member *m = &c->member[c->failed < 0 ? 0 : c->failed], *first = c->member;
	const struct jm__member *bad = ended_badly(c);
	bool lived = m->record && c->stop == JM__RUNNING;
	char why[900], words[TAIL_SHOWN + 64];
	const char *reason;

	last_words(m, words, sizeof(words));
	if (!first->record)
		first->record = jm_record_new(c->o->job, err);
	if (!first->record)
		return err->code;
	reason = json_string_value(json_object_get(m->record, "reason"));
	if (!lived) {
		describe_death(c, m, why, sizeof(why));
		jm_record_failed(first->record, "%s%s", why,
			m->error.code || c->stop == JM__REFUSED ? "" : words);
		jm_record_set_failure(first->record, kind_of_death(c, m));
	} else if (reason && !jm_record_is_interrupted(m->record)) {
		snprintf(why, sizeof(why), "%s", reason);
		tell_failure(c, m, why);
		if (m != first && jm_record_failure(m->record) != JM_FAILURE_KINDS)
			jm_record_set_failure(first->record, jm_record_failure(m->record));
	} else if (bad) {
		char who[160];

		jm_record_failed(first->record,
			"%s sent its result, but then ended with %s %d; the result may be "
			"wrong.%s",
			name_of(c, bad, who, sizeof(who)),
			WIFSIGNALED(bad->status) ? "signal" : "status",
			WIFSIGNALED(bad->status) ? WTERMSIG(bad->status) : WEXITSTATUS(bad->status),
			words);
		jm_record_set_failure(first->record, JM_FAILURE_CRASH);
	}
	return c->o->agents ? join_hosts(c, err) : 0;
}
