/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a case on several hosts: the parts that their first ranks have sent, on one time
 * axis. */
#ifndef JM_JOIN_HOSTS_H
#define JM_JOIN_HOSTS_H

#include <jansson.h>

#include "agent_links.h"

/* record: of each rank, NULL where it has sent none; that of rank 0 gets what the other hosts have
 * measured. */
int jm_join_hosts(const struct jm_agent_links *h, json_t *const *record, struct jm_err *err);

#endif
