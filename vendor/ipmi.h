/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of DCMI to the management controller of this node, by Linux' /dev/ipmiN
 * (Documentation/driver-api/ipmi.rst). DCMI 1.5: network function 2Ch, and the group dch as the
 * first byte of each command and of each answer behind its completion code.
 */
#ifndef JM_VENDOR_IPMI_H
#define JM_VENDOR_IPMI_H

#include "joulemark.h"

#include <stddef.h>
#include <stdint.h>

#define JM_IPMI_MAX	 272 /* bytes of a message */
#define JM_DCMI_GROUP	 0xdc
#define JM_DCMI_UNKNOWN	 0xc1 /* completion code: the controller does not know the command */
#define JM_DCMI_NO_RIGHT 0xd4 /* completion code: this user may not give it */

struct jm_ipmi {
	int fd;
	long msgid; /* of the last question: an answer to an earlier one came too late */
	int64_t timeout_ns;
	char path[300];
};

/* root: of the tree in which dev/ipmiN is. JM_EPERM, JM_ENOENT. */
int jm_ipmi_open(struct jm_ipmi *ipmi, const char *root, int number, struct jm_err *err);
void jm_ipmi_close(struct jm_ipmi *ipmi); /* takes a closed one, whose fd is -1 */
/* The bytes of the answer, its completion code first; 0 = none within timeout_ns. data: with the
 * group in front. */
size_t jm_dcmi_ask(struct jm_ipmi *ipmi, uint8_t command, const uint8_t *data, size_t n,
	uint8_t answer[JM_IPMI_MAX]);

#endif
