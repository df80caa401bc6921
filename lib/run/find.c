/* SPDX-License-Identifier: Apache-2.0 */
/* Members by name, and the defaults of their optional pointers. */
#include "run/registry.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MEMBERS 64

/* Index of the name among n, else an error with the nearest one. */
static int find(
	const char *kind, const char *name, const char *const *names, int n, struct jm_err *err)
{
	const char *near;

	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return i;
	near = jm_did_you_mean(name, names, (size_t)n);
	if (near)
		return jm_err_set(err, JM_EUSAGE, "There is no %s '%s'; did you mean '%s'?", kind,
			name, near);
	return jm_err_set(err, JM_EUSAGE,
		"There is no %s '%s'; 'joulemark list' shows what there is.", kind, name);
}

#define DEFINE_FIND(kind)                                                                          \
	const struct jm_##kind *jm_##kind##_find(const char *name, struct jm_err *err)             \
	{                                                                                          \
		const char *names[MAX_MEMBERS];                                                    \
		int n = 0, i;                                                                      \
                                                                                                   \
		for (; jm_##kind##s[n] && n < MAX_MEMBERS; n++)                                    \
			names[n] = jm_##kind##s[n]->name;                                          \
		i = find(#kind, name, names, n, err);                                              \
		return i < 0 ? NULL : jm_##kind##s[i];                                             \
	}

DEFINE_FIND(source)
DEFINE_FIND(control)
DEFINE_FIND(workload)

size_t jm_source_length(const char *list)
{
	size_t n = strcspn(list, ",");

	while (list[n] && isdigit((unsigned char)list[n + 1]))
		n += 1 + strcspn(list + n + 1, ",");
	return n;
}

int jm_knobs_add(struct jm_knobs *set, const struct jm_knob *knob, struct jm_err *err)
{
	struct jm_knob *grown = reallocarray(set->knob, (size_t)set->n + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for knob %s of %s.", knob->name,
			knob->device);
	set->knob = grown;
	grown[set->n] = *knob;
	return set->n++;
}

void jm_knobs_done(struct jm_knobs *set)
{
	free(set->knob);
	*set = (struct jm_knobs){0};
}
