/* SPDX-License-Identifier: Apache-2.0 */
#include "base/member.h"

#include <string.h>

#include "base/option.h"

int jm_member_index(
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
	return jm_err_set(
		err, JM_EUSAGE, "There is no %s '%s'; 'joulemark list' lists them.", kind, name);
}
