/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin_file.h"
#include "base/files/plugin_paths.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The program's folder without the last slash; false if it is unknown or cannot be trusted. */
static bool program_folder(char *ret, size_t size)
{
	ssize_t n = getauxval(AT_SECURE) ? 0 : readlink("/proc/self/exe", ret, size - 1);
	char *slash;

	ret[n > 0 ? n : 0] = 0;
	slash = strrchr(ret, '/');
	if (slash)
		*slash = 0;
	return slash;
}

/* The folder of the shared object or program that contains this code. */
static bool own_folder(char *ret, size_t size)
{
	static const char here = 0;
	Dl_info info;
	char *slash;

	if (getauxval(AT_SECURE) || !dladdr(&here, &info) || !info.dli_fname)
		return false;
	snprintf(ret, size, "%s", info.dli_fname);
	slash = strrchr(ret, '/');
	if (slash)
		*slash = 0;
	return slash;
}

void jm_plugin_paths(
	const struct jm_plugin_kind *kind, const char *name, char path[JM_PLUGIN_PATHS][4096])
{
	/* relative to the program's folder, or to that of the library that contains this code */
	const char *beside[] = {kind->folder, JM_PLUGINS_FROM_PROGRAM, "joulemark"};
	const char *named = secure_getenv(kind->variable);
	char folder[3072];

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

int jm_plugin_load(const struct jm_plugin_kind *kind, char path[JM_PLUGIN_PATHS][4096],
	void **ret_library, struct jm_err *err)
{
	for (int i = 0; i < JM_PLUGIN_PATHS; i++) {
		if (!*path[i] || access(path[i], F_OK))
			continue;
		/* it stays loaded: threads of the libraries it needs still use their code */
		*ret_library = dlopen(path[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		return *ret_library ? 0
				    : jm_err_set(err, JM_ENOSUP,
					      "%s %s cannot be loaded: %s. Install the library it "
					      "names.",
					      kind->title, path[i], dlerror());
	}
	return 0;
}
