/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a YAML document, each of which knows its line. Every scalar is text: what reads it
 * decides by its own table whether it is a number, so that `no`, `1e3` and `012` are what was
 * written.
 */
#ifndef JM_YAML_NODE_H
#define JM_YAML_NODE_H

#include "joulemark.h"

#define JM_YAML_DEPTH 32   /* of lists and mappings within one another */
#define JM_YAML_KEYS  1000 /* of one mapping */

enum jm_yaml_kind { JM_YAML_SCALAR, JM_YAML_LIST, JM_YAML_MAP };

struct jm_yaml {
	enum jm_yaml_kind kind;
	const char *file; /* as it was named */
	int line;	  /* from 1 */
	bool plain;	  /* SCALAR: without quotes */
	char *text;	  /* SCALAR */
	int n;
	struct jm_yaml *
		*item;	      /* LIST: elements; MAP: values; an alias is its anchor's node again */
	struct jm_yaml **key; /* MAP: scalars */
};

struct jm_yaml_document; /* owns the nodes */

/* An empty document is an empty mapping. */
const struct jm_yaml *jm_yaml_root(const struct jm_yaml_document *d);
void jm_yaml_free(struct jm_yaml_document *d);

/* The value of a key; NULL = the mapping lacks it, or the node is no mapping. */
const struct jm_yaml *jm_yaml_get(const struct jm_yaml *map, const char *key);
/* A plain scalar that is empty, ~ or null. */
bool jm_yaml_is_null(const struct jm_yaml *node);
/* Sets "FILE:LINE: sentence"; returns the code. */
int jm_yaml_fail(const struct jm_yaml *node, int code, struct jm_err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
