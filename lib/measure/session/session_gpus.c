/* SPDX-License-Identifier: Apache-2.0 */
/* A session whose work runs on some GPUs only. */
#include "measure/session/session_gpus.h"
#include "session_private.h"

/* True if neither a separate meter nor one of the whole node reads it. */
static bool is_unread(const struct jm_session *s, int own)
{
	for (int i = 0; i < s->set.n && own < 0; i++)
		if (s->set.meter[i].scope == JM_SCOPE_NODE)
			return false;
	return own < 0;
}

int jm_session_own(struct jm_session *s, const char *uuid, const char *bus, bool *ret_slice)
{
	int own = jm_meters_own(&s->set, uuid, bus, ret_slice);

	s->own_unread = is_unread(s, own);
	return own;
}

int jm_session_own_too(struct jm_session *s, const char *uuid, const char *bus)
{
	int own = jm_meters_own_too(&s->set, uuid, bus);

	s->own_unread |= is_unread(s, own);
	return own;
}
