/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of an introduction: a door, at which a rank admits others, and a visit to it. */
#ifndef JM_MEET_DOOR_H
#define JM_MEET_DOOR_H

#include "joulemark.h"
#include "meeting.h"

#define JM__MAGIC 0x324d4a /* JM2, in the one byte order that all ranks have */

/* A visitor's first message. */
struct jm__hello {
	uint32_t magic, rank, world, port; /* port: of the visitor's own door; 0 = it has none */
	uint64_t what;
	unsigned char nonce[JM_KEY_BYTES];
};

/* The door's answer. */
struct jm__reply {
	unsigned char nonce[JM_KEY_BYTES], proof[JM_KEY_BYTES];
};

/* The last word of a door to a visitor that has proved that it knows the secret. */
enum jm__verdict {
	JM__WELCOME = 0x6a6d0000,
	JM__TWICE,	 /* its rank is there already */
	JM__OTHER_WORLD, /* it counts other ranks */
	JM__OTHER_WORK
};

enum jm__side { JM__DOOR = 'D', JM__VISITOR = 'V' };

/* What a side sends to show that it knows the key. */
void jm__meet_prove(const struct jm_meet *m, enum jm__side side, const struct jm__hello *hello,
	const unsigned char nonce[JM_KEY_BYTES], unsigned char ret[JM_KEY_BYTES]);
int jm__meet_random(void *to, size_t n, struct jm_err *err);

/* The error of a rank that was asked to end while it waited, or 0. */
int jm__meet_interrupted(const struct jm_meet *m, struct jm_err *err);
/* Admits all ranks above the own one and closes the door. fd: as of jm_meet, with connections to
 * the ranks below; port: of each admitted rank's own door. */
int jm__meet_admit(const struct jm_meet *m, int door, int *fd, uint16_t *port, struct jm_err *err);
/* The error of a rank that has not come in time; why: "" or ": Connection refused". */
int jm__meet_missing(const struct jm_meet *m, int rank, const char *why, struct jm_err *err);
/* The error of one whose connection has ended. */
int jm__meet_ended(int rank, struct jm_err *err);

#endif
