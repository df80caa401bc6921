/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end of a connection. */
#ifndef JM_PEER_H
#define JM_PEER_H

#include "base/process/process_identity.h"
#include "policy.h"

#define JM_PEER_GROUPS 1024

struct jm_peer {
	struct jm_process process;
	uid_t uid;
	gid_t group[JM_PEER_GROUPS];
	int n_groups;
	int pidfd; /* of the process that connected; the caller's to close */
};

/*
 * The process that connected the socket, as the kernel noted it then. Before Linux 6.5, which has
 * no SO_PEERPIDFD, the process of that id is opened, and a process that has got the id since is
 * told by its messages, whose sender the kernel names (guard_terms.h). JM_EGONE: it has ended.
 */
int jm_peer_of(int fd, struct jm_peer *ret, struct jm_err *err);

#endif
