/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_pages_f8.h"

#include <math.h>
#include <omp.h>

#include "engine/graph/tensor.h"

#define CODES 256

/* Element i of x. */
static float taken(const struct cpu_paged *p, int64_t i)
{
	return p->bf16 ? jm_bf16_get(((const uint16_t *)p->x)[i]) : ((const float *)p->x)[i];
}

static void put(const struct cpu_paged *p, int64_t i, float value)
{
	if (p->bf16)
		((uint16_t *)p->y)[i] = jm_bf16_set(value);
	else
		((float *)p->y)[i] = value;
}

static void clear_row(const struct cpu_paged *p, int64_t row)
{
	for (int64_t i = 0; i < p->heads * p->head; i++)
		put(p, row * p->heads * p->head + i, 0);
}

/* Where the keys, or values, of a position of the row's request begin. */
static int64_t slot_of(const struct cpu_paged *p, int64_t row, int64_t position)
{
	const int32_t *page = p->page + p->request[row] * p->pages_each;

	return (page[position / p->slots] * p->slots + position % p->slots) * p->groups * p->head;
}

/* ---- cache-write ----------------------------------------------------------------------------- */

/* Elements i and i + half a head of x, rotated. */
static void turn(const struct cpu_paged *p, int64_t i, const float angle[2], float ret[2])
{
	float a = taken(p, i), b = taken(p, i + p->head / 2);

	ret[0] = a * angle[0] - b * angle[1];
	ret[1] = b * angle[0] + a * angle[1];
}

/* Pair i of all heads of queries and keys. */
static void write_pair(const struct cpu_paged *p, int64_t row, int64_t i)
{
	int64_t from = row * (p->heads + 2 * p->groups) * p->head + i, half = p->head / 2;
	uint8_t *key = (uint8_t *)p->keys + slot_of(p, row, p->position[row]) + i;
	double radians = p->position[row] * p->speed[i];
	float angle[] = {(float)cos(radians), (float)sin(radians)}, pair[2];

	for (int64_t h = 0; h < p->heads; h++, from += p->head) {
		turn(p, from, angle, pair);
		put(p, (row * p->heads + h) * p->head + i, pair[0]);
		put(p, (row * p->heads + h) * p->head + i + half, pair[1]);
	}
	for (int64_t g = 0; g < p->groups; g++, from += p->head, key += p->head) {
		turn(p, from, angle, pair);
		key[0] = jm_f8e4m3_set(pair[0]);
		key[half] = jm_f8e4m3_set(pair[1]);
	}
}

static void write_row(const struct cpu_paged *p, int64_t row)
{
	int64_t n = p->groups * p->head,
		from = (row + 1) * (p->heads + 2 * p->groups) * p->head - n;
	uint8_t *value = (uint8_t *)p->values + slot_of(p, row, p->position[row]);

	for (int64_t i = 0; i < p->head / 2; i++)
		write_pair(p, row, i);
	for (int64_t i = 0; i < n; i++)
		value[i] = jm_f8e4m3_set(taken(p, from + i));
}

void cpu_pages_f8_write(const struct cpu_paged *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t row = 0; row < p->tokens; row++) {
		if (p->position[row] < 0)
			clear_row(p, row);
		else
			write_row(p, row);
	}
}

/* ---- attention-pages ------------------------------------------------------------------------- */

/* One head of one row: elements of its query and, in each slot, of its key; code: the number that
 * each code stands for. */
struct row_head {
	const struct cpu_paged *p;
	const float *code;
	int64_t row, query, key;
};

/* z[t] = exp(scores - largest); returns their sum. */
static float weigh(const struct row_head *h, int64_t n, float *z)
{
	const struct cpu_paged *p = h->p;
	float most = -INFINITY, sum = 0;

	for (int64_t t = 0; t < n; t++) {
		const uint8_t *key = (const uint8_t *)p->keys + slot_of(p, h->row, t) + h->key;
		float dot = 0;

		for (int64_t i = 0; i < p->head; i++)
			dot += taken(p, h->query + i) * h->code[key[i]];
		z[t] = (float)p->scale * dot;
		most = z[t] > most ? z[t] : most;
	}
	for (int64_t t = 0; t < n; t++) {
		z[t] = expf(z[t] - most);
		sum += z[t];
	}
	return sum;
}

/* z: as many as keys, then y[head] before it is rounded. */
static void attend(const struct row_head *h, float *z)
{
	const struct cpu_paged *p = h->p;
	int64_t n = p->position[h->row] + 1;
	float sum = weigh(h, n, z), *y = z + p->pages_each * p->slots;

	for (int64_t i = 0; i < p->head; i++)
		y[i] = 0;
	for (int64_t t = 0; t < n; t++) {
		const uint8_t *value = (const uint8_t *)p->values + slot_of(p, h->row, t) + h->key;

		for (int64_t i = 0; i < p->head; i++)
			y[i] += z[t] / sum * h->code[value[i]];
	}
	for (int64_t i = 0; i < p->head; i++)
		put(p, h->query + i, y[i]);
}

void cpu_pages_f8_attention(const struct cpu_paged *p, int threads)
{
	float code[CODES];

	for (int i = 0; i < CODES; i++)
		code[i] = (float)jm_element_get(JM_F8E4M3, &(uint8_t){(uint8_t)i}, 0);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
	for (int64_t i = 0; i < p->tokens * p->heads; i++) {
		int64_t row = i / p->heads, head = i % p->heads;
		struct row_head h = {
			p, code, row, i * p->head, head / (p->heads / p->groups) * p->head};

		if (p->position[row] >= 0)
			attend(&h, p->scores + omp_get_thread_num() *
						       (p->pages_each * p->slots + p->head));
		else if (!head)
			clear_row(p, row);
	}
}
