/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin_file.h"
#include "base/files/plugin_paths.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

/* False: it has no folder. */
static bool cut_name(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = 0;
	return slash;
}

/* The shared object or program that contains this code; NULL = unknown. */
static const char *own_file(void)
{
	static const char here = 0;
	Dl_info info;

	return dladdr(&here, &info) ? info.dli_fname : NULL;
}

/* The program's folder without the last slash; false if it is unknown or cannot be trusted. */
static bool program_folder(char *ret, size_t size)
{
	ssize_t n = getauxval(AT_SECURE) ? 0 : readlink("/proc/self/exe", ret, size - 1);

	ret[n > 0 ? n : 0] = 0;
	return cut_name(ret);
}

static bool own_folder(char *ret, size_t size)
{
	const char *file = getauxval(AT_SECURE) ? NULL : own_file();

	if (!file)
		return false;
	snprintf(ret, size, "%s", file);
	return cut_name(ret);
}

void jm_plugin_paths(
	const struct jm_plugin_kind *kind, const char *name, char path[JM_PLUGIN_PATHS][4096])
{
	/* relative to the program's folder, or to that of the library that contains this code */
	const char *beside[] = {kind->folder, JM_PLUGINS_FROM_PROGRAM, "joulemark"};
	const char *named = secure_getenv(kind->variable);
	char folder[3072];

	memset(path, 0, JM_PLUGIN_PATHS * sizeof(path[0]));
	if (named) {
		snprintf(path[0], sizeof(path[0]), "%.4000s/%s.so", named, name);
	} else {
		for (int i = 0; i < JM_PLUGIN_PATHS - 1; i++)
			if (i < 2 ? program_folder(folder, sizeof(folder))
				  : own_folder(folder, sizeof(folder)))
				snprintf(path[i], sizeof(path[i]), "%s/%s/%s.so", folder, beside[i],
					name);
	}
	snprintf(path[JM_PLUGIN_PATHS - 1], sizeof(path[0]), "%s/%s.so", JM_PLUGIN_DIR, name);
}

/* The files whose code this process runs already: the program, and what contains this code. */
static int own_files(struct stat ret[2])
{
	const char *file = own_file();
	int n = !stat("/proc/self/exe", &ret[0]);

	if (file && strchr(file, '/'))
		n += !stat(file, &ret[n]);
	return n;
}

/* Whoever can replace this file can also replace what this process runs already: it belongs to
 * root, to us or to an owner of own files, and all users may write it only where they may write
 * those. */
static bool is_kept_as_own(const char *path)
{
	struct stat st, own[2];
	int n = own_files(own);
	bool by_owner, by_all;

	if (stat(path, &st))
		return false;
	by_owner = !st.st_uid || st.st_uid == geteuid();
	by_all = !(st.st_mode & S_IWOTH);
	for (int i = 0; i < n; i++) {
		by_owner |= st.st_uid == own[i].st_uid;
		by_all |= (own[i].st_mode & S_IWOTH) != 0;
	}
	return by_owner && by_all;
}

/* A program that was copied into a folder such as /tmp finds there what anybody put beside it. */
static bool is_trusted(const char *path)
{
	char folder[4096];

	snprintf(folder, sizeof(folder), "%s", path);
	cut_name(folder);
	return is_kept_as_own(path) && is_kept_as_own(folder);
}

/* found: it was looked for beside the program or library; nobody named it. */
static int check_file(const struct jm_plugin_kind *kind, const char *path, const struct stat *st,
	bool found, struct jm_err *err)
{
	if (!S_ISREG(st->st_mode))
		return jm_err_set(err, JM_ENOSUP,
			"%s %s is not loaded, because it is not a regular file; remove it, or name "
			"another folder by %s.",
			kind->title, path, kind->variable);
	if (found && !is_trusted(path))
		return jm_err_set(err, JM_ENOSUP,
			"%s %s is not loaded, because another user could have put it there; move "
			"the program to a folder that only you can write, or name the folder of "
			"the plug-in by %s.",
			kind->title, path, kind->variable);
	return 0;
}

static int load(
	const struct jm_plugin_kind *kind, const char *path, void **ret_entry, struct jm_err *err)
{
	/* it stays loaded: threads of the libraries it needs still use their code */
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (!library)
		return jm_err_set(err, JM_ENOSUP,
			"%s %s cannot be loaded: %s. Install the library it names.", kind->title,
			path, dlerror());
	*ret_entry = dlsym(library, kind->entry);
	if (!*ret_entry)
		return jm_err_set(err, JM_EFORMAT,
			"%s %s cannot be used, because it exports no %s.", kind->title, path,
			kind->entry);
	return 0;
}

int jm_plugin_entry(const struct jm_plugin_kind *kind, const char *name,
	char path[JM_PLUGIN_PATHS][4096], void **ret_entry, struct jm_err *err)
{
	bool named = secure_getenv(kind->variable);

	*ret_entry = NULL;
	jm_plugin_paths(kind, name, path);
	for (int i = 0; i < JM_PLUGIN_PATHS; i++) {
		struct stat st;
		int rc;

		if (!*path[i] || stat(path[i], &st))
			continue;
		rc = check_file(kind, path[i], &st, !named && i < JM_PLUGIN_PATHS - 1, err);
		return rc ? rc : load(kind, path[i], ret_entry, err);
	}
	return 0;
}
