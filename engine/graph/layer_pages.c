/* SPDX-License-Identifier: Apache-2.0 */
#include "layer_pages.h"
#include "layer.h"
#include "layer_private.h"
#include "tensor.h"

#include <math.h>

#define TOKEN "token"

struct jm_flat jm_graph_flat(struct jm_graph *g, const struct jm_step_shape *shape)
{
	int64_t tokens = shape->tokens, requests = shape->requests;
	struct jm_tensor *given = jm_graph_input(g, "ids", JM_I32, 2, DIMS(1, tokens));
	struct jm_tensor *token =
		jm_graph_tensor(g, JM_CLASS_STATE, JM_I32, 1, DIMS(requests), TOKEN);
	struct jm_tensor *ids =
		jm_graph_tensor(g, JM_CLASS_ACT, JM_I32, 2, DIMS(1, tokens), "ids.made");

	jm_graph_node(g, JM_OP_MADE_IDS, OPS(given, token), &ids);
	return (struct jm_flat){
		.shape = *shape,
		.ids = ids,
		.position = jm_graph_input(g, "position", JM_I32, 1, DIMS(tokens)),
		.request = jm_graph_input(g, "request", JM_I32, 1, DIMS(tokens)),
		.page = jm_graph_tensor(
			g, JM_CLASS_STATE, JM_I32, 2, DIMS(requests, shape->pages_each), "page"),
		.last = jm_graph_input(g, "last", JM_I32, 1, DIMS(requests)),
	};
}

static struct jm_tensor *paged_node(struct jm_graph *g, enum jm_op op, struct jm_tensor *const *in,
	struct jm_tensor *const *out, const union jm_attr *attr)
{
	struct jm_node *n = jm_graph_node(g, op, in, out);

	if (!n)
		return NULL;
	n->attr = *attr;
	return out[0];
}

struct jm_tensor *jm_graph_attention_pages(struct jm_graph *g, struct jm_tensor *qkv,
	const struct jm_flat *flat, int heads, int kv_heads, struct jm_rotary rotary,
	bool wanted_alone)
{
	struct jm_tensor *keys, *values, *q, *y, *position = flat->position;
	struct jm_tensor *request = flat->request;
	union jm_attr attr = {.pages = {.heads = heads, .kv_heads = kv_heads, .rotary = rotary}};
	int64_t head, tokens = flat->shape.tokens;
	const int64_t *cache;
	enum jm_dtype kept = flat->shape.narrow_cache ? JM_F8E4M3 : g->compute;

	if (g->err.code || !jm_layer_fits(g, jm_tensor_rows(qkv) == tokens, "attention-pages", qkv))
		return NULL;
	head = jm_tensor_width(qkv) / (heads + 2 * kv_heads);
	attr.pages.scale = 1 / sqrt((double)head);
	cache = DIMS(flat->shape.pages, JM_PAGE_TOKENS, kv_heads, head);
	keys = jm_graph_tensor(g, JM_CLASS_STATE, kept, 4, cache, "cache.keys");
	values = jm_graph_tensor(g, JM_CLASS_STATE, kept, 4, cache, "cache.values");
	q = jm_graph_tensor(g, JM_CLASS_ACT, g->compute, 3, DIMS(1, tokens, heads * head), "q");
	q = paged_node(g, JM_OP_CACHE_WRITE, OPS(qkv, position, request, flat->page, keys, values),
		OPS(q, keys, values), &attr);
	if (wanted_alone) {
		q = jm_graph_rows(g, q, flat->last);
		position = jm_graph_rows(g, position, flat->last);
		request = jm_graph_rows(g, request, flat->last);
	}
	if (!q)
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, g->compute, q->rank, q->dim, "y");
	return paged_node(g, JM_OP_ATTENTION_PAGES,
		OPS(q, position, request, flat->page, keys, values), OPS(y), &attr);
}

struct jm_tensor *jm_graph_rows(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *at)
{
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, at->rank == 1, "rows", at))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, x->type, x->rank == 1 ? 1 : 2,
		DIMS(at->dim[0], jm_tensor_width(x)), "rows");
	jm_graph_node(g, JM_OP_ROWS, OPS(x, at), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_wanted_rows(struct jm_graph *g, struct jm_tensor **target, int64_t most)
{
	struct jm_tensor *at, *wanted, *from = *target;

	if (g->err.code || !jm_layer_fits(g, most <= jm_tensor_count(from), "wanted-rows", from))
		return NULL;
	at = jm_graph_tensor(g, JM_CLASS_ACT, JM_I32, 1, DIMS(most), "wanted.at");
	wanted = jm_graph_tensor(g, JM_CLASS_ACT, JM_I32, 1, DIMS(most), "wanted");
	if (!jm_graph_node(g, JM_OP_WANTED_ROWS, &from, OPS(at, wanted)))
		return NULL;
	*target = wanted;
	return at;
}

struct jm_tensor *jm_graph_sample(
	struct jm_graph *g, struct jm_tensor *logits, int64_t classes, bool draws)
{
	struct jm_tensor *token = jm_graph_find(g, TOKEN), *rule = NULL, *draw = NULL;
	int64_t rows;
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g, logits->rank == 2, "sample", logits))
		return NULL;
	rows = logits->dim[0];
	if (draws) {
		rule = jm_graph_input(g, "rule", JM_F32, 2, DIMS(rows, 3));
		draw = jm_graph_input(g, "draw", JM_I32, 2, DIMS(rows, 2));
	}
	n = jm_graph_node(g, JM_OP_SAMPLE, OPS(logits, rule, draw), OPS(token));
	if (n)
		n->attr.xent.classes = classes;
	return token;
}
