/* SPDX-License-Identifier: Apache-2.0 */
/* How often, in which order and with which pauses a plan is run: the part of a request's "how" that
 * is its protocol. */
#ifndef JM_RUN_PROTOCOL_H
#define JM_RUN_PROTOCOL_H

#include "run_options.h"

/* Adds the protocol to the request's "how": repeats, order, pauses, retries. */
int jm_run_protocol(struct jm_cli *cli, const struct jm_run_given *g, json_t *how);

#endif
