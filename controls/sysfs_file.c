/* SPDX-License-Identifier: Apache-2.0 */
#include "sysfs_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int code_of(int number)
{
	return number == ENOENT || number == ENODEV || number == ENXIO	? JM_EGONE
	       : number == EACCES || number == EPERM || number == EROFS ? JM_EPERM
									: JM_EIO;
}

int jm_sysfs_read_line(const char *path, char out[JM_SYSFS_LINE], struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), number;
	ssize_t n;

	if (fd < 0)
		return jm_err_set(
			err, code_of(errno), "Cannot open %s: %s.", path, strerror(errno));
	n = read(fd, out, JM_SYSFS_LINE - 1);
	number = errno;
	close(fd);
	if (n < 0)
		return jm_err_set(
			err, code_of(number), "Cannot read %s: %s.", path, strerror(number));
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return 0;
}

int jm_sysfs_read_number(const char *path, long long *ret, struct jm_err *err)
{
	char line[JM_SYSFS_LINE], *end;
	int rc = jm_sysfs_read_line(path, line, err);
	long long value;

	if (rc)
		return rc;
	errno = 0;
	value = strtoll(line, &end, 10);
	if (end == line || *end || errno)
		return jm_err_set(err, JM_EFORMAT,
			"%s has '%.40s' where a whole number is expected.", path, line);
	*ret = value;
	return 0;
}

int jm_sysfs_write(void *unused, const char *path, const char *text, struct jm_err *err)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), number = 0;
	size_t n = strlen(text);
	ssize_t put;

	(void)unused;
	if (fd < 0)
		return jm_err_set(err, code_of(errno), "Cannot open %s for writing: %s%s.", path,
			strerror(errno), code_of(errno) == JM_EPERM ? "; use sudo" : "");
	put = write(fd, text, n);
	if (put < 0)
		number = errno;
	close(fd);
	if (put == (ssize_t)n)
		return 0;
	return jm_err_set(err, number ? code_of(number) : JM_EIO, "Cannot write '%s' to %s: %s.",
		text, path, number ? strerror(number) : "only a part of it was taken");
}
