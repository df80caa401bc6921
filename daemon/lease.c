/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include "base/clock.h"
#include "guard/guard_serve.h"
#include "guard/guard_terms.h"
#include "policy_file.h"

#include <math.h>
#include <stdio.h>

#define REDFISH_FILE "/etc/joulemark/redfish.conf"

/* Of one user, by the policy as it was when the lease began. */
struct terms {
	const struct jm_policy *policy;
	struct jm_caller caller;
	int64_t begin_ns;
	double seconds; /* that it may last */
};

static int64_t end_ns(void *arg)
{
	const struct terms *t = arg;

	return t->begin_ns + (int64_t)(t->seconds * 1e9);
}

static int allow(void *arg, const struct jm_knob *knob, const struct jm_knob_value *value,
	struct jm_err *err)
{
	struct terms *t = arg;
	double seconds;
	int rc = jm_policy_allow(t->policy, &t->caller, knob, value, &seconds, err);

	if (!rc)
		t->seconds = fmin(t->seconds, seconds);
	return rc;
}

static struct jm_knob_value found(void *arg, const struct jm_knob *knob)
{
	const struct terms *t = arg;

	return jm_policy_found(t->policy, knob);
}

/* The node's management controller, which is asked only for users whose rules name its limit; the
 * file with the password of its user is root's. */
static const char *controller(const struct terms *t, const struct jm_ctx *log)
{
	struct jm_err why = JM_ERR_INIT;
	int rc;

	if (!jm_policy_names(t->policy, &t->caller, "node.power"))
		return NULL;
	rc = jm_policy_check_file(REDFISH_FILE, &why);
	if (rc && rc != JM_ENOENT)
		jm_log(log, JM_WARNING, "%s", why.text);
	return rc ? NULL : "redfish:" REDFISH_FILE;
}

/* Each line of a lease says whose it is. */
struct named_log {
	const struct jm_ctx *to;
	char name[120];
};

static void log_named(void *arg, enum jm_level level, const char *line)
{
	const struct named_log *l = arg;

	jm_log(l->to, level, "%s: %s", l->name, line);
}

int jm_lease_serve(
	struct jm_ctx *ctx, int fd, const struct jm_peer *peer, const struct jm_policy *policy)
{
	struct named_log log = {.to = ctx};
	struct jm_ctx own = *ctx;
	struct terms t = {.policy = policy,
		.caller = {.uid = peer->uid, .group = peer->group, .n_groups = peer->n_groups}};
	struct jm_guard_terms terms = {.client = peer->process,
		.pidfd = peer->pidfd,
		.end_ns = end_ns,
		.allow = allow,
		.found = found,
		.arg = &t};
	struct jm_err why = JM_ERR_INIT;
	char command[80];

	jm_process_command(peer->process.pid, command, sizeof(command));
	snprintf(log.name, sizeof(log.name), "lease of user %u, process %d",
		(unsigned int)peer->uid, (int)peer->process.pid);
	own.log = log_named;
	own.log_arg = &log;
	t.begin_ns = jm_clock_boot();
	t.seconds = jm_policy_seconds(policy, &t.caller);
	jm_log(&own, JM_INFO, "begins (%s), for at most %.10g s", command, t.seconds);
	terms.control = controller(&t, &own);
	if (!jm_guard_serve_lease(&own, fd, &terms, &why))
		return 0;
	jm_log(&own, JM_WARNING, "NOT all is back: %s", why.text);
	return 1;
}
