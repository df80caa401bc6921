/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values in pages: storing those of a step's rows [T,(H+2G)D], and attention of the T rows
 * to the pages of their requests, by tiles of KEYS keys with a running maximum and sum per row, as
 * in attention.c. Neighbours of one request share a tile. A tile begins at a multiple of KEYS, and
 * a row's sums have one order, alone or beside others, so its bits do not depend on other rows.
 */
#include "kernel_set.h"
#include "attention_tile.h"
#include "engine/graph/round_f8.h"

#include <math.h>
#include <omp.h>

/* Elements before the first head of a position of the row's request. */
static int64_t slot_of(const struct cpu_paged *p, int64_t row, int64_t position)
{
	const int32_t *page = p->page + p->request[row] * p->pages_each;

	return (page[position / p->slots] * p->slots + position % p->slots) * p->groups * p->head;
}

JM_INLINE float get(const void *x, bool bf16, int64_t i)
{
	return bf16 ? jm_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

JM_INLINE void set(void *y, bool bf16, bool f8, int64_t i, float value)
{
	if (f8)
		((uint8_t *)y)[i] = jm_f8e4m3_set(value);
	else if (bf16)
		((uint16_t *)y)[i] = jm_to_bf16(value);
	else
		((float *)y)[i] = value;
}

/* Rotates the same pair of each of so many heads, from element `from` of x to element `to` of y. */
static void turn(const struct cpu_paged *p, int64_t heads, const float angle[2], int64_t from,
	void *y, bool f8, int64_t to)
{
	int64_t half = p->head / 2;

	for (int64_t h = 0; h < heads * p->head; h += p->head) {
		float a = get(p->x, p->bf16, from + h), b = get(p->x, p->bf16, from + h + half);

		set(y, p->bf16, f8, to + h, a * angle[0] - b * angle[1]);
		set(y, p->bf16, f8, to + h + half, b * angle[0] + a * angle[1]);
	}
}

static void write_row(const struct cpu_paged *p, int64_t row, int64_t position)
{
	int64_t q = row * (p->heads + 2 * p->groups) * p->head, k = q + p->heads * p->head;
	int64_t n = p->groups * p->head, v = k + n, slot = slot_of(p, row, position);
	size_t each = p->bf16 ? sizeof(uint16_t) : sizeof(float);

	for (int64_t i = 0; i < p->head / 2; i++) {
		double radians = (double)position * p->speed[i];
		float angle[] = {(float)cos(radians), (float)sin(radians)};

		turn(p, p->heads, angle, q + i, p->y, false, row * p->heads * p->head + i);
		turn(p, p->groups, angle, k + i, p->keys, p->f8, slot + i);
	}
	if (!p->f8)
		memcpy((char *)p->values + (size_t)slot * each,
			(const char *)p->x + (size_t)v * each, (size_t)n * each);
	for (int64_t i = 0; p->f8 && i < n; i++)
		set(p->values, p->bf16, true, slot + i, get(p->x, p->bf16, v + i));
}

static void clear_row(const struct cpu_paged *p, int64_t row)
{
	size_t width = (size_t)(p->heads * p->head) * (p->bf16 ? sizeof(uint16_t) : sizeof(float));

	memset((char *)p->y + (size_t)row * width, 0, width);
}

static void write(const struct cpu_paged *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t row = 0; row < p->tokens; row++) {
		if (p->position[row] < 0)
			clear_row(p, row);
		else
			write_row(p, row, p->position[row]);
	}
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Rows and keys of a tile; floats between its rows of scores, which share no cache set so. */
enum { ROWS = 32, KEYS = 128, PITCH = KEYS + 16 };

/* The memory of one thread. */
struct tile {
	int64_t wide;	  /* elements of a head and zeros, a multiple of JM_WIDE */
	float *q, *y;	  /* [ROWS][wide] */
	float *x;	  /* [KEYS][wide]: keys before they are turned, then values */
	float *kt;	  /* [wide][PITCH] */
	float *p;	  /* [ROWS][PITCH]: scores, then probabilities times the sum */
	float *max, *sum; /* [ROWS] */
};

/* Divides base into a tile and returns the number of floats; base NULL: only counts. */
static int64_t cut(const struct cpu_paged *p, float *base, struct tile *t)
{
	int64_t wide = t->wide = jm_up(p->head, JM_WIDE);
	const struct jm_part part[] = {{&t->q, ROWS * wide}, {&t->y, ROWS * wide},
		{&t->x, KEYS * wide}, {&t->kt, PITCH * wide}, {&t->p, ROWS * PITCH},
		{&t->max, ROWS}, {&t->sum, ROWS}};

	return jm_cut(base, part, sizeof part / sizeof *part);
}

static size_t attention_scratch(const struct cpu_paged *p, int threads)
{
	struct tile t;

	return (size_t)(cut(p, NULL, &t) * threads) * sizeof(float);
}

static struct tile tile_of_thread(const struct cpu_paged *p)
{
	struct tile t;
	int64_t each = cut(p, NULL, &t);

	cut(p, p->scratch + each * omp_get_thread_num(), &t);
	return t;
}

/* So many rows of one request, which follow each other, and one of their heads. */
struct run {
	int64_t row, rows, head;
};

static void load_queries(const struct cpu_paged *p, const struct run *r, const struct tile *t)
{
	for (int64_t i = 0; i < r->rows; i++) {
		size_t at = (size_t)(((r->row + i) * p->heads + r->head) * p->head);
		float *q = t->q + i * t->wide;

		jm_load(p->x, p->bf16, at, (size_t)p->head, q);
		for (int64_t d = 0; p->f8 && d < p->head; d++)
			q[d] = p->code[jm_f8e4m3_set(q[d])];
		t->max[i] = -INFINITY;
		t->sum[i] = 0;
	}
	memset(t->y, 0, (size_t)(r->rows * t->wide) * sizeof *t->y);
}

/* One key or value from element `at` on. */
static void load_one(
	const struct cpu_paged *p, const void *from, int64_t at, const struct tile *t, float *x)
{
	if (p->f8)
		for (int64_t d = 0; d < p->head; d++)
			x[d] = p->code[((const uint8_t *)from)[at + d]];
	else
		jm_load(from, p->bf16, (size_t)at, (size_t)p->head, x);
	for (int64_t d = p->head; d < t->wide; d++)
		x[d] = 0;
}

/* Loads n keys or values from position `first` on, and none behind, which may be anything. */
static void load_cached(const struct cpu_paged *p, const struct run *r, const void *from,
	int64_t first, int64_t n, const struct tile *t)
{
	int64_t head = r->head / (p->heads / p->groups) * p->head, part;

	for (int64_t i = 0; i < n; i += part) {
		int64_t left = p->slots - (first + i) % p->slots;
		int64_t at = slot_of(p, r->row, first + i) + head;

		part = jm_min64(left, n - i);
		for (int64_t k = 0; k < part; k++)
			load_one(
				p, from, at + k * p->groups * p->head, t, t->x + (i + k) * t->wide);
	}
}

static void attend_tile(const struct cpu_paged *p, const struct run *r, int64_t first, int64_t n,
	const struct tile *t)
{
	int64_t columns = jm_up(n, JM_WIDE);

	load_cached(p, r, p->keys, first, n, t);
	jm_turn(t->x, n, t->wide, t->kt, PITCH);
	jm_product(r->rows, columns, p->head, t->q, t->wide, 1, t->kt, PITCH, t->p, PITCH, false);
	for (int64_t i = 0; i < r->rows; i++) {
		int64_t seen = p->position[r->row + i] + 1 - first;

		jm_soften(t->p + i * PITCH, seen < 0 ? 0 : jm_min64(seen, n), columns,
			(float)p->scale, t->max + i, t->sum + i, t->y + i * t->wide, t->wide);
	}
	load_cached(p, r, p->values, first, n, t);
	jm_product(r->rows, t->wide, n, t->p, PITCH, 1, t->x, t->wide, t->y, t->wide, true);
}

static void attend(const struct cpu_paged *p, const struct run *r, const struct tile *t)
{
	int64_t keys = p->position[r->row + r->rows - 1] + 1;

	load_queries(p, r, t);
	for (int64_t first = 0; first < keys; first += KEYS)
		attend_tile(p, r, first, jm_min64(keys - first, KEYS), t);
	for (int64_t i = 0; i < r->rows; i++) {
		float *y = t->y + i * t->wide;

		for (int64_t d = 0; d < p->head; d++)
			y[d] /= t->sum[i];
		jm_store(p->y, p->bf16, (size_t)(((r->row + i) * p->heads + r->head) * p->head),
			(size_t)p->head, y);
	}
}

/* Rows from `row` on, before `end`, that follow each other in one request. */
static int64_t rows_of_run(const struct cpu_paged *p, int64_t row, int64_t end)
{
	int64_t n = 1;

	while (row + n < end && p->request[row + n] == p->request[row] &&
		p->position[row + n] == p->position[row] + n)
		n++;
	return n;
}

static void attend_rows(const struct cpu_paged *p, int64_t row, int64_t end, int64_t head)
{
	struct tile t = tile_of_thread(p);
	struct run r = {.head = head};

	for (; row < end; row += r.rows) {
		r.row = row;
		r.rows = p->position[row] < 0 ? 1 : rows_of_run(p, row, end);
		if (p->position[row] >= 0)
			attend(p, &r, &t);
		else if (head == 0)
			clear_row(p, row);
	}
}

/* Rows that a thread takes at once: fewer if these are not enough pieces of work. */
static int64_t rows_each(const struct cpu_paged *p, int threads)
{
	int64_t rows = p->tokens * p->heads / (8 * threads);

	return rows < 1 ? 1 : rows < ROWS ? rows : ROWS;
}

static void attention(const struct cpu_paged *p, int threads)
{
	int64_t each = rows_each(p, threads), blocks = (p->tokens + each - 1) / each;

#pragma omp parallel for schedule(dynamic) num_threads(threads)
	for (int64_t i = 0; i < blocks * p->heads; i++) {
		int64_t row = i / p->heads * each, end = row + each;

		attend_rows(p, row, jm_min64(end, p->tokens), i % p->heads);
	}
}

const struct cpu_pages JM_CPU(cpu_pages) = {write, attention_scratch, attention};
