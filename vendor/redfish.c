/* SPDX-License-Identifier: Apache-2.0 */
#include "redfish.h"

#include <string.h>

const char *jm_redfish_link(const json_t *resource, const char *key)
{
	return json_string_value(json_object_get(json_object_get(resource, key), "@odata.id"));
}

int jm_redfish_each_chassis(struct jm_https *https, const char *wanted, jm_redfish_fn *fn,
	void *arg, struct jm_err *err)
{
	json_t *all = jm_https_get_json(https, "/redfish/v1/Chassis", err);
	const json_t *member;
	bool over = false;
	size_t i;
	int n = 0;

	if (!all)
		return err->code;
	json_array_foreach(json_object_get(all, "Members"), i, member)
	{
		const char *path = json_string_value(json_object_get(member, "@odata.id"));
		const char *id = path ? strrchr(path, '/') : NULL;

		if (over || !id || (wanted && strcmp(id + 1, wanted) != 0))
			continue;
		over = fn(arg, path, id + 1) || ++n == JM_REDFISH_CHASSIS;
	}
	json_decref(all);
	return 0;
}
