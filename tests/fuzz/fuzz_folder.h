/* SPDX-License-Identifier: Apache-2.0 */
/* A folder in memory for the files of a fuzz target, removed when the target ends by itself. */
#ifndef JM_FUZZ_FOLDER_H
#define JM_FUZZ_FOLDER_H

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static char fuzz_folder_path[] = "/dev/shm/joulemark-fuzz-XXXXXX";

static void fuzz_folder_remove(void)
{
	DIR *d = opendir(fuzz_folder_path);
	const struct dirent *entry;

	while (d && (entry = readdir(d)))
		unlinkat(dirfd(d), entry->d_name, 0);
	if (d)
		closedir(d);
	rmdir(fuzz_folder_path);
}

/* Made at the first call. */
static inline const char *fuzz_folder(void)
{
	static int made;

	if (!made && (!mkdtemp(fuzz_folder_path) || atexit(fuzz_folder_remove)))
		abort();
	made = 1;
	return fuzz_folder_path;
}

#endif
