/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values in pages: storing those of a step's rows [T,(H+2G)D], and attention of the T rows
 * to the pages of their requests. One thread computes one head of one row, so a row's bits do not
 * depend on other rows.
 */
#include "kernel_set.h"
#include "simd.h"
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

/* An element of keys or values. */
JM_INLINE float cached(const struct cpu_paged *p, const void *x, bool bf16, bool f8, int64_t i)
{
	return f8 ? p->code[((const uint8_t *)x)[i]] : get(x, bf16, i);
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

/* The sum has a fixed order: it is the same for every batch. */
JM_INLINE float dot(const struct cpu_paged *p, int64_t query, int64_t key, bool bf16, bool f8)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t k = 0; k < p->head; k++)
		sum += get(p->x, bf16, query + k) * cached(p, p->keys, bf16, f8, key + k);
	return sum;
}

/* z[t] = exp(scores - largest); returns their sum. q: the element of x where the query begins. */
JM_INLINE float weigh(const struct cpu_paged *p, int64_t row, int64_t q, int64_t key, int64_t n,
	bool bf16, bool f8, float *z)
{
	float most = -INFINITY, sum = 0;

	for (int64_t t = 0; t < n; t++) {
		z[t] = (float)p->scale * dot(p, q, slot_of(p, row, t) + key, bf16, f8);
		most = z[t] > most ? z[t] : most;
	}
	for (int64_t t = 0; t < n; t++) {
		z[t] = expf(z[t] - most);
		sum += z[t];
	}
	return sum;
}

/* z: as many as keys, then y[head] before it is rounded. */
JM_INLINE void attend(
	const struct cpu_paged *p, int64_t row, int64_t h, bool bf16, bool f8, float *z)
{
	int64_t n = p->position[row] + 1, key = h / (p->heads / p->groups) * p->head;
	int64_t q = (row * p->heads + h) * p->head;
	float sum = weigh(p, row, q, key, n, bf16, f8, z), *y = z + p->pages_each * p->slots;

	memset(y, 0, (size_t)p->head * sizeof *y);
	for (int64_t t = 0; t < n; t++) {
		int64_t v = slot_of(p, row, t) + key;
		float share = z[t] / sum;

		for (int64_t i = 0; i < p->head; i++)
			y[i] += share * cached(p, p->values, bf16, f8, v + i);
	}
	jm_store(p->y, bf16, (size_t)q, (size_t)p->head, y);
}

static void attend_to(const struct cpu_paged *p, int64_t row, int64_t h, float *z)
{
	if (p->f8 && p->bf16)
		attend(p, row, h, true, true, z);
	else if (p->f8)
		attend(p, row, h, false, true, z);
	else if (p->bf16)
		attend(p, row, h, true, false, z);
	else
		attend(p, row, h, false, false, z);
}

static void attention(const struct cpu_paged *p, int threads)
{
#pragma omp parallel for schedule(dynamic) num_threads(threads)
	for (int64_t i = 0; i < p->tokens * p->heads; i++) {
		int64_t row = i / p->heads;
		float *z = p->scores + omp_get_thread_num() * (p->pages_each * p->slots + p->head);

		if (p->position[row] >= 0)
			attend_to(p, row, i % p->heads, z);
		else if (i % p->heads == 0)
			clear_row(p, row);
	}
}

const struct cpu_pages JM_CPU(cpu_pages) = {write, attention};
