/* SPDX-License-Identifier: Apache-2.0 */
#include "work_output.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/output.h"

static bool is_stream(const char *path)
{
	struct stat st;

	return !strcmp(path, "-") ||
	       (!stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

/* The parent keeps its own output from cases where several, or a record, would be mixed: their
 * standard output is /dev/null, which nobody has named. */
static bool is_closed(const char *path)
{
	struct stat to, null;

	if (!strcmp(path, "/dev/null"))
		return false;
	return !(strcmp(path, "-") ? stat(path, &to) : fstat(STDOUT_FILENO, &to)) &&
	       S_ISCHR(to.st_mode) && !stat("/dev/null", &null) && to.st_rdev == null.st_rdev;
}

int jm_work_output(const struct jm_work *work, const char *path, char *name, struct jm_err *err)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const char *dot = strrchr(base, '.');
	int stem = (int)(dot && dot != base ? (size_t)(dot - path) : strlen(path)), n;

	if (!*work->run || is_stream(path))
		n = snprintf(name, PATH_MAX, "%s", path);
	else
		n = snprintf(name, PATH_MAX, "%.*s.%s%s", stem, path, work->run, path + stem);
	if (n >= PATH_MAX)
		return jm_err_set(err, JM_EUSAGE, "The name '%s' is too long.", path);
	if (is_closed(path))
		return jm_err_set(err, JM_EUSAGE,
			"The list would be lost on %s, which is /dev/null here: with --json -, or "
			"of several cases, a run has no standard output of its own; name a file.",
			path);
	return jm_output_try(name, err);
}

int jm_work_output_apart(const char *name, const char *option, const char *other,
	const char *other_option, struct jm_err *err)
{
	if (!name || !other || is_stream(name) || !jm_output_same(name, other))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--%s and --%s name one file, %s; give each a file of its own.", option,
		other_option, name);
}
