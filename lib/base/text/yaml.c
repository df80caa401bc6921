/* SPDX-License-Identifier: Apache-2.0 */
/* From the events of libyaml to a tree. */
#include "yaml.h"
#include "yaml_node_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct anchor {
	char *name;
	struct jm_yaml *node;
};

struct builder {
	yaml_parser_t parser;
	struct jm_yaml_document *d;
	struct anchor *anchor;
	int n_anchors, depth;
	struct jm_err *err;
};

/* libyaml counts lines from 0. */
static int fail_at(struct builder *b, size_t line, const char *what)
{
	return jm_err_set(b->err, JM_EUSAGE, "%s:%zu: %s.", b->d->file, line + 1, what);
}

static int no_memory(struct builder *b)
{
	return jm_err_set(b->err, JM_ENOMEM, "Out of memory for the file %s.", b->d->file);
}

static int next_event(struct builder *b, yaml_event_t *event)
{
	const char *problem;

	if (yaml_parser_parse(&b->parser, event))
		return 0;
	problem = b->parser.problem;
	if (b->parser.error == YAML_MEMORY_ERROR)
		return no_memory(b);
	if (b->parser.error == YAML_READER_ERROR)
		return jm_err_set(b->err, JM_EUSAGE,
			"The file %s is not text in UTF-8: %s at byte %zu.", b->d->file,
			problem ? problem : "unreadable", b->parser.problem_offset);
	return jm_err_set(b->err, JM_EUSAGE, "%s:%zu: This is not YAML: %s%s%s.", b->d->file,
		b->parser.problem_mark.line + 1, b->parser.context ? b->parser.context : "",
		b->parser.context ? ", " : "", problem ? problem : "it cannot be parsed");
}

static struct jm_yaml *new_node(struct builder *b, enum jm_yaml_kind kind, const yaml_event_t *e)
{
	struct jm_yaml *node = jm__yaml_node(b->d, kind, (int)e->start_mark.line + 1);

	if (!node)
		no_memory(b);
	return node;
}

static int keep_anchor(struct builder *b, const yaml_char_t *name, struct jm_yaml *node)
{
	struct anchor *grown;

	if (!name)
		return 0;
	grown = reallocarray(b->anchor, (size_t)b->n_anchors + 1, sizeof(*grown));
	if (!grown)
		return no_memory(b);
	b->anchor = grown;
	grown[b->n_anchors] = (struct anchor){strdup((const char *)name), node};
	return grown[b->n_anchors++].name ? 0 : no_memory(b);
}

/* The last one of that name: YAML lets an anchor be set again. */
static int find_anchor(struct builder *b, const yaml_event_t *e, struct jm_yaml **ret)
{
	const char *name = (const char *)e->data.alias.anchor;

	for (int i = b->n_anchors - 1; i >= 0; i--) {
		if (!strcmp(b->anchor[i].name, name)) {
			*ret = b->anchor[i].node;
			return 0;
		}
	}
	return jm_err_set(b->err, JM_EUSAGE,
		"%s:%zu: The alias *%s has no anchor &%s before it, or is inside the value of that "
		"anchor.",
		b->d->file, e->start_mark.line + 1, name, name);
}

static int check_tag(struct builder *b, const yaml_event_t *e, const yaml_char_t *tag)
{
	if (!tag)
		return 0;
	return jm_err_set(b->err, JM_EUSAGE,
		"%s:%zu: The tag %s is not used here: each value is read as its key demands; "
		"remove the tag.",
		b->d->file, e->start_mark.line + 1, (const char *)tag);
}

static int build(struct builder *b, yaml_event_t *e, struct jm_yaml **ret);

static int build_scalar(struct builder *b, const yaml_event_t *e, struct jm_yaml **ret)
{
	const char *text = (const char *)e->data.scalar.value;
	size_t n = e->data.scalar.length;
	int rc = check_tag(b, e, e->data.scalar.tag);

	if (!rc && memchr(text, '\0', n))
		rc = fail_at(b, e->start_mark.line, "A text contains a NUL character");
	if (rc)
		return rc;
	*ret = new_node(b, JM_YAML_SCALAR, e);
	if (!*ret)
		return JM_ENOMEM;
	(*ret)->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	(*ret)->text = strndup(text, n);
	if (!(*ret)->text)
		return no_memory(b);
	return keep_anchor(b, e->data.scalar.anchor, *ret);
}

/* Elements up to the end event; those of a mapping alternate between key and value. */
static int build_members(struct builder *b, yaml_event_type_t end, struct jm_yaml *node)
{
	struct jm_yaml *key = NULL, *one = NULL;
	int rc = 0;

	while (!rc) {
		yaml_event_t e;
		bool last;

		rc = next_event(b, &e);
		if (rc)
			break;
		last = e.type == end;
		if (!last)
			rc = build(b, &e, &one);
		yaml_event_delete(&e);
		if (last)
			break;
		if (!rc && node->kind == JM_YAML_MAP && !key) {
			key = one;
			continue;
		}
		if (!rc)
			rc = jm__yaml_add(b->d, node, key, one, b->err);
		key = NULL;
	}
	return rc;
}

static int build_list(struct builder *b, const yaml_event_t *e, struct jm_yaml **ret)
{
	bool map = e->type == YAML_MAPPING_START_EVENT;
	int rc = check_tag(b, e, map ? e->data.mapping_start.tag : e->data.sequence_start.tag);

	if (!rc && b->depth >= JM_YAML_DEPTH)
		rc = fail_at(b, e->start_mark.line, "Lists and mappings are nested too deeply");
	if (rc)
		return rc;
	*ret = new_node(b, map ? JM_YAML_MAP : JM_YAML_LIST, e);
	if (!*ret)
		return JM_ENOMEM;
	b->depth++;
	rc = build_members(b, map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT, *ret);
	b->depth--;
	if (!rc && map)
		rc = jm__yaml_merge(b->d, *ret, b->err);
	return rc ? rc
		  : keep_anchor(b,
			    map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor,
			    *ret);
}

static int build(struct builder *b, yaml_event_t *e, struct jm_yaml **ret)
{
	switch (e->type) {
	case YAML_ALIAS_EVENT:
		return find_anchor(b, e, ret);
	case YAML_SCALAR_EVENT:
		return build_scalar(b, e, ret);
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		return build_list(b, e, ret);
	default:
		return fail_at(
			b, e->start_mark.line, "A text, a list or a mapping is expected here");
	}
}

/* Stream start, document start, the root, document end, stream end. */
static int build_document(struct builder *b)
{
	bool ended = false;
	int rc = 0;

	while (!rc && !ended) {
		yaml_event_t e;

		rc = next_event(b, &e);
		if (rc)
			break;
		if (e.type == YAML_STREAM_END_EVENT)
			ended = true;
		else if (e.type == YAML_DOCUMENT_START_EVENT && b->d->root)
			rc = fail_at(b, e.start_mark.line,
				"A second document begins here; a plan is one document");
		else if (e.type != YAML_STREAM_START_EVENT && e.type != YAML_DOCUMENT_START_EVENT &&
			 e.type != YAML_DOCUMENT_END_EVENT)
			rc = build(b, &e, &b->d->root);
		yaml_event_delete(&e);
	}
	if (!rc && !b->d->root)
		b->d->root = jm__yaml_node(b->d, JM_YAML_MAP, 1);
	return rc || b->d->root ? rc : no_memory(b);
}

int jm_yaml_parse(const char *text, size_t n, const char *file, struct jm_yaml_document **ret,
	struct jm_err *err)
{
	struct builder b = {.d = jm__yaml_document(file), .err = err};
	int rc;

	if (!b.d || !yaml_parser_initialize(&b.parser)) {
		jm_yaml_free(b.d);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the file %s.", file);
	}
	yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, n);
	rc = build_document(&b);
	yaml_parser_delete(&b.parser);
	for (int i = 0; i < b.n_anchors; i++)
		free(b.anchor[i].name);
	free(b.anchor);
	if (rc)
		jm_yaml_free(b.d);
	else
		*ret = b.d;
	return rc;
}
