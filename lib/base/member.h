/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members: sources, controls, workloads, models and transports, each a const struct with a name in
 * a generated, NULL-terminated table (see meson.build), and those that were not built in, with the
 * reason.
 */
#ifndef JM_MEMBER_H
#define JM_MEMBER_H

#include "joulemark.h"

#define JM_MEMBERS_MAX 64

struct jm_absent {
	const char *kind, *name, *reason;
};
/* Each ends with a row of NULL. */
extern const char jm_bindir[]; /* where the programs of this build are installed */
extern const struct jm_absent jm_absent_sources[], jm_absent_controls[], jm_absent_workloads[],
	jm_absent_models[], jm_absent_transports[], jm_absent_picture_formats[],
	jm_absent_data_formats[];

/* Index of the name among n, else JM_EUSAGE with the nearest one. */
int jm_member_index(
	const char *kind, const char *name, const char *const *names, int n, struct jm_err *err);

/* Defines jm_KIND_find, which takes a name to the member of the table jm_KINDs. */
#define JM_DEFINE_FIND(kind)                                                                       \
	const struct jm_##kind *jm_##kind##_find(const char *name, struct jm_err *err)             \
	{                                                                                          \
		const char *names[JM_MEMBERS_MAX];                                                 \
		int n = 0, i;                                                                      \
                                                                                                   \
		for (; jm_##kind##s[n] && n < JM_MEMBERS_MAX; n++)                                 \
			names[n] = jm_##kind##s[n]->name;                                          \
		i = jm_member_index(#kind, name, names, n, err);                                   \
		return i < 0 ? NULL : jm_##kind##s[i];                                             \
	}

#endif
