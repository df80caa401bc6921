/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML file as a tree. */
#ifndef JM_YAML_FILE_H
#define JM_YAML_FILE_H

#include "yaml.h"

int jm_yaml_load(const char *path, struct jm_yaml_document **ret, struct jm_err *err);

#endif
