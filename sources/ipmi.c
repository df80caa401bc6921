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
#include "vendor/ipmi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POWER_READING 0x02

struct state {
	struct jm_ctx *ctx;
	struct jm_ipmi ipmi;
	int device;	    /* N of /dev/ipmiN */
	const char *covers; /* an option, while it is opened */
};

static size_t exchange(struct state *s, uint8_t message[JM_IPMI_MAX])
{
	/* the mode: power statistics of the system */
	static const uint8_t data[] = {JM_DCMI_GROUP, 0x01, 0x00, 0x00};

	return jm_dcmi_ask(&s->ipmi, POWER_READING, data, sizeof(data), message);
}

/* The reason why the answer contains no power. */
static const char *complaint(const uint8_t *message, size_t n)
{
	if (!n)
		return "it does not answer in time";
	switch (message[0]) {
	case 0:
		return "its answer holds no power, or the measurement is not active";
	case JM_DCMI_UNKNOWN:
		return "it does not know DCMI (completion code c1h)";
	case JM_DCMI_NO_RIGHT:
		return "this user may not ask for it (completion code d4h)";
	}
	return "it refuses the command";
}

static int check_answer(struct state *s, struct jm_err *err)
{
	uint8_t message[JM_IPMI_MAX];
	size_t n = exchange(s, message);

	if (!isnan(jm_parse_dcmi(message, n)))
		return 0;
	return jm_err_set(err, n && message[0] == JM_DCMI_UNKNOWN ? JM_ENOSUP : JM_EIO,
		"The management controller at %s gives no DCMI power reading: %s; 'ipmitool dcmi "
		"power "
		"reading' asks the same, and redfish may have it.",
		s->ipmi.path, complaint(message, n));
}

static int open_controller(struct state *s, int number, struct jm_err *err)
{
	int rc = jm_ipmi_open(&s->ipmi, s->ctx->root, number, err);

	return rc ? rc : check_answer(s, err);
}

static int add_meter(const struct state *s, struct jm_meters *set, struct jm_err *err)
{
	struct jm_meter meter = {.source = "ipmi", .origin = JM_MEASURED, .covers = s->covers};
	struct jm_signal signal = {
		.quantity = JM_Q_POWER, .step = 1, .window_ns = -1, .accuracy = NAN};

	meter.scope = strcmp(s->covers, "/") ? JM_SCOPE_PSU : JM_SCOPE_NODE;
	snprintf(meter.id, sizeof(meter.id), "ipmi:%.100s", s->ipmi.path + strlen(s->ctx->root));
	snprintf(meter.label, sizeof(meter.label), "node (IPMI DCMI)");
	return jm_meters_add_whole(set, &meter, &signal, 1, err);
}

static void ipmi_close(void *state)
{
	struct state *s = state;

	if (s)
		jm_ipmi_close(&s->ipmi);
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
	if (rc)
		ipmi_close(s);
	else
		*ret_state = s;
	return rc;
}

static int ipmi_read(void *state, struct jm_sink *sink, struct jm_err *err)
{
	struct state *s = state;
	uint8_t message[JM_IPMI_MAX];
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
	JM_TIMEOUT_OPTION(struct state, ipmi.timeout_ns, 60, "2s", ""),
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
