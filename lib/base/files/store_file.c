/* SPDX-License-Identifier: Apache-2.0 */
#include "store_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SQLITE_MAGIC "SQLite format 3"

bool jm_store_is_fd(int fd)
{
	char head[sizeof(SQLITE_MAGIC)] = "";

	return pread(fd, head, sizeof(head), 0) == sizeof(head) &&
	       !memcmp(head, SQLITE_MAGIC, sizeof(head));
}

bool jm_store_is(const char *path)
{
	struct stat st;
	int fd = !stat(path, &st) && S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	bool is = fd >= 0 && jm_store_is_fd(fd);

	if (fd >= 0)
		close(fd);
	return is;
}
