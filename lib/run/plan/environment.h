/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables of a case, {name: value}, as a process takes them. */
#ifndef JM_ENVIRONMENT_H
#define JM_ENVIRONMENT_H

#include <jansson.h>

/* "NAME=value" of each variable, and `more`, which is such a text, NULL-terminated; NULL = memory
 * ran out. Both may be NULL. */
char **jm_environment_new(const json_t *variables, const char *more);
void jm_environment_free(char **env); /* takes NULL */

#endif
