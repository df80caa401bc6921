/* SPDX-License-Identifier: Apache-2.0 */
/* In place of yaml.c where the headers of libyaml are missing. */
#include "yaml.h"

int jm_yaml_parse(const char *text, size_t n, const char *file, struct jm_yaml_document **ret,
	struct jm_err *err)
{
	(void)text;
	(void)n;
	(void)ret;
	return jm_err_set(err, JM_ENOSUP,
		"The plan %s cannot be read, because joulemark was built without the headers of "
		"libyaml; install libyaml-dev and build again.",
		file);
}
