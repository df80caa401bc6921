/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of requests whose keys and values are in pages; rows by number; the next token. */
#include "ref_kernels.h"

#include <math.h>

static double get(const struct jm_tensor *t, int64_t i)
{
	return jm_element_get(t->type, t->data, i);
}

static void set(const struct jm_tensor *t, int64_t i, double value)
{
	jm_element_set(t->type, t->data, i, value);
}

/* The elements of a cache before the first head of a position; n has position, request and page as
 * in[1] to in[3], and keys as in[4]. */
static int64_t slot_of(const struct jm_node *n, int64_t row, int64_t position)
{
	const struct jm_tensor *page = n->in[3], *keys = n->in[4];
	int64_t slots = keys->dim[1], request = (int64_t)get(n->in[2], row);
	int64_t at = (int64_t)get(page, request * page->dim[1] + position / slots);

	return (at * slots + position % slots) * keys->dim[2] * keys->dim[3];
}

/* Copies a head of x, rotated by an angle that grows with the position; see rope. */
static void turn_head(const struct jm_node *n, int64_t position, int64_t from,
	const struct jm_tensor *to, int64_t at)
{
	int64_t depth = n->in[4]->dim[3], half = depth / 2;

	for (int64_t i = 0; i < half; i++) {
		double w = jm_rotary_speed(&n->attr.pages.rotary, i, depth);
		double c = cos((double)position * w), s = sin((double)position * w);
		double a = get(n->in[0], from + i), b = get(n->in[0], from + i + half);

		set(to, at + i, a * c - b * s);
		set(to, at + i + half, b * c + a * s);
	}
}

static void write_row(const struct jm_node *n, int64_t row, int64_t position)
{
	int64_t heads = n->attr.pages.heads, groups = n->attr.pages.kv_heads;
	int64_t depth = n->in[4]->dim[3], from = row * (heads + 2 * groups) * depth;
	int64_t slot = slot_of(n, row, position);

	for (int64_t h = 0; h < heads; h++)
		turn_head(n, position, from + h * depth, n->out[0], (row * heads + h) * depth);
	from += heads * depth;
	for (int64_t g = 0; g < groups; g++)
		turn_head(n, position, from + g * depth, n->out[1], slot + g * depth);
	from += groups * depth;
	for (int64_t i = 0; i < groups * depth; i++)
		set(n->out[2], slot + i, get(n->in[0], from + i));
}

void jm_ref_cache_write(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t width = jm_tensor_width(n->out[0]);

	(void)in;
	(void)out;
	for (int64_t row = 0; row < jm_tensor_rows(n->in[0]); row++) {
		int64_t position = (int64_t)get(n->in[1], row);

		for (int64_t i = 0; i < width && position < 0; i++)
			set(n->out[0], row * width + i, 0);
		if (position >= 0)
			write_row(n, row, position);
	}
}

enum {
	AT_ONCE = 256
}; /* elements that are read together, and for which scores are computed once */

static void read_some(const struct jm_tensor *t, int64_t at, int64_t n, double *ret_value)
{
	const char *from = (const char *)t->data + (size_t)at * jm_dtype_bytes(t->type);

	jm_elements_widen(t->type, from, n, ret_value);
}

/* To keys in e4m3 belong queries that are rounded to that type. */
static void round_query(const struct jm_node *n, int64_t some, double *value)
{
	uint8_t code[AT_ONCE];

	if (n->in[4]->type != JM_F8E4M3)
		return;
	for (int64_t i = 0; i < some; i++)
		jm_element_set(JM_F8E4M3, code, i, value[i]);
	jm_elements_widen(JM_F8E4M3, code, some, value);
}

/* scale q.k of the query head at element `q` and the key head at element `k` */
static double score(const struct jm_node *n, int64_t q, int64_t k)
{
	double sum = 0, a[AT_ONCE], b[AT_ONCE];

	for (int64_t i = 0, left = n->in[4]->dim[3]; left > 0; i += AT_ONCE, left -= AT_ONCE) {
		int64_t some = left < AT_ONCE ? left : AT_ONCE;

		read_some(n->in[0], q + i, some, a);
		round_query(n, some, a);
		read_some(n->in[4], k + i, some, b);
		for (int64_t j = 0; j < some; j++)
			sum += a[j] * b[j];
	}
	return n->attr.pages.scale * sum;
}

/* One head of one row: elements of its query and, in each slot, of its key and value; last: the
 * last position that it sees. */
struct row_head {
	int64_t row, query, key, last;
	double most, sum; /* of scores; of their exponentials, each less the most */
};

static double score_at(const struct jm_node *n, const struct row_head *h, int64_t t)
{
	return score(n, h->query, slot_of(n, h->row, t) + h->key);
}

/* `width` elements of the result. */
static void weigh(const struct jm_node *n, const struct row_head *h, int64_t from, int64_t width)
{
	double y[AT_ONCE] = {0}, value[AT_ONCE];

	for (int64_t t = 0; t <= h->last; t++) {
		double p = exp(score_at(n, h, t) - h->most) / h->sum;

		read_some(n->in[5], slot_of(n, h->row, t) + h->key + from, width, value);
		for (int64_t i = 0; i < width; i++)
			y[i] += p * value[i];
	}
	for (int64_t i = 0; i < width; i++)
		set(n->out[0], h->query + from + i, y[i]);
}

static void attend(const struct jm_node *n, int64_t row, int64_t head, int64_t last)
{
	int64_t heads = n->attr.pages.heads, depth = n->in[4]->dim[3];
	struct row_head h = {.row = row,
		.query = (row * heads + head) * depth,
		.key = head / (heads / n->attr.pages.kv_heads) * depth,
		.last = last,
		.most = -INFINITY};

	for (int64_t t = 0; t <= last; t++)
		h.most = fmax(h.most, score_at(n, &h, t));
	for (int64_t t = 0; t <= last; t++)
		h.sum += exp(score_at(n, &h, t) - h.most);
	for (int64_t i = 0; i < depth; i += AT_ONCE)
		weigh(n, &h, i, depth - i < AT_ONCE ? depth - i : AT_ONCE);
}

void jm_ref_attention_pages(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t heads = n->attr.pages.heads, width = jm_tensor_width(n->out[0]);

	(void)in;
	(void)out;
	for (int64_t row = 0; row < jm_tensor_rows(n->in[0]); row++) {
		int64_t last = (int64_t)get(n->in[1], row);

		for (int64_t i = 0; i < width && last < 0; i++)
			set(n->out[0], row * width + i, 0);
		for (int64_t h = 0; h < heads && last >= 0; h++)
			attend(n, row, h, last);
	}
}

void jm_ref_rows(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t width = jm_tensor_count(n->out[0]) / n->out[0]->dim[0];

	(void)in;
	(void)out;
	for (int64_t r = 0; r < n->out[0]->dim[0]; r++)
		for (int64_t i = 0; i < width; i++)
			set(n->out[0], r * width + i,
				get(n->in[0], (int64_t)get(n->in[1], r) * width + i));
}

void jm_ref_rows_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t width = jm_tensor_width(n->out[0]);

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++)
		out[0][(int64_t)in[1][i / width] * width + i % width] = in[0][i];
}

void jm_ref_wanted_rows(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t rows = jm_tensor_count(n->in[0]), most = n->out[0]->dim[0], made = 0;

	for (int wanted = 1; wanted >= 0; wanted--)
		for (int64_t i = 0; i < rows && made < most; i++)
			if ((in[0][i] >= 0) == wanted) {
				out[0][made] = (double)i;
				out[1][made++] = in[0][i];
			}
}

void jm_ref_made_ids(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		double id = get(n->in[0], i);

		set(n->out[0], i, id < 0 ? get(n->in[1], -1 - (int64_t)id) : id);
	}
}

/* Logits of a row, in order: the largest and of equal ones the first before others. */
struct logits {
	const struct jm_tensor *x;
	int64_t from, n;
	double largest, t;
};

static double logit(const struct logits *l, int64_t i)
{
	return get(l->x, l->from + i);
}

static bool is_behind(const struct logits *l, int64_t i, int64_t other)
{
	return logit(l, i) < logit(l, other) || (logit(l, i) == logit(l, other) && i > other);
}

static double weight(const struct logits *l, int64_t i)
{
	return exp((logit(l, i) - l->largest) / l->t);
}

/* The next one in order; -1: the first. */
static int64_t next_of(const struct logits *l, int64_t at)
{
	int64_t best = -1;

	for (int64_t i = 0; i < l->n; i++)
		if ((at < 0 || is_behind(l, i, at)) && (best < 0 || is_behind(l, best, i)))
			best = i;
	return best;
}

/* Of all from the first in order up to `last`. */
static double sum_to(const struct logits *l, int64_t last)
{
	double sum = 0;

	for (int64_t i = 0; i < l->n; i++)
		sum += is_behind(l, i, last) ? 0 : weight(l, i);
	return sum;
}

/* The last one in order that stays. */
static int64_t last_kept(const struct logits *l, double p, int64_t k)
{
	int64_t last = -1, at = -1;
	double sum = 0, all;

	for (int64_t i = 0; i < (k > 0 ? k : l->n) && i < l->n; i++)
		last = next_of(l, last);
	all = sum_to(l, last);
	if (p >= 1)
		return last;
	do {
		at = next_of(l, at);
		sum += weight(l, at);
	} while (at != last && sum < p * all);
	return at;
}

static int64_t drawn(const struct logits *l, const struct jm_tensor *rule,
	const struct jm_tensor *draw, int64_t row)
{
	uint64_t low = (uint32_t)(int32_t)get(draw, 2 * row);
	uint64_t high = (uint32_t)(int32_t)get(draw, 2 * row + 1);
	double u = (double)((low | high << 32) >> 11) * 0x1p-53, sum = 0, at;
	int64_t last = last_kept(l, get(rule, 3 * row + 1), (int64_t)get(rule, 3 * row + 2));
	int64_t token = last;

	at = u * sum_to(l, last);
	for (int64_t i = 0; i < l->n && sum <= at; i++) {
		if (is_behind(l, i, last))
			continue;
		sum += weight(l, i);
		token = i;
	}
	return token;
}

void jm_ref_sample(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t width = jm_tensor_width(n->in[0]);
	int64_t classes = n->attr.xent.classes ? n->attr.xent.classes : width;
	const struct jm_tensor *rule = n->in[1], *draw = n->in[2];

	(void)in;
	(void)out;
	for (int64_t r = 0; r < n->in[0]->dim[0]; r++) {
		struct logits l = {.x = n->in[0], .from = r * width, .n = classes};
		int64_t best = next_of(&l, -1);

		l.largest = logit(&l, best);
		l.t = rule && draw ? get(rule, 3 * r) : 0;
		if (rule && draw && l.t > 0)
			best = drawn(&l, rule, draw, r);
		set(n->out[0], r, (double)best);
	}
}
