/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int jm_secret_read(const char *path, char out[JM_SECRET_MAX], struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, JM_SECRET_MAX - 1);
	int code = errno;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return jm_err_set(err, JM_EIO, "Cannot read the secret in %s: %s.", path,
			n ? strerror(code) : "it is empty");
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	out[n] = '\0';
	out[strcspn(out, "\r\n")] = '\0';
	return 0;
}
