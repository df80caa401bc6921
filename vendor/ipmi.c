/* SPDX-License-Identifier: Apache-2.0 */
#include "ipmi.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ipmi.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define NETFN_GROUP 0x2c

_Static_assert(JM_IPMI_MAX == IPMI_MAX_MSG_LENGTH, "the longest message of Linux");

/* A device file of one of the names that distributions give it; -1 with errno. */
static int open_device(struct jm_ipmi *ipmi, const char *root, int number)
{
	static const char *const names[] = {"/dev/ipmi", "/dev/ipmi/", "/dev/ipmidev/", NULL};
	int first = 0;

	for (int i = 0; names[i]; i++) {
		int fd;

		snprintf(ipmi->path, sizeof(ipmi->path), "%s%s%d", root, names[i], number);
		fd = open(ipmi->path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (!first || errno != ENOENT)
			first = errno;
	}
	snprintf(ipmi->path, sizeof(ipmi->path), "%s/dev/ipmi%d", root, number);
	errno = first;
	return -1;
}

int jm_ipmi_open(struct jm_ipmi *ipmi, const char *root, int number, struct jm_err *err)
{
	ipmi->fd = open_device(ipmi, root, number);
	if (ipmi->fd >= 0)
		return 0;
	if (errno == EACCES || errno == EPERM)
		return jm_err_set(err, JM_EPERM,
			"%s may not be opened; run as root, or let your group use it by a udev "
			"rule.",
			ipmi->path);
	return jm_err_set(err, JM_ENOENT,
		"%s cannot be opened (%s); the node has no management controller, or the kernel "
		"modules "
		"ipmi_si and ipmi_devintf are not loaded (try 'modprobe ipmi_devintf').",
		ipmi->path, strerror(errno));
}

void jm_ipmi_close(struct jm_ipmi *ipmi)
{
	if (ipmi->fd >= 0)
		close(ipmi->fd);
	ipmi->fd = -1;
}

static bool send(struct jm_ipmi *ipmi, uint8_t command, const uint8_t *data, size_t n)
{
	struct ipmi_system_interface_addr bmc = {
		.addr_type = IPMI_SYSTEM_INTERFACE_ADDR_TYPE, .channel = IPMI_BMC_CHANNEL};
	uint8_t copy[JM_IPMI_MAX];
	struct ipmi_req request = {.addr = (unsigned char *)&bmc,
		.addr_len = sizeof(bmc),
		.msgid = ++ipmi->msgid,
		.msg = {NETFN_GROUP, command, (unsigned short)n, copy}};

	memcpy(copy, data, n);
	return ioctl(ipmi->fd, IPMICTL_SEND_COMMAND, &request) == 0;
}

/* One message of the device's queue: its length, 0 = none or the answer to another question. */
static size_t take(struct jm_ipmi *ipmi, uint8_t message[JM_IPMI_MAX])
{
	struct ipmi_addr from;
	struct ipmi_recv answer = {.addr = (unsigned char *)&from,
		.addr_len = sizeof(from),
		.msg = {.data = message, .data_len = JM_IPMI_MAX}};

	if (ioctl(ipmi->fd, IPMICTL_RECEIVE_MSG_TRUNC, &answer) < 0) {
		const struct timespec moment = {.tv_nsec = 1000000};

		nanosleep(
			&moment, NULL); /* a device without an answer that does not let poll wait */
		return 0;
	}
	if (answer.recv_type != IPMI_RESPONSE_RECV_TYPE || answer.msgid != ipmi->msgid ||
		answer.msg.data_len > JM_IPMI_MAX)
		return 0;
	return answer.msg.data_len;
}

size_t jm_dcmi_ask(struct jm_ipmi *ipmi, uint8_t command, const uint8_t *data, size_t n,
	uint8_t answer[JM_IPMI_MAX])
{
	int64_t until = jm_clock_now(jm_clock_real()) + ipmi->timeout_ns, left;
	size_t got = 0;

	if (!send(ipmi, command, data, n))
		return 0;
	while (!got && (left = until - jm_clock_now(jm_clock_real())) > 0) {
		struct pollfd device = {.fd = ipmi->fd, .events = POLLIN};

		if (poll(&device, 1, (int)(left / JM_MILLISECOND) + 1) > 0)
			got = take(ipmi, answer);
	}
	return got;
}
