/* SPDX-License-Identifier: Apache-2.0 */
/* How far the clock of another host is from the one here, by an exchange with the agent there. */
#ifndef JM_CLOCK_PAIR_H
#define JM_CLOCK_PAIR_H

#include <stdint.h>

/* Two clocks, read at one time: t on the other is t - offset here, with this doubt. */
struct jm_clock_pair {
	int64_t offset_ns, doubt_ns;
};

/* fd: the link to the agent; patience_ns: how long a shorter exchange is tried for. An agent that
 * does not answer within 5 s has its link shut down; the doubt is then INT64_MAX. */
struct jm_clock_pair jm_clock_pair_of(int fd, int64_t patience_ns);

#endif
