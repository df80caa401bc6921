/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power limit of the sockets of AMD EPYC and MI300A, which their firmware holds, by messages of
 * HSMP (Host System Management Port) through /dev/hsmp (Linux' Documentation/arch/x86/amd_hsmp.rst
 * and asm/amd_hsmp.h): Get and Set Socket Power Limit, Get Socket Power Limit Max, in milliwatts.
 * The driver takes messages that read from whoever may read the file, and those that set from
 * whoever may write it. The firmware clips a limit to what the processor can be configured to.
 */
#include "guard/control.h"
#include "base/ctx.h"

#include <asm/amd_hsmp.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MOST_SOCKETS 8
#define MILLI	     1e-3

struct state {
	int fd, n;
	bool writes;
	char path[300];
	struct jm_knob knob[MOST_SOCKETS];
	int socket[MOST_SOCKETS];
};

/* False with errno. ret: the answer; NULL: the message sets. */
static bool send_message(const struct state *s, int socket, uint32_t id, uint32_t mw, uint32_t *ret)
{
	struct hsmp_message message = {.msg_id = id,
		.num_args = ret ? 0 : 1,
		.response_sz = ret ? 1 : 0,
		.args = {mw},
		.sock_ind = (uint16_t)socket};

	if (ioctl(s->fd, HSMP_IOCTL_CMD, &message))
		return false;
	if (ret)
		*ret = message.args[0];
	return true;
}

static int open_device(struct state *s, const char *root, struct jm_err *err)
{
	snprintf(s->path, sizeof(s->path), "%.280s/dev/hsmp", root);
	s->fd = open(s->path, O_RDWR | O_CLOEXEC);
	s->writes = s->fd >= 0;
	if (s->fd < 0)
		s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (s->fd >= 0)
		return 0;
	return jm_err_set(err, errno == EACCES || errno == EPERM ? JM_EPERM : JM_ENOENT,
		"%s cannot be opened (%s); it exists on AMD EPYC and MI300A if the kernel module "
		"amd_hsmp or hsmp_acpi is loaded and HSMP is enabled in the firmware.",
		s->path, strerror(errno));
}

/* ret_most: 0 = there is no such socket, or it has no limit. */
static int ask_socket(const struct state *s, int i, uint32_t *ret_most, struct jm_err *err)
{
	uint32_t now;

	*ret_most = 0;
	if (send_message(s, i, HSMP_GET_SOCKET_POWER_LIMIT, 0, &now) &&
		send_message(s, i, HSMP_GET_SOCKET_POWER_LIMIT_MAX, 0, ret_most))
		return 0;
	if (errno == ENODEV || errno == ENOMSG)
		return 0;
	return jm_err_set(err, JM_EIO,
		"Socket %d does not report its power limit by %s: %s; try again.", i, s->path,
		strerror(errno));
}

/* Of each socket that tells its limit and the largest one. */
static int add_sockets(struct state *s, struct jm_knobs *set, struct jm_err *err)
{
	for (int i = 0; i < MOST_SOCKETS; i++) {
		struct jm_knob *knob = &s->knob[s->n];
		uint32_t most;
		int rc = ask_socket(s, i, &most, err);

		if (rc)
			return rc;
		if (!most)
			continue;
		*knob = (struct jm_knob){.name = "package.power",
			.unit = "W",
			.min = 1,
			.max = most * MILLI,
			.step = MILLI,
			.fallback = jm_knob_value_of(NAN),
			.ends = JM_ENDS_REBOOT};
		snprintf(knob->device, sizeof(knob->device), "socket%d", i);
		snprintf(knob->label, sizeof(knob->label), "socket %d (HSMP)", i);
		s->socket[s->n++] = i;
		rc = jm_knobs_add(set, knob, err);
		if (rc < 0)
			return rc;
	}
	if (s->n)
		return 0;
	return jm_err_set(err, JM_ENOSUP, "No socket reports its power limit by %s.", s->path);
}

static void hsmp_close(void *state)
{
	struct state *s = state;

	if (s && s->fd >= 0)
		close(s->fd);
	free(s);
}

static int hsmp_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc = 0;

	(void)arg;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for HSMP.");
	s->fd = -1;
	rc = open_device(s, ctx->root, err);
	if (!rc)
		rc = add_sockets(s, set, err);
	if (rc)
		hsmp_close(s);
	else
		*ret_state = s;
	return rc;
}

static int hsmp_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	const struct state *s = state;
	uint32_t mw;

	if (!send_message(s, s->socket[i], HSMP_GET_SOCKET_POWER_LIMIT, 0, &mw))
		return jm_err_set(err, JM_EIO, "Cannot read the power limit of %s by %s: %s.",
			s->knob[i].label, s->path, strerror(errno));
	*ret_accepted = *ret_enforced = jm_knob_value_of(mw ? mw * MILLI : NAN);
	return 0;
}

static uint32_t milliwatts(const struct jm_knob_value *value)
{
	return (uint32_t)fmin(round(jm_knob_value_number(value) / MILLI), UINT32_MAX);
}

static int hsmp_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	const struct state *s = state;
	int rc = jm_knob_check_kind(&s->knob[i], value, err);

	if (rc)
		return rc;
	if (!s->writes)
		return jm_err_set(
			err, JM_EPERM, "%s may not be written by this user; use sudo.", s->path);
	if (send_message(s, s->socket[i], HSMP_SET_SOCKET_POWER_LIMIT, milliwatts(value), NULL))
		return 0;
	return jm_err_set(err, errno == EPERM ? JM_EPERM : JM_EIO,
		"Cannot set the power limit of %s by %s: %s.", s->knob[i].label, s->path,
		strerror(errno));
}

static int hsmp_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	const struct state *s = state;
	char call[400];
	int rc = jm_knob_check_kind(&s->knob[i], value, err);

	if (rc)
		return rc;
	snprintf(call, sizeof(call), "HSMP_SET_SOCKET_POWER_LIMIT(socket %d, %u mW) to %s",
		s->socket[i], milliwatts(value), s->path);
	return fn(arg, call, NULL, err);
}

static void hsmp_say_knob(
	void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	const struct state *s = state;
	struct jm_knob_value now, enforced;
	struct jm_err err = JM_ERR_INIT;
	char why[200];
	struct jm_finding f = {.what = knob->label, .why = err.text, .mend = ""};

	if (!hsmp_get(state, i, &now, &enforced, &err)) {
		f.why = why;
		f.ok = s->writes;
		f.mend = s->writes ? "" : "use sudo";
		snprintf(why, sizeof(why), "package.power 1 to %g W, now %g W; %s", knob->max,
			jm_knob_value_number(&now),
			s->writes ? "this user may set it" : "only root may set it");
	}
	say(arg, &f);
}

const struct jm_control jm_control_hsmp = {
	.name = "hsmp",
	.summary = "power limits of AMD EPYC and MI300A sockets (HSMP)",
	.knobs = "package.power",
	.origin = JM_MEASURED,
	.open = hsmp_open,
	.get = hsmp_get,
	.set = hsmp_set,
	.writes = hsmp_writes,
	.close = hsmp_close,
	.say_knob = hsmp_say_knob,
};
