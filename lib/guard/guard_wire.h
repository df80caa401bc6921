/* SPDX-License-Identifier: Apache-2.0 */
/* What client and guard say to each other: one message each, over a SOCK_SEQPACKET pair. */
#ifndef JM_GUARD_WIRE_H
#define JM_GUARD_WIRE_H

#include "guard/guard.h"

#define JM_WIRE_FD  3		/* of the socket in the guard */
#define JM_WIRE_MAX (200 << 10) /* bytes of a message; some 550 knobs */

enum jm_wire_op {
	JM_WIRE_OPEN,
	JM_WIRE_GET,
	JM_WIRE_HOLD,
	JM_WIRE_SET,
	JM_WIRE_RESTORE,
	JM_WIRE_KEEP,
	JM_WIRE_STOP
};

struct jm_wire_request {
	int op, n;
	/* OPEN: specs as text, n = 0 for "all of the machine"; HOLD, SET: n times struct jm_setting */
};

struct jm_wire_reply {
	int rc, n;
	char text[512]; /* when rc is not 0 */
	/* OPEN: n times struct jm_knob; GET, HOLD, SET: n times struct jm_applied */
};

#endif
