/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/joulemarkd_link.h"

#include "base/ctx.h"
#include "guard/guard_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Whoever else listens there could claim to have set something. */
static int check_server(int fd, const char *path, struct jm_err *err)
{
	struct ucred server = {.uid = (uid_t)-1};
	socklen_t size = sizeof(server);

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) && !server.uid)
		return 0;
	return jm_err_set(
		err, JM_EPERM, "%s is not root's, so it is not joulemarkd's socket.", path);
}

int jm_joulemarkd_connect(const struct jm_ctx *ctx, int *ret_fd, struct jm_err *err)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path, sizeof(to.sun_path), "%s" JM_JOULEMARKD_SOCKET, ctx->root);
	int fd, on = 1, rc = 0;

	if (n < 0 || (size_t)n >= sizeof(to.sun_path))
		return jm_err_set(err, JM_ENOENT, "No joulemarkd can be below %s.", ctx->root);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return jm_err_set(err, JM_EIO, "Cannot make a socket: %s.", strerror(errno));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		rc = jm_err_set(err,
			errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED ? JM_ENOENT
										     : JM_EPERM,
			"joulemarkd cannot be reached at %s: %s.", to.sun_path, strerror(errno));
	if (!rc)
		rc = check_server(fd, to.sun_path, err);
	if (!rc && setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		rc = jm_err_set(err, JM_EIO, "Cannot learn who answers: %s.", strerror(errno));
	if (rc)
		close(fd);
	else
		*ret_fd = fd;
	return rc;
}

int jm_joulemarkd_lost(int fd, struct jm_err *err)
{
	struct jm_wire_reply last;
	struct jm_err why = JM_ERR_INIT;
	ssize_t got = recv(fd, &last, sizeof(last), MSG_DONTWAIT | MSG_TRUNC);

	if (got == (ssize_t)sizeof(last) &&
		jm_wire_check_reply(&last, sizeof(last), JM_WIRE_STOP, 0, &why))
		return jm_err_set(err, why.code, "%s", why.text);
	return jm_err_set(err, JM_EGONE,
		"joulemarkd has ended the lease of this program and restores what it held; "
		"'journalctl -u joulemarkd' has the reason.");
}
