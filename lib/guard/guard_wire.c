/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of client and guard: what is put into their heads, and what is checked when they
 * come. */
#include "guard/guard_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define SENTENCE 10 /* bytes at least, of what says why not */

/* Bytes of one element of the payload. */
static size_t request_each(uint32_t op)
{
	return op == JM_WIRE_OPEN ? 1
	       : op == JM_WIRE_STATE || op == JM_WIRE_HOLD || op == JM_WIRE_SET
		       ? sizeof(struct jm_setting)
		       : 0;
}

static size_t reply_each(uint32_t op)
{
	return op == JM_WIRE_OPEN     ? sizeof(struct jm_knob)
	       : op == JM_WIRE_ABSENT ? 1
	       : op == JM_WIRE_GET || op == JM_WIRE_HOLD || op == JM_WIRE_SET
		       ? sizeof(struct jm_applied)
		       : 0;
}

void *jm_wire_request_payload(void *message)
{
	return (char *)message + sizeof(struct jm_wire_request);
}

void *jm_wire_reply_payload(void *message)
{
	return (char *)message + sizeof(struct jm_wire_reply);
}

size_t jm_wire_put_request(void *message, enum jm_wire_op op, size_t n)
{
	struct jm_wire_request q = {.magic = JM_WIRE_MAGIC,
		.version = JM_WIRE_VERSION,
		.op = op,
		.n = (uint32_t)n,
		.bytes_each = (uint32_t)request_each(op)};

	memcpy(message, &q, sizeof(q));
	return sizeof(q) + n * q.bytes_each;
}

size_t jm_wire_put_reply(void *message, enum jm_wire_op op, size_t n)
{
	struct jm_wire_reply r = {.magic = JM_WIRE_MAGIC,
		.version = JM_WIRE_VERSION,
		.n = (uint32_t)n,
		.bytes_each = (uint32_t)reply_each(op)};

	memcpy(message, &r, sizeof(r));
	return sizeof(r) + n * r.bytes_each;
}

/* The reply of the protocol before it had versions. */
struct unversioned_reply {
	int32_t rc, n;
	char text[512];
};

size_t jm_wire_put_refusal(void *message, int rc, const char *text)
{
	struct unversioned_reply old = {.rc = rc};
	uint32_t magic;
	struct jm_wire_reply r = {.magic = JM_WIRE_MAGIC, .version = JM_WIRE_VERSION, .rc = rc};

	memcpy(&magic, message, sizeof(magic));
	if (rc == JM_EVERSION && magic != JM_WIRE_MAGIC) {
		snprintf(old.text, sizeof(old.text), "%s", text);
		memcpy(message, &old, sizeof(old));
		return sizeof(old);
	}
	snprintf(r.text, sizeof(r.text), "%s", text);
	memcpy(message, &r, sizeof(r));
	return sizeof(r);
}

ssize_t jm_wire_receive(int fd, void *message, pid_t *ret_sender)
{
	/* room for this alone: descriptors that a sender passes are not taken */
	union {
		struct cmsghdr align;
		char bytes[CMSG_LEN(sizeof(struct ucred))];
	} control;
	struct iovec to = {.iov_base = message, .iov_len = JM_WIRE_MAX};
	struct msghdr m = {.msg_iov = &to,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes)};
	struct ucred sender = {0};
	const struct cmsghdr *c;
	ssize_t got;

	do
		got = recvmsg(fd, &m, MSG_TRUNC | MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	c = got < 0 ? NULL : CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
		c->cmsg_len == CMSG_LEN(sizeof(sender)))
		memcpy(&sender, CMSG_DATA(c), sizeof(sender));
	if (ret_sender)
		*ret_sender = sender.pid;
	return got;
}

/* who: "client" or "guard", whose message it is. */
static int check_version(const void *message, size_t got, const char *who, struct jm_err *err)
{
	uint32_t head[2] = {0, 0};

	if (got >= sizeof(head))
		memcpy(head, message, sizeof(head));
	if (head[0] != JM_WIRE_MAGIC)
		return jm_err_set(err, JM_EVERSION,
			"The %s does not speak the guard's protocol, version %d, which joulemark "
			"%s speaks: it is another program, or an older joulemark. Install the "
			"library and the program of the same version, or set JM_GUARD to the "
			"program of this version.",
			who, JM_WIRE_VERSION, JM_VERSION);
	if (head[1] != JM_WIRE_VERSION)
		return jm_err_set(err, JM_EVERSION,
			"The %s speaks version %u of the guard's protocol, but joulemark %s speaks "
			"version %d. Install the library and the program of the same version, or "
			"set JM_GUARD to the program of this version.",
			who, head[1], JM_VERSION, JM_WIRE_VERSION);
	return 0;
}

static int refuse(const char *who, const char *what, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT,
		"The %s sent a message that is ignored, because %s. This is a defect in joulemark, "
		"or another program wrote to its socket.",
		who, what);
}

/* "" = it is as long as it says. */
static const char *length_fault(size_t got, size_t head, uint32_t n, uint32_t each, size_t wanted)
{
	if (n && each != wanted)
		return "its elements have another size";
	if (got > JM_WIRE_MAX)
		return "it is too long";
	if (n > JM_WIRE_MAX || got != head + (size_t)n * wanted)
		return "its length differs from that in its header";
	return "";
}

static bool is_text(const char *text, size_t size)
{
	return memchr(text, '\0', size);
}

static const char *setting_fault(const struct jm_setting *s)
{
	if (!is_text(s->knob, sizeof(s->knob)) || !is_text(s->selector, sizeof(s->selector)))
		return "a text in it has no terminator";
	return jm_knob_value_sound(&s->value) && jm_knob_value_known(&s->value)
		       ? ""
		       : "a value in it is none that a knob can have";
}

int jm_wire_check_request(const void *message, size_t got, struct jm_err *err)
{
	const char *from = (const char *)message + sizeof(struct jm_wire_request), *fault;
	int rc = check_version(message, got, "client", err);
	struct jm_wire_request q;

	if (rc)
		return rc;
	if (got < sizeof(q))
		return refuse("client", "it is too short", err);
	memcpy(&q, message, sizeof(q));
	if (q.op >= JM_WIRE_OPS)
		return refuse("client", "it is an unknown request", err);
	if (q.n && !request_each(q.op))
		return refuse("client", "it has data after its header, but should have none", err);
	fault = length_fault(got, sizeof(q), q.n, q.bytes_each, request_each(q.op));
	if (!*fault && q.op == JM_WIRE_OPEN && (q.n > JM_WIRE_SPECS || memchr(from, '\0', q.n)))
		fault = "its list of controls is not text, or is too long";
	for (uint32_t i = 0; !*fault && q.op != JM_WIRE_OPEN && i < q.n; i++) {
		struct jm_setting s;

		memcpy(&s, from + i * sizeof(s), sizeof(s));
		fault = setting_fault(&s);
	}
	return *fault ? refuse("client", fault, err) : 0;
}

/* Is the byte of a truth value one of its two? */
static bool is_truth(const bool *b)
{
	unsigned char byte;

	memcpy(&byte, b, 1);
	return byte < 2;
}

static const char *knob_fault(const struct jm_knob *k)
{
	if (!is_text(k->name, sizeof(k->name)) || !is_text(k->unit, sizeof(k->unit)) ||
		!is_text(k->device, sizeof(k->device)) || !is_text(k->label, sizeof(k->label)) ||
		!is_text(k->choices, sizeof(k->choices)))
		return "a text in it has no terminator";
	if ((unsigned int)k->kind > JM_KNOB_CHOICE || (unsigned int)k->ends > JM_ENDS_PROCESS ||
		!is_truth(&k->unlockable) || !is_truth(&k->unreadable))
		return "a knob in it is of an unknown kind";
	return jm_knob_value_sound(&k->fallback) ? ""
						 : "a default in it is none that a knob can have";
}

static const char *applied_fault(const struct jm_applied *a, int n_knobs)
{
	if (a->knob < 0 || a->knob >= n_knobs)
		return "it names a knob that does not exist";
	if (!jm_knob_value_sound(&a->requested) || !jm_knob_value_sound(&a->accepted) ||
		!jm_knob_value_sound(&a->enforced))
		return "a value in it is none that a knob can have";
	if ((unsigned int)a->known_by > JM_KNOWN_STATED)
		return "it says that a value is known in an unknown way";
	return is_text(a->why, sizeof(a->why)) ? "" : "a text in it has no terminator";
}

static const char *payload_fault(const char *from, uint32_t op, uint32_t n, int n_knobs)
{
	const char *fault = "";

	if (op == JM_WIRE_ABSENT)
		return n < JM_KNOBS_ABSENT && !memchr(from, '\0', n)
			       ? ""
			       : "its reasons are not text, or are too long";
	if (op == JM_WIRE_GET && n != (uint32_t)n_knobs)
		return "it does not report every knob";
	if (op != JM_WIRE_OPEN && n > (uint32_t)n_knobs)
		return "it reports more knobs than there are";
	for (uint32_t i = 0; !*fault && i < n && op == JM_WIRE_OPEN; i++) {
		struct jm_knob k;

		memcpy(&k, from + i * sizeof(k), sizeof(k));
		fault = knob_fault(&k);
	}
	for (uint32_t i = 0; !*fault && i < n && op != JM_WIRE_OPEN; i++) {
		struct jm_applied a;

		memcpy(&a, from + i * sizeof(a), sizeof(a));
		fault = applied_fault(&a, n_knobs);
	}
	return fault;
}

static bool is_code(int32_t rc)
{
	return rc <= 0 && rc >= JM_EBUG;
}

int jm_wire_check_reply(
	const void *message, size_t got, enum jm_wire_op op, int n_knobs, struct jm_err *err)
{
	const char *from = (const char *)message + sizeof(struct jm_wire_reply), *fault;
	int rc = check_version(message, got, "guard", err);
	struct jm_wire_reply r;

	if (rc)
		return rc;
	if (got < sizeof(r))
		return refuse("guard", "it is too short", err);
	memcpy(&r, message, sizeof(r));
	if (!is_code(r.rc) || !is_text(r.text, sizeof(r.text)) ||
		(r.rc && strlen(r.text) < SENTENCE))
		return refuse("guard", "its status is unknown", err);
	if (r.n && !reply_each(op))
		return refuse("guard", "it has data after its header, but should have none", err);
	fault = length_fault(got, sizeof(r), r.n, r.bytes_each, reply_each(op));
	if (!*fault && !r.rc)
		fault = payload_fault(from, op, r.n, n_knobs);
	if (*fault)
		return refuse("guard", fault, err);
	return r.rc ? jm_err_set(err, r.rc, "%s", r.text) : 0;
}
