/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of client and guard: one message each, over a SOCK_SEQPACKET pair. Each guard has
 * one client, its parent, which may be another version of joulemark. The first 8 bytes, and the
 * reply that refuses another version, stay as they are in all versions. A message is used only
 * after all of it was checked.
 */
#ifndef JM_GUARD_WIRE_H
#define JM_GUARD_WIRE_H

#include <sys/types.h>

#include "guard/setting.h"

#define JM_WIRE_VERSION 3	    /* counts up with every change of what follows */
#define JM_WIRE_MAGIC	0x57474d4a  /* "JMGW" */
#define JM_WIRE_FD	3	    /* of the socket in the guard */
#define JM_WIRE_MAX	(200 << 10) /* bytes of a message; some 450 knobs */
#define JM_WIRE_SPECS	1000	    /* bytes of a list of controls */

enum jm_wire_op {
	JM_WIRE_OPEN,
	JM_WIRE_ABSENT,
	JM_WIRE_GET,
	JM_WIRE_STATE,
	JM_WIRE_HOLD,
	JM_WIRE_SET,
	JM_WIRE_RESTORE,
	JM_WIRE_KEEP,
	JM_WIRE_STOP,
	JM_WIRE_OPS
};

struct jm_wire_request {
	uint32_t magic, version;
	uint32_t op, n, bytes_each; /* followed by n elements of so many bytes each */
	uint32_t zero;
	/* OPEN: specs as text, n = 0 for "all of the machine"; STATE, HOLD, SET: struct
	 * jm_setting */
};

struct jm_wire_reply {
	uint32_t magic, version;
	int32_t rc;
	char text[512]; /* when rc is not 0 */
	uint32_t n, bytes_each, zero;
	/* OPEN: struct jm_knob; ABSENT: text, of jm_knobs.absent; GET, HOLD, SET: struct
	 * jm_applied */
};

/* Checks a request that was received: `got` bytes at a message of JM_WIRE_MAX. JM_EVERSION: the
 * sender speaks another version; JM_EFORMAT: the message is malformed. */
int jm_wire_check_request(const void *message, size_t got, struct jm_err *err);
/* Checks the reply to that request from a guard with n_knobs knobs. If the guard refused the
 * request, the code of the refusal is returned. */
int jm_wire_check_reply(
	const void *message, size_t got, enum jm_wire_op op, int n_knobs, struct jm_err *err);
/* Fills in the head of a request, or of a reply, whose payload is there; returns the bytes of the
 * message. */
size_t jm_wire_put_request(void *message, enum jm_wire_op op, size_t n);
size_t jm_wire_put_reply(void *message, enum jm_wire_op op, size_t n);
/* Writes a refusal with its reason in place of the request. JM_EVERSION to a request
 * from before there were versions has the format of that time. */
size_t jm_wire_put_refusal(void *message, int rc, const char *text);
/* Receives one message into JM_WIRE_MAX bytes: as recv with MSG_TRUNC, tried again after a signal.
 * ret_sender: the process that sent it as the kernel knows it, on a socket with SO_PASSCRED, 0 =
 * unknown; may be NULL. */
ssize_t jm_wire_receive(int fd, void *message, pid_t *ret_sender);
/* The payload after the head of a request or of a reply. */
void *jm_wire_request_payload(void *message);
void *jm_wire_reply_payload(void *message);

#endif
