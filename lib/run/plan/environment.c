/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables of a case. */
#include "environment.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

char **jm_environment_new(const json_t *variables)
{
	char **env = calloc(json_object_size(variables) + 1, sizeof(*env));
	const char *name;
	json_t *value;
	size_t n = 0;

	json_object_foreach((json_t *)(uintptr_t)variables, name, value)
	{
		if (env && asprintf(&env[n], "%s=%s", name, json_string_value(value)) < 0) {
			env[n] = NULL;
			jm_environment_free(env);
			env = NULL;
		}
		n++;
	}
	return env;
}

void jm_environment_free(char **env)
{
	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free((void *)env);
}
