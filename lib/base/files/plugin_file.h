/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins: shared objects NAME.so that are opened by name, from the build that the program belongs
 * to, or from where it is installed. */
#ifndef JM_PLUGIN_FILE_H
#define JM_PLUGIN_FILE_H

#include "joulemark.h"

#define JM_PLUGIN_PATHS 4

struct jm_plugin_kind {
	const char *title;    /* "Backend" */
	const char *entry;    /* "jm_backend_entry", a function that each exports */
	const char *folder;   /* of the build, beside the program */
	const char *variable; /* of the environment, which names another folder */
};

/* The paths in the order in which they are tried; "" = none. The last one is never "". */
void jm_plugin_paths(
	const struct jm_plugin_kind *kind, const char *name, char path[JM_PLUGIN_PATHS][4096]);
/*
 * Loads the first of these paths that exists, which stays loaded; *ret_entry is the address of its
 * function kind->entry, or NULL where none exists. A file that cannot be loaded is an error, as
 * one that lacks the function, that is not regular, or that lies beside the program and could be
 * another user's.
 */
int jm_plugin_entry(const struct jm_plugin_kind *kind, const char *name,
	char path[JM_PLUGIN_PATHS][4096], void **ret_entry, struct jm_err *err);

#endif
