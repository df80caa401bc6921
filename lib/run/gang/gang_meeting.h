/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the ranks of a case meet that were started apart: {host, port, seed}, in the "gang" of
 * their job. The key of the meeting follows from the seed and the secret of the gang, so that
 * neither is sent.
 */
#ifndef JM_GANG_MEETING_H
#define JM_GANG_MEETING_H

#include <jansson.h>

#include "base/net/meeting.h"
#include "joulemark.h"

/* A new one; ret_door: listens there. NULL: an error. */
json_t *jm_gang_meeting_new(const char *host, int *ret_door, struct jm_err *err);
/* On the host of a rank: completes gang.meet by the key; secret: of the gang. */
int jm_gang_meeting_key(json_t *gang, const unsigned char secret[JM_KEY_BYTES], struct jm_err *err);
/* In a worker: fills where the ranks meet, as long as `gang` is not changed. False: they share a
 * file of one host. */
bool jm_gang_meeting_read(const json_t *gang, int door, struct jm_meet *ret);

#endif
