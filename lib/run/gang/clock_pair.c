/* SPDX-License-Identifier: Apache-2.0 */
#include "clock_pair.h"
#include "base/clock.h"
#include "base/net/tcp.h"
#include "frame.h"

#include <sys/socket.h>

#define ANSWER_NS (5 * JM_SECOND)
/* The shortest exchange of clocks counts: on a busy host few are short, over a slow network none
 * is. */
#define PINGS	 5
#define CLOSE_NS (JM_MILLISECOND / 10)
#define IN_VAIN	 16 /* exchanges in a row that were not shorter than the shortest */

/* An answer that came later would be taken for another message, so the connection ends. */
static bool ping(int fd, struct jm_clock_pair *ret)
{
	int64_t sent = jm_clock_now(jm_clock_real()), there, got;

	if (jm_frame_write(fd, JM_FRAME_PING, NULL, 0, NULL, 0, NULL) ||
		!jm_tcp_receive(fd, &there, sizeof(there), sent + ANSWER_NS)) {
		shutdown(fd, SHUT_RDWR);
		return false;
	}
	got = jm_clock_now(jm_clock_real());
	ret->doubt_ns = (got - sent) / 2;
	ret->offset_ns = there - (sent + ret->doubt_ns);
	return true;
}

struct jm_clock_pair jm_clock_pair_of(int fd, int64_t patience_ns)
{
	const int64_t until = jm_clock_now(jm_clock_real()) + patience_ns;
	struct jm_clock_pair best = {0, INT64_MAX}, one;
	int in_vain = 0;

	for (int i = 0; i < PINGS || (best.doubt_ns > CLOSE_NS && in_vain < IN_VAIN &&
					     jm_clock_now(jm_clock_real()) < until);
		i++) {
		if (!ping(fd, &one))
			break;
		in_vain++;
		if (one.doubt_ns < best.doubt_ns) {
			best = one;
			in_vain = 0;
		}
	}
	return best;
}
