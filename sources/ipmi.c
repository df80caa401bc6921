/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power of the node from its management controller by IPMI: DCMI's Get Power Reading (DCMI 1.5,
 * 6.6.1: network function 2Ch, command 02h, group dch) through Linux' /dev/ipmi0
 * (Documentation/driver-api/ipmi.rst). The controller gives whole watts. How often they change and
 * over which time they are a mean is the vendor's choice and is not reported; the mean that the
 * message also holds is over the controller's own period and is not used.
 */
#include "base/ctx.h"
#include "base/clock.h"
#include "meter/source.h"
#include "parse_reading.h"
#include "shared_options.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ipmi.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define NETFN_GROUP   0x2c
#define POWER_READING 0x02
#define MAX_MESSAGE   IPMI_MAX_MSG_LENGTH

struct state {
	struct jm_ctx *ctx;
	int fd;
	long msgid;	    /* of the last question: an answer to an earlier one came too late */
	int device;	    /* N of /dev/ipmiN */
	const char *covers; /* an option, while it is opened */
	int64_t timeout_ns;
	char path[300];
};

/* A device file of one of the names that distributions give it; -1 with errno. */
static int open_device(struct state *s, int number)
{
	static const char *const names[] = {"/dev/ipmi", "/dev/ipmi/", "/dev/ipmidev/", NULL};
	int first = 0;

	for (int i = 0; names[i]; i++) {
		int fd;

		snprintf(s->path, sizeof(s->path), "%s%s%d", s->ctx->root, names[i], number);
		fd = open(s->path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (!first || errno != ENOENT)
			first = errno;
	}
	snprintf(s->path, sizeof(s->path), "%s/dev/ipmi%d", s->ctx->root, number);
	errno = first;
	return -1;
}

static bool ask(struct state *s)
{
	struct ipmi_system_interface_addr bmc = {
		.addr_type = IPMI_SYSTEM_INTERFACE_ADDR_TYPE, .channel = IPMI_BMC_CHANNEL};
	uint8_t data[] = {0xdc, 0x01, 0x00, 0x00}; /* the mode: power statistics of the system */
	struct ipmi_req request = {.addr = (unsigned char *)&bmc,
		.addr_len = sizeof(bmc),
		.msgid = ++s->msgid,
		.msg = {NETFN_GROUP, POWER_READING, sizeof(data), data}};

	return ioctl(s->fd, IPMICTL_SEND_COMMAND, &request) == 0;
}

/* One message of the device's queue: its length, 0 = none or the answer to another question. */
static size_t take(struct state *s, uint8_t message[MAX_MESSAGE])
{
	struct ipmi_addr from;
	struct ipmi_recv answer = {.addr = (unsigned char *)&from,
		.addr_len = sizeof(from),
		.msg = {.data = message, .data_len = MAX_MESSAGE}};

	if (ioctl(s->fd, IPMICTL_RECEIVE_MSG_TRUNC, &answer) < 0) {
		const struct timespec moment = {.tv_nsec = 1000000};

		nanosleep(
			&moment, NULL); /* a device without an answer that does not let poll wait */
		return 0;
	}
	if (answer.recv_type != IPMI_RESPONSE_RECV_TYPE || answer.msgid != s->msgid ||
		answer.msg.data_len > MAX_MESSAGE)
		return 0;
	return answer.msg.data_len;
}

/* The answer of the controller, with its completion code first; 0 = none within the time limit. */
static size_t exchange(struct state *s, uint8_t message[MAX_MESSAGE])
{
	int64_t begin = jm_ctx_now(s->ctx), left;
	size_t n = 0;

	if (!ask(s))
		return 0;
	while (!n && (left = begin + s->timeout_ns - jm_ctx_now(s->ctx)) > 0) {
		struct pollfd device = {.fd = s->fd, .events = POLLIN};

		if (poll(&device, 1, (int)(left / JM_MILLISECOND) + 1) > 0)
			n = take(s, message);
	}
	return n;
}

/* The reason why the answer contains no power. */
static const char *complaint(const uint8_t *message, size_t n)
{
	if (!n)
		return "it does not answer in time";
	switch (message[0]) {
	case 0:
		return "its answer holds no power, or the measurement is not active";
	case 0xc1:
		return "it does not know DCMI (completion code c1h)";
	case 0xd4:
		return "this user may not ask for it (completion code d4h)";
	}
	return "it refuses the command";
}

static int check_answer(struct state *s, struct jm_err *err)
{
	uint8_t message[MAX_MESSAGE];
	size_t n = exchange(s, message);

	if (!isnan(jm_parse_dcmi(message, n)))
		return 0;
	return jm_err_set(err, n && message[0] == 0xc1 ? JM_ENOSUP : JM_EIO,
		"The management controller at %s gives no DCMI power reading: %s; 'ipmitool dcmi "
		"power "
		"reading' asks the same, and redfish may have it.",
		s->path, complaint(message, n));
}

static int open_controller(struct state *s, int number, struct jm_err *err)
{
	s->fd = open_device(s, number);
	if (s->fd >= 0)
		return check_answer(s, err);
	if (errno == EACCES || errno == EPERM)
		return jm_err_set(err, JM_EPERM,
			"%s may not be opened; run as root, or let your group use it by a udev "
			"rule.",
			s->path);
	return jm_err_set(err, JM_ENOENT,
		"%s cannot be opened (%s); the node has no management controller, or the kernel "
		"modules "
		"ipmi_si and ipmi_devintf are not loaded (try 'modprobe ipmi_devintf').",
		s->path, strerror(errno));
}

static int add_meter(const struct state *s, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {.source = "ipmi", .origin = JM_MEASURED, .covers = s->covers};
	struct jm_signal signal = {
		.quantity = JM_Q_POWER, .step = 1, .window_ns = -1, .accuracy = NAN};

	meter.scope = strcmp(s->covers, "/") ? JM_SCOPE_PSU : JM_SCOPE_NODE;
	snprintf(meter.id, sizeof(meter.id), "ipmi:%.100s", s->path + strlen(s->ctx->root));
	snprintf(meter.label, sizeof(meter.label), "node (IPMI DCMI)");
	return jm_meters_add_whole(set, &meter, &signal, 1, err);
}

static void ipmi_close(void *state)
{
	struct state *s = state;

	if (s && s->fd >= 0)
		close(s->fd);
	free(s);
}

static int ipmi_open(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for IPMI.");
	s->ctx = ctx;
	JM_FILL(options, s);
	rc = open_controller(s, s->device, err);
	if (!rc)
		rc = add_meter(s, set, err);
	if (rc) {
		ipmi_close(s);
		return rc;
	}
	*ret_state = s;
	return 0;
}

static int ipmi_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	uint8_t message[MAX_MESSAGE];
	double watts;

	(void)err;
	watts = jm_parse_dcmi(message, exchange(s, message));
	jm_give(sink, 0, watts, jm_ctx_now(s->ctx));
	return 0;
}

static const struct jm_option options[] = {
	{.name = "device",
		JM_BIND(JM_INT, struct state, device),
		.min = 0,
		.max = 15,
		.fallback = "0",
		.argument = "N",
		.help = "N of /dev/ipmiN"},
	JM_TIMEOUT_OPTION(struct state, timeout_ns, 60, "2s", ""),
	JM_COVERS_OPTION(
		struct state, covers, "what the controller measures: / (the node), psu/0..."),
	{0},
};

const struct jm_source jm_source_ipmi = {
	.name = "ipmi",
	.summary = "the node's power from its management controller (IPMI DCMI, /dev/ipmi0)",
	.options = options,
	.origin = JM_MEASURED,
	.keeps_time = true,
	.on_request =
		true, /* a question costs the controller and, on a KCS interface, a processor */
	.open = ipmi_open,
	.read = ipmi_read,
	.close = ipmi_close,
};
