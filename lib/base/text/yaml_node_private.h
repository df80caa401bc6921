/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of base: making the nodes of a YAML document. */
#ifndef JM_YAML_NODE_PRIVATE_H
#define JM_YAML_NODE_PRIVATE_H

#include "yaml_node.h"

struct jm_yaml_document {
	char *file;
	struct jm_yaml *root;
	struct jm_yaml **node; /* all of them */
	int n, room;
};

struct jm_yaml_document *jm__yaml_document(const char *file);
/* NULL = out of memory */
struct jm_yaml *jm__yaml_node(struct jm_yaml_document *d, enum jm_yaml_kind kind, int line);
/* key: NULL for a list. JM_EFORMAT: a key that is no text, or is there already. */
int jm__yaml_add(struct jm_yaml_document *d, struct jm_yaml *node, struct jm_yaml *key,
	struct jm_yaml *value, struct jm_err *err);
/* Replaces the key << by those keys of its mapping, or mappings, which are not given themselves. */
int jm__yaml_merge(struct jm_yaml_document *d, struct jm_yaml *map, struct jm_err *err);

#endif
