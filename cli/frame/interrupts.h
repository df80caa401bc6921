/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that ask joulemark to end: counted, so that settings are put back first. */
#ifndef JM_INTERRUPTS_H
#define JM_INTERRUPTS_H

#include "base/ctx.h"

/* From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT are counted in ctx->interrupts; each also writes
 * a byte to wake_fd (-1 = nowhere). What our caller ignores stays ignored: under nohup a hangup. */
void jm_count_interrupts(struct jm_ctx *ctx, int wake_fd);
/* Like the above, with a separate pipe: *ret_fd is readable once a signal has come, and stays open.
 * SIGPIPE is ignored. */
int jm_catch_interrupts(struct jm_ctx *ctx, int *ret_fd, struct jm_err *err);
/* From now on the first of each of these signals is noted only (jm_last_interrupt), so that a
 * record is written before the end; the next one has its default action. */
void jm_note_first_interrupt(void);
/* The signal that came last; 0 = none. */
int jm_last_interrupt(void);

typedef void jm_signal_handler(int);
/* In a child, before exec: it gets the disposition of SIGPIPE that we were given. before:
 * jm_signal_handler ** */
int jm_give_back_pipe_signal(void *before);

#endif
