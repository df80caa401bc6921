/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML files as trees of nodes.
 *
 * One document per file. Anchors, aliases and merge keys (<<) are followed; a key that is given
 * twice, a tag and an alias inside its own anchor are refused. Built without libyaml, every call
 * says so (JM_ENOSUP).
 */
#ifndef JM_YAML_H
#define JM_YAML_H

#include "yaml_node.h"

#define JM_YAML_BYTES_MOST (4 << 20) /* of a file */

/* file: names the text in sentences. JM_EFORMAT: no YAML, or what is refused. */
int jm_yaml_parse(const char *text, size_t n, const char *file, struct jm_yaml_document **ret,
	struct jm_err *err);

#endif
