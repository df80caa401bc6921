/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of serve come from clients over HTTP, and the answers go to them: --listen. A thread
 * of rank 0 takes questions, puts them on the desk (request_desk.h), from which the replicas take
 * them as from any queue, and sends the tokens that these put there.
 */
#ifndef JM_LISTEN_H
#define JM_LISTEN_H

#include "serve_state.h"

/* Is the text of --listen an address and a port? JM_EUSAGE. */
int jm_listen_check(const char *text, struct jm_err *err);
/* JM_EUSAGE: an option is of requests that are made here. */
int jm_listen_check_others(const struct jm_values *options, struct jm_err *err);
/*
 * By rank 0, when all replicas are ready: listens at --listen, "ADDRESS:PORT"; prints the address
 * by the log. Where SIGTERM ends the process from now on, clients are told before. JM_EUSAGE, or as
 * jm_answer_server_start.
 */
int jm_listen_open(struct serve *s, struct jm_err *err);
/* After the last step of all replicas. Questions that are left become requests that are not done;
 * clients that wait are told that the server ends. Without a listener nothing is done. */
void jm_listen_finish(struct serve *s);
/* Adds requests that no replica had to those of all, and corrects those whose client left too late
 * for its replica. */
int jm_listen_gather(struct serve *s, struct jm_err *err);
void jm_listen_close(struct serve *s); /* also without jm_listen_open */

#endif
