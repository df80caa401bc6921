/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items done by an outside command: marks it sends through a socket or a pipe, or numbers in what
 * it prints.
 *
 * The socket is a Unix datagram socket in a private folder; JM_PROGRESS in the environment names
 * it. One message per datagram, text: "jm1 T mark NAME [ITEMS] [@BYTE]", T in ns of
 * CLOCK_MONOTONIC, BYTE: how many bytes of output the command had written then, where the receiver
 * reads the output (output_page.h). The datagram "jm1 pipe" brings the reading end of a pipe; "jm1
 * pipe @" one for marks with BYTE, the only ones that a receiver of output can put in order when it
 * reads them late. A receiver that takes it gives the pipe JM_MARK_PIPE bytes; when the sender sees
 * that size, its marks go there, one per line, until the pipe is full: a mark in a pipe wakes no
 * process and waits for none. A mark ends the stretch before it: its items were done in that
 * stretch, and from then on it is NAME.
 */
#ifndef JM_PROGRESS_H
#define JM_PROGRESS_H

#include <sys/types.h>

#include "joulemark.h"

#define JM_MARK_VARIABLE "JM_PROGRESS"
#define JM_MARK_OUTPUT	 "output" /* the file beside the socket, see output_page.h */
#define JM_MARK_HANDOVER "jm1 pipe"
#define JM_MARK_ORDERED	 "jm1 pipe @"
#define JM_MARK_PIPE	 (256 * 1024)

struct jm_mark {
	int64_t t_ns;
	char name[64];
	double items; /* done since the previous mark; NAN = unknown */
	int64_t byte; /* of the command's output at which it was sent; -1 = unknown */
};
typedef void jm_mark_fn(void *arg, const struct jm_mark *mark);

/* ---- the receiving end ---- */
struct jm_progress;
int jm_progress_open(struct jm_progress **ret, struct jm_err *err);
const char *jm_progress_env(const struct jm_progress *p); /* "JM_PROGRESS=/tmp/..." */
int jm_progress_fd(const struct jm_progress *p);	  /* to poll */
/* From now on senders' pipes are taken: jm_progress_receive is called every JM_MARK_PIPE_NS as
 * well. */
void jm_progress_take_pipes(struct jm_progress *p);
bool jm_progress_has_pipes(const struct jm_progress *p);
/* From now on senders whose stdout is this pipe state the byte of its output. fd: the reading end,
 * which is then read with jm_progress_read alone. Where this cannot be shared, marks have no byte,
 * and no pipes are taken. */
void jm_progress_share_output(struct jm_progress *p, int fd);
ssize_t jm_progress_read(struct jm_progress *p, int fd, void *bytes, size_t n); /* as read(2) */
#define JM_MARK_PIPE_NS (20 * 1000 * 1000)
/* Calls fn for each mark that waits, in order of time. Malformed messages are counted, not errors.
 * now_ns: stands in for a stamp that cannot be true. Returns how many marks came. */
int jm_progress_receive(struct jm_progress *p, int64_t now_ns, jm_mark_fn *fn, void *arg);
long jm_progress_malformed(const struct jm_progress *p);
void jm_progress_close(struct jm_progress *p); /* takes NULL; removes socket and folder */

/* ---- the sum: items, and the rate between the first and the last mark ---- */
struct jm_tally {
	double items, items_after_first;
	int64_t first_ns, last_ns;
	long marks;
	bool late; /* stamps may come late and in bursts, as from a buffered stdout */
};
void jm_tally_add(struct jm_tally *t, const struct jm_mark *mark);
/* The stretch that the rate applies to and the items done in it (NAN = unknown): between the first
 * and the last mark; all of t0_ns to t1_ns where there is only one, or where stamps are late and
 * the marks are close together. */
struct jm_item_interval {
	int64_t t0_ns, t1_ns;
	double items;
};
struct jm_item_interval jm_tally_interval(const struct jm_tally *t, int64_t t0_ns, int64_t t1_ns);
/* Items per second in that stretch; NAN = unknown. */
double jm_tally_rate(const struct jm_tally *t, int64_t t0_ns, int64_t t1_ns);

#endif
