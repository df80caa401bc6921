/* SPDX-License-Identifier: Apache-2.0 */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *load(const struct jm_library *l, struct jm_err *err)
{
	const char *given = l->variable ? secure_getenv(l->variable) : NULL;
	const char *names[] = {l->names[0], l->names[1], l->names[2], l->names[3]};
	char reason[300] = "it is not installed";
	void *found = NULL;

	if (given && *given) {
		names[0] = given;
		names[1] = NULL;
	}
	if (!given && l->driver && access(l->driver, F_OK)) {
		jm_err_set(err, JM_ENOSUP,
			"%s is not loaded, because the kernel's driver that it needs is not (%s is "
			"missing).",
			l->title, l->driver);
		return NULL;
	}
	for (int i = 0; i < 4 && names[i] && !found; i++) {
		found = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		if (!found && !i)
			snprintf(reason, sizeof(reason), "%s", dlerror());
	}
	if (!found)
		jm_err_set(
			err, JM_ENOSUP, "%s cannot be loaded (%s); %s.", l->title, reason, l->mend);
	return found;
}

/* A pointer to a function comes as a pointer to data; POSIX promises that they fit. */
int jm_library_open(const struct jm_library *l, void *calls, struct jm_err *err)
{
	void *handle = load(l, err);

	if (!handle)
		return JM_ENOSUP;
	for (size_t i = 0; i < l->n_symbols; i++) {
		void *found = dlsym(handle, l->symbols[i].name);

		if (!found && i >= l->n_symbols - l->n_optional)
			continue;
		if (!found)
			return jm_err_set(err, JM_EVERSION,
				"%s has no function %s, so this version cannot be used; %s.",
				l->title, l->symbols[i].name, l->mend);
		memcpy((char *)calls + l->symbols[i].offset, &found, sizeof(found));
	}
	return 0;
}
