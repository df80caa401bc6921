/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables of a case, {name: value}, as a process takes them. */
#ifndef JM_ENVIRONMENT_H
#define JM_ENVIRONMENT_H

#include <jansson.h>

/* "NAME=value" of each variable, NULL-terminated; NULL = memory ran out. variables: may be NULL. */
char **jm_environment_new(const json_t *variables);
void jm_environment_free(char **env); /* takes NULL */

#endif
