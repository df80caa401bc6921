/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a YAML document: owning, finding, merging. */
#include "yaml_node_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jm_yaml_document *jm__yaml_document(const char *file)
{
	struct jm_yaml_document *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->file = strdup(file);
	if (d->file)
		return d;
	free(d);
	return NULL;
}

struct jm_yaml *jm__yaml_node(struct jm_yaml_document *d, enum jm_yaml_kind kind, int line)
{
	struct jm_yaml *node;

	if (d->n == d->room) {
		int room = d->room ? 2 * d->room : 64;
		struct jm_yaml **grown = reallocarray(d->node, (size_t)room, sizeof(*grown));

		if (!grown)
			return NULL;
		d->node = grown;
		d->room = room;
	}
	node = calloc(1, sizeof(*node));
	if (!node)
		return NULL;
	*node = (struct jm_yaml){.kind = kind, .file = d->file, .line = line};
	d->node[d->n++] = node;
	return node;
}

/* Room doubles at each power of two. */
static struct jm_yaml **grow(struct jm_yaml **list, int n)
{
	if (n & (n - 1))
		return list;
	return reallocarray(list, n ? 2 * (size_t)n : 1, sizeof(*list));
}

static int append(struct jm_yaml_document *d, struct jm_yaml *node, struct jm_yaml *key,
	struct jm_yaml *value, struct jm_err *err)
{
	struct jm_yaml **items = grow(node->item, node->n), **keys = NULL;

	if (items)
		node->item = items;
	if (items && node->kind == JM_YAML_MAP) {
		keys = grow(node->key, node->n);
		if (keys)
			node->key = keys;
	}
	if (!items || (node->kind == JM_YAML_MAP && !keys))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the file %s.", d->file);
	items[node->n] = value;
	if (keys)
		keys[node->n] = key;
	node->n++;
	return 0;
}

int jm__yaml_add(struct jm_yaml_document *d, struct jm_yaml *node, struct jm_yaml *key,
	struct jm_yaml *value, struct jm_err *err)
{
	if (node->kind == JM_YAML_LIST)
		return append(d, node, NULL, value, err);
	if (key->kind != JM_YAML_SCALAR)
		return jm_yaml_fail(key, JM_EUSAGE, err, "A key must be a text.");
	if (jm_yaml_get(node, key->text))
		return jm_yaml_fail(key, JM_EUSAGE, err,
			"The key '%.80s' is given twice in one mapping; write its values in one "
			"list, or remove one of them.",
			key->text);
	if (node->n >= JM_YAML_KEYS)
		return jm_yaml_fail(
			key, JM_EUSAGE, err, "A mapping has more than %d keys.", JM_YAML_KEYS);
	return append(d, node, key, value, err);
}

static void remove_pair(struct jm_yaml *map, int i)
{
	map->n--;
	for (; i < map->n; i++) {
		map->item[i] = map->item[i + 1];
		map->key[i] = map->key[i + 1];
	}
}

static int merge_one(struct jm_yaml_document *d, struct jm_yaml *map, const struct jm_yaml *from,
	struct jm_err *err)
{
	int rc = 0;

	if (from->kind != JM_YAML_MAP)
		return jm_yaml_fail(from, JM_EUSAGE, err,
			"The value of << must be a mapping, or a list of mappings.");
	for (int i = 0; i < from->n && !rc; i++)
		if (!jm_yaml_get(map, from->key[i]->text))
			rc = jm__yaml_add(d, map, from->key[i], from->item[i], err);
	return rc;
}

int jm__yaml_merge(struct jm_yaml_document *d, struct jm_yaml *map, struct jm_err *err)
{
	const struct jm_yaml *from = NULL;
	int rc = 0;

	for (int i = 0; i < map->n && !from; i++) {
		if (strcmp(map->key[i]->text, "<<") || !map->key[i]->plain)
			continue;
		from = map->item[i];
		remove_pair(map, i);
	}
	if (!from || from->kind != JM_YAML_LIST)
		return from ? merge_one(d, map, from, err) : 0;
	for (int i = 0; i < from->n && !rc; i++)
		rc = merge_one(d, map, from->item[i], err);
	return rc;
}

const struct jm_yaml *jm_yaml_root(const struct jm_yaml_document *d)
{
	return d->root;
}

void jm_yaml_free(struct jm_yaml_document *d)
{
	if (!d)
		return;
	for (int i = 0; i < d->n; i++) {
		free(d->node[i]->text);
		free((void *)d->node[i]->item);
		free((void *)d->node[i]->key);
		free(d->node[i]);
	}
	free((void *)d->node);
	free(d->file);
	free(d);
}

const struct jm_yaml *jm_yaml_get(const struct jm_yaml *map, const char *key)
{
	for (int i = 0; map->kind == JM_YAML_MAP && i < map->n; i++)
		if (!strcmp(map->key[i]->text, key))
			return map->item[i];
	return NULL;
}

bool jm_yaml_is_null(const struct jm_yaml *node)
{
	return node->kind == JM_YAML_SCALAR && node->plain &&
	       (!*node->text || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

int jm_yaml_fail(const struct jm_yaml *node, int code, struct jm_err *err, const char *fmt, ...)
{
	char text[420];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return jm_err_set(err, code, "%s:%d: %s", node->file, node->line, text);
}
