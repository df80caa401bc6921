/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Up to the end of the first line, which a pipe may give in pieces; how many bytes, or -1. */
static ssize_t read_line(int fd, char out[JM_SECRET_MAX])
{
	size_t used = 0;
	ssize_t n;

	do {
		n = read(fd, out + used, JM_SECRET_MAX - 1 - used);
		used += n > 0 ? (size_t)n : 0;
	} while (n > 0 && used < JM_SECRET_MAX - 1 && !memchr(out, '\n', used));
	return n < 0 ? n : (ssize_t)used;
}

int jm_secret_read(const char *path, char out[JM_SECRET_MAX], struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read_line(fd, out);
	int code = errno;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return jm_err_set(err, JM_EIO, "Cannot read the secret in %s: %s.", path,
			n ? strerror(code) : "it is empty");
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	out[n] = '\0';
	out[strcspn(out, "\r\n")] = '\0';
	if (*out && strlen(out) < JM_SECRET_MAX - 1)
		return 0;
	code = *out ? JM_ERANGE : JM_EFORMAT;
	*out = '\0';
	return jm_err_set(err, code, "The first line of %s is %s; write the secret there.", path,
		code == JM_ERANGE ? "longer than a secret may be, 4,094 bytes" : "empty");
}
