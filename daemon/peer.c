/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int ended(pid_t pid, struct jm_err *err)
{
	return jm_err_set(err, JM_EGONE, "Process %d, which connected, has ended.", (int)pid);
}

/* By errno. */
static int unwatched(pid_t pid, struct jm_err *err)
{
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		return jm_err_set(err, JM_EIO,
			"joulemarkd cannot watch process %d: %s; try again later.", (int)pid,
			strerror(errno));
	return ended(pid, err);
}

/* The user of a process is that of its folder in /proc. */
static bool is_of_user(pid_t pid, uid_t uid)
{
	char path[40];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	return !stat(path, &st) && (st.st_uid == uid || !st.st_uid);
}

/* Kernels before 6.5 do not know SO_PEERPIDFD. */
static int open_process(int fd, struct jm_peer *peer, struct jm_err *err)
{
	pid_t pid = peer->process.pid;
	socklen_t size = sizeof(peer->pidfd);
	struct pollfd p = {.events = POLLIN};
	int rc = getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &peer->pidfd, &size);

	if (rc && errno != ENOPROTOOPT)
		return unwatched(pid, err);
	if (rc)
		peer->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (peer->pidfd < 0)
		return unwatched(pid, err);
	peer->process = jm_process_of(pid);
	p.fd = peer->pidfd;
	/* looked at after its start was read, so that this is the start of the same process */
	if (poll(&p, 1, 0) == 0 && (!rc || is_of_user(pid, peer->uid)))
		return 0;
	close(peer->pidfd);
	return ended(pid, err);
}

int jm_peer_of(int fd, struct jm_peer *ret, struct jm_err *err)
{
	struct ucred who;
	socklen_t size = sizeof(who), bytes = sizeof(ret->group);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
		return jm_err_set(
			err, JM_EIO, "The kernel does not say who connected: %s.", strerror(errno));
	if (who.pid <= 0)
		return jm_err_set(err, JM_EPERM,
			"A process of another container connected, which cannot be watched.");
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, ret->group, &bytes))
		bytes = 0;
	ret->n_groups = (int)(bytes / sizeof(ret->group[0]));
	if (ret->n_groups < JM_PEER_GROUPS)
		ret->group[ret->n_groups++] = who.gid;
	ret->uid = who.uid;
	ret->process = (struct jm_process){.pid = who.pid};
	return open_process(fd, ret, err);
}
