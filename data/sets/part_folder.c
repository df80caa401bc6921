/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/part_folder.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

bool jm_is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool jm_is_folder_in(const char *dir, const char *name, char *path)
{
	return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX && jm_is_folder(path);
}

const char *jm_part_folder(const char *dir, enum jm_part part, char *path)
{
	static const char *const names[2][3] = {{"train"}, {"val", "test"}};

	if (!jm_is_folder_in(dir, "train", path) ||
		(!jm_is_folder_in(dir, "val", path) && !jm_is_folder_in(dir, "test", path)))
		return dir;
	for (int i = 0; names[part][i]; i++)
		if (jm_is_folder_in(dir, names[part][i], path))
			return path;
	return dir;
}
