/* SPDX-License-Identifier: Apache-2.0 */
/* When a meter on the network, whose connection was lost, is tried again. */
#ifndef JM_RETRY_H
#define JM_RETRY_H

#include "base/clock.h"

#include <stdbool.h>

/* True at most once a second; *next_ns, which begins as 0, is when it will be again. */
static inline bool jm_retry_now(int64_t *next_ns, int64_t now_ns)
{
	if (now_ns < *next_ns)
		return false;
	*next_ns = now_ns + JM_SECOND;
	return true;
}

#endif
