/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of serving: keys and values in pages, rows by number, the next token. */
#include "op_case.h"
#include "engine/graph/layer_pages.h"

#include <math.h>

#define SLOTS 4

/* The operands of both ops on pages. */
struct paged {
	struct jm_tensor *position, *request, *page, *keys, *values;
	int64_t depth;
	union jm_attr attr;
};

/* kept: the type of keys and values. shared: requests have the same pages, which must not be
 * written then. */
static struct paged paged_of(struct kit *k, enum jm_dtype kept, const struct shape *d, bool shared)
{
	int64_t depth = d->c / d->heads / 2 * 2, rows = d->b * d->s,
		each = (rows + SLOTS - 1) / SLOTS;
	const int64_t *cache = DIMS(d->b * each + 3, SLOTS, d->kv_heads, depth);
	struct paged p = {.depth = depth};

	/* the first row is padding; no two rows have the same position */
	p.position = kit_counted(k, -1, 1, DIMS(rows));
	p.request = kit_ids(k, d->b, 1, DIMS(rows));
	p.page = shared ? kit_ids(k, cache[0], 2, DIMS(d->b, each))
			: kit_counted(k, 3, 2, DIMS(d->b, each));
	p.keys = kit_normal(k, kept, 0, 1, 4, cache);
	p.values = kit_normal(k, kept, 0, 1, 4, cache);
	p.attr.pages.heads = d->heads;
	p.attr.pages.kv_heads = d->kv_heads;
	p.attr.pages.rotary.theta = 10000;
	p.attr.pages.scale = 1 / sqrt((double)depth);
	return p;
}

static void write_as(
	struct kit *k, enum jm_dtype c, enum jm_dtype kept, const struct shape *d, double theta)
{
	struct paged p = paged_of(k, kept, d, false);
	int64_t rows = d->b * d->s, heads = d->heads;
	double spread = kept == c ? 1 : 200; /* some exceed 448 */
	struct jm_tensor *x =
		kit_normal(k, c, 0, spread, 3, DIMS(1, rows, (heads + 2 * d->kv_heads) * p.depth));
	struct jm_tensor *q = kit_out(k, c, 3, DIMS(1, rows, heads * p.depth), NULL);
	struct jm_tensor *keys = kit_out(k, kept, 4, p.keys->dim, p.keys);
	struct jm_tensor *values = kit_out(k, kept, 4, p.values->dim, p.values);

	p.attr.pages.rotary.theta = theta;
	backend_node(k, JM_OP_CACHE_WRITE, OPS(x, p.position, p.request, p.page, keys, values),
		OPS(q, keys, values), 0)
		->attr = p.attr;
}

static void cache_write(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	(void)flag;
	write_as(k, t->c, t->c, d, 10000);
}

/* All pairs but the first turn by 0: where numbers differ in their last bits, those between two
 * codes may become either. */
static void cache_write_f8(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	(void)flag;
	write_as(k, t->c, JM_F8E4M3, d, INFINITY);
}

static void attend_as(
	struct kit *k, enum jm_dtype c, enum jm_dtype kept, const struct shape *d, bool shared)
{
	struct paged p = paged_of(k, kept, d, shared);
	const int64_t *dim = DIMS(1, d->b * d->s, d->heads * p.depth);
	struct jm_tensor *q = kit_normal(k, c, 0, 1, 3, dim);
	struct jm_tensor *y = kit_out(k, c, 3, dim, NULL);

	backend_node(k, JM_OP_ATTENTION_PAGES,
		OPS(q, p.position, p.request, p.page, p.keys, p.values), &y, 0)
		->attr = p.attr;
}

static void attention_pages(
	struct kit *k, const struct types *t, const struct shape *d, bool shared)
{
	attend_as(k, t->c, t->c, d, shared);
}

static void attention_pages_f8(
	struct kit *k, const struct types *t, const struct shape *d, bool shared)
{
	attend_as(k, t->c, JM_F8E4M3, d, shared);
}

/* Widths and pages for which backends have fast kernels; positions are below 16 each - 1. */
static void attend_rows(struct kit *k, enum jm_dtype c, enum jm_dtype kept, const struct shape *d,
	struct jm_tensor *position, int64_t requests, int64_t each)
{
	int64_t depth = d->s % 2 ? 64 : 128, rows = position->dim[0];
	const int64_t *cache = DIMS(requests * each + 3, JM_PAGE_TOKENS, d->kv_heads, depth);
	const int64_t *dim = DIMS(1, rows, d->heads * depth);
	struct jm_tensor *request = kit_ids(k, requests, 1, DIMS(rows));
	struct jm_tensor *page = kit_counted(k, 3, 2, DIMS(requests, each));
	struct jm_tensor *keys = kit_normal(k, kept, 0, 1, 4, cache);
	struct jm_tensor *values = kit_normal(k, kept, 0, 1, 4, cache);
	struct jm_tensor *q = kit_normal(k, c, 0, 1, 3, dim);
	struct jm_tensor *y = kit_out(k, c, 3, dim, NULL);
	union jm_attr attr = {.pages = {.heads = d->heads,
				      .kv_heads = d->kv_heads,
				      .scale = 1 / sqrt((double)depth)}};

	backend_node(k, JM_OP_ATTENTION_PAGES, OPS(q, position, request, page, keys, values), &y, 0)
		->attr = attr;
}

/* together: all rows are of one request, so that they follow each other; else rows of all requests
 * are mixed. */
static void attend_fast(
	struct kit *k, enum jm_dtype c, enum jm_dtype kept, const struct shape *d, bool together)
{
	int64_t rows = d->b * d->s, each = (rows + 40) / JM_PAGE_TOKENS + 1;
	int first = together ? (int)(d->n % 40) : -1;

	attend_rows(k, c, kept, d, kit_counted(k, first, 1, DIMS(rows)), together ? 1 : d->b, each);
}

static void attention_fast(
	struct kit *k, const struct types *t, const struct shape *d, bool together)
{
	attend_fast(k, t->c, t->c, d, together);
}

static void attention_fast_f8(
	struct kit *k, const struct types *t, const struct shape *d, bool together)
{
	attend_fast(k, t->c, JM_F8E4M3, d, together);
}

/* More rows than backends give a block each, of requests of few pages; one group of heads. */
static void attention_short(
	struct kit *k, const struct types *t, const struct shape *d, bool narrow)
{
	struct shape one = *d;

	one.heads = d->heads / d->kv_heads;
	one.kv_heads = 1;
	attend_rows(k, t->c, narrow ? JM_F8E4M3 : t->c, &one, kit_ids(k, 44, 1, DIMS(1024 + d->n)),
		9, 3);
}

/* A prompt and then its last row alone, where all that was not written to the cache is NaN: the
 * slots behind the last key and the pages of nobody. */
static void attention_unwritten(
	struct kit *k, const struct types *t, const struct shape *d, bool narrow)
{
	enum jm_dtype kept = narrow ? JM_F8E4M3 : t->c;
	int64_t depth = d->s % 2 ? 64 : 128, rows = 65 + d->n % 90,
		each = rows / JM_PAGE_TOKENS + 1;
	int64_t heads = d->heads, kv_heads = d->kv_heads;
	const int64_t *cache = DIMS(each + 3, JM_PAGE_TOKENS, kv_heads, depth);
	struct jm_tensor *x =
		kit_normal(k, t->c, 0, 1, 3, DIMS(1, rows, (heads + 2 * kv_heads) * depth));
	struct jm_tensor *last = kit_normal(k, t->c, 0, 1, 3, DIMS(1, 1, heads * depth));
	struct jm_tensor *page = kit_counted(k, 3, 2, DIMS(1, each));
	struct jm_tensor *keys = kit_out(k, kept, 4, cache, kit_normal(k, kept, NAN, 1, 4, cache));
	struct jm_tensor *values =
		kit_out(k, kept, 4, cache, kit_normal(k, kept, NAN, 1, 4, cache));
	struct jm_tensor *q = kit_out(k, t->c, 3, DIMS(1, rows, heads * depth), NULL);
	struct jm_tensor *y[2] = {
		kit_out(k, t->c, 3, q->dim, NULL), kit_out(k, t->c, 3, last->dim, NULL)};
	struct jm_tensor *position = kit_counted(k, 0, 1, DIMS(rows)),
			 *request = kit_ids(k, 1, 1, DIMS(rows));
	union jm_attr attr = {.pages = {.heads = d->heads,
				      .kv_heads = d->kv_heads,
				      .rotary.theta = INFINITY,
				      .scale = 1 / sqrt((double)depth)}};
	struct jm_node *write = jm_graph_node(k->graph, JM_OP_CACHE_WRITE,
		OPS(x, position, request, page, keys, values), OPS(q, keys, values));

	if (write)
		write->attr = attr;
	backend_node(
		k, JM_OP_ATTENTION_PAGES, OPS(q, position, request, page, keys, values), &y[0], 0)
		->attr = attr;
	backend_node(k, JM_OP_ATTENTION_PAGES,
		OPS(last, kit_counted(k, (int)rows - 1, 1, DIMS(1)), kit_ids(k, 1, 1, DIMS(1)),
			page, keys, values),
		&y[1], 0)
		->attr = attr;
}

static void rows(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	struct jm_tensor *x = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *at = kit_ids(k, d->b * d->s, 1, DIMS(d->n));
	struct jm_tensor *y = kit_out(k, t->a, 2, DIMS(d->n, d->c), NULL);

	(void)flag;
	backend_node(k, JM_OP_ROWS, OPS(x, at), &y, 0);
}

/* Of a vector of numbers. */
static void rows_of_vector(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	struct jm_tensor *x = kit_ids(k, 50, 1, DIMS(d->s)), *at = kit_ids(k, d->s, 1, DIMS(d->n));
	struct jm_tensor *y =
		jm_graph_tensor(k->graph, JM_CLASS_SCALAR, JM_I32, 1, DIMS(d->n), "rows");

	(void)t;
	(void)flag;
	jm_graph_node(k->graph, JM_OP_ROWS, OPS(x, at), &y);
	k->result[k->n_results++] = y; /* which the host reads as it is */
}

/* Of targets of which some are ignored: fewer rows than have one, or more; and the gradient. */
static void wanted_rows(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const int64_t all = d->b * d->s, most = d->n % 2 ? all : (all + 1) / 2;
	struct jm_tensor *target = kit_whole(k, JM_I32, -4, 6, 2, DIMS(d->b, d->s));
	struct jm_tensor *made[] = {
		jm_graph_tensor(k->graph, JM_CLASS_SCALAR, JM_I32, 1, &most, "at"),
		jm_graph_tensor(k->graph, JM_CLASS_SCALAR, JM_I32, 1, &most, "wanted")};
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 2, DIMS(most, d->c));
	struct jm_tensor *dx = backend_result(k, t->a, accumulate, 3, DIMS(d->b, d->s, d->c));

	jm_graph_node(k->graph, JM_OP_WANTED_ROWS, OPS(target), OPS(made[0], made[1]));
	backend_node(k, JM_OP_ROWS_GRAD, OPS(dy, made[0]), &dx, accumulate);
	for (int i = 0; i < 2; i++)
		k->result[k->n_results++] = made[i]; /* which the host reads as they are */
}

static void made_ids(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	int slots = (int)d->n;
	struct jm_tensor *ids = kit_whole(k, JM_I32, -slots, 50, 2, DIMS(d->b, d->s));
	struct jm_tensor *token = kit_ids(k, 50, 1, DIMS(slots));
	struct jm_tensor *y =
		jm_graph_tensor(k->graph, JM_CLASS_SCALAR, JM_I32, 2, DIMS(d->b, d->s), "made");

	(void)t;
	(void)flag;
	jm_graph_node(k->graph, JM_OP_MADE_IDS, OPS(ids, token), &y);
	k->result[k->n_results++] = y; /* which the host reads as it is */
}

/* Widths for which backends have fast products of few rows, as steps of serving have them. */
static void linear_few(struct kit *k, const struct types *t, const struct shape *d, bool several)
{
	int64_t rows = several ? 1 + d->n % 16 : 1, from = 32 * (1 + d->c), to = 16 * d->s;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 2, DIMS(rows, from));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(to, from));
	struct jm_tensor *y = kit_out(k, t->c, 2, DIMS(rows, to), NULL);

	backend_node(k, JM_OP_LINEAR, OPS(x, w), &y, 0);
}

/* Up to 8 rows of widths for which backends keep parts of x; gated: swiglu of the product. */
static void few_wide(struct kit *k, const struct types *t, const struct shape *d, bool gated)
{
	const int64_t from[] = {2048, 3072, 4096, 7168, 8192, 14336};
	const int64_t *dim = DIMS(1 + d->n % 8, from[d->c % 6]), to = 32 * d->s;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 2, dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.03, 2, DIMS(to, dim[1]));
	struct jm_tensor *y = kit_out(k, t->c, 2, DIMS(dim[0], to), NULL);
	struct jm_tensor *z = kit_out(k, t->c, 2, DIMS(dim[0], to / 2), NULL);

	jm_graph_node(k->graph, JM_OP_LINEAR, OPS(x, w), &y);
	if (gated)
		jm_graph_node(k->graph, JM_OP_SWIGLU, OPS(y), &z);
	kit_read(k, gated ? z : y);
}

static void linear_wide(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	(void)flag;
	few_wide(k, t, d, false);
}

static void linear_swiglu(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	(void)flag;
	few_wide(k, t, d, true);
}

/* Equal logits occur: the first of them counts. */
static void sample(struct kit *k, const struct types *t, const struct shape *d, bool some)
{
	struct jm_tensor *x = kit_whole(k, t->c, 0, 20, 2, DIMS(d->b, d->n));
	struct jm_tensor *token =
		jm_graph_tensor(k->graph, JM_CLASS_SCALAR, JM_I32, 1, DIMS(d->b), "token");
	struct jm_node *n = jm_graph_node(k->graph, JM_OP_SAMPLE, OPS(x), &token);

	if (n)
		n->attr.xent.classes = some ? d->n / 2 + 1 : 0;
	k->result[k->n_results++] = token; /* which the host reads as it is */
}

/* Each row has a rule of its own: mostly a share p alone, or mostly one of the first k. Equal
 * logits occur. */
static void sample_drawn(struct kit *k, const struct types *t, const struct shape *d, bool some)
{
	struct jm_tensor *x = kit_whole(k, t->c, 0, 20, 2, DIMS(d->b, d->n));
	struct jm_tensor *rule = kit_normal(k, JM_F32, some ? 1.4 : 0.6, 0.5, 2, DIMS(d->b, 3));
	struct jm_tensor *draw = kit_ids(k, INT32_MAX, 2, DIMS(d->b, 2));
	struct jm_tensor *token =
		jm_graph_tensor(k->graph, JM_CLASS_SCALAR, JM_I32, 1, DIMS(d->b), "token");
	struct jm_node *n = jm_graph_node(k->graph, JM_OP_SAMPLE, OPS(x, rule, draw), &token);

	if (n)
		n->attr.xent.classes = some ? d->n / 2 + 1 : 0;
	k->result[k->n_results++] = token;
}

const struct backend_case backend_pages_cases[] = {
	{"cache-write", cache_write},
	{"attention-pages", attention_pages},
	{"attention-pages fast", attention_fast},
	{"cache-write f8", cache_write_f8},
	{"attention-pages f8", attention_pages_f8},
	{"attention-pages fast f8", attention_fast_f8},
	{"attention-pages short", attention_short},
	{"attention-pages, unwritten", attention_unwritten},
	{"rows", rows},
	{"rows of a vector", rows_of_vector},
	{"wanted-rows", wanted_rows},
	{"made-ids", made_ids},
	{"linear, few rows", linear_few},
	{"linear, few wide rows", linear_wide},
	{"linear + swiglu, few wide rows", linear_swiglu},
	{"sample", sample},
	{"sample, drawn", sample_drawn},
	{0},
};
