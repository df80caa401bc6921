/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables of a case. */
#include "environment.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char **jm_environment_new(const json_t *variables, const char *more)
{
	char **env = calloc(json_object_size(variables) + 2, sizeof(*env));
	const char *name;
	bool failed = !env;
	json_t *value;
	size_t n = 0;

	json_object_foreach((json_t *)(uintptr_t)variables, name, value)
	{
		failed = failed || asprintf(&env[n], "%s=%s", name, json_string_value(value)) < 0;
		if (failed)
			break;
		n++;
	}
	if (!failed && more) {
		env[n] = strdup(more);
		failed = !env[n++];
	}
	if (!failed)
		return env;
	if (env)
		env[n] = NULL;
	jm_environment_free(env);
	return NULL;
}

void jm_environment_free(char **env)
{
	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free((void *)env);
}
