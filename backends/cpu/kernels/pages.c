/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values in pages: storing those of a step's rows [T,(H+2G)D], and attention of the T rows to the
 * pages of their requests. One thread computes one head of one row, so a row's bits do not depend on other rows.
 */
#include "kernel_set.h"
#include "simd.h"

#include <math.h>
#include <omp.h>

/* Elements before the first head of a position of the row's request. */
static int64_t slot_of(const struct cpu_paged *p, int64_t row, int64_t position)
{
	const int32_t *page = p->page + p->request[row] * p->pages_each;

	return (page[position / p->slots] * p->slots + position % p->slots) * p->groups * p->head;
}

/* Rotates the same pair of each head. */
static void turn(const float *x, int64_t heads, int64_t head, float c, float s, float *y)
{
	int64_t half = head / 2;

	for (int64_t h = 0; h < heads; h++) {
		float a = x[h * head], b = x[h * head + half];

		y[h * head] = a * c - b * s;
		y[h * head + half] = b * c + a * s;
	}
}

static void write_row(const struct cpu_paged *p, int64_t row, int64_t position)
{
	const float *q = p->x + row * (p->heads + 2 * p->groups) * p->head;
	const float *k = q + p->heads * p->head, *v = k + p->groups * p->head;
	int64_t slot = slot_of(p, row, position);

	for (int64_t i = 0; i < p->head / 2; i++) {
		double angle = (double)position * p->speed[i];
		float c = (float)cos(angle), s = (float)sin(angle);

		turn(q + i, p->heads, p->head, c, s, p->y + row * p->heads * p->head + i);
		turn(k + i, p->groups, p->head, c, s, p->keys + slot + i);
	}
	memcpy(p->values + slot, v, (size_t)(p->groups * p->head) * sizeof *v);
}

static void clear_row(const struct cpu_paged *p, int64_t row)
{
	size_t width = (size_t)(p->heads * p->head);

	memset(p->y + (size_t)row * width, 0, width * sizeof *p->y);
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
static float dot(const float *a, const float *b, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* z[t] = exp(scores - largest); returns their sum. */
static float weigh(
	const struct cpu_paged *p, int64_t row, const float *q, int64_t key, int64_t n, float *z)
{
	float most = -INFINITY, sum = 0;

	for (int64_t t = 0; t < n; t++) {
		z[t] = (float)p->scale * dot(q, p->keys + slot_of(p, row, t) + key, p->head);
		most = z[t] > most ? z[t] : most;
	}
	for (int64_t t = 0; t < n; t++) {
		z[t] = expf(z[t] - most);
		sum += z[t];
	}
	return sum;
}

static void attend(const struct cpu_paged *p, int64_t row, int64_t h, float *z)
{
	int64_t n = p->position[row] + 1, key = h / (p->heads / p->groups) * p->head;
	float *y = p->y + (row * p->heads + h) * p->head;
	float sum = weigh(p, row, p->x + (row * p->heads + h) * p->head, key, n, z);

	memset(y, 0, (size_t)p->head * sizeof *y);
	for (int64_t t = 0; t < n; t++) {
		const float *v = p->values + slot_of(p, row, t) + key;
		float share = z[t] / sum;

		for (int64_t i = 0; i < p->head; i++)
			y[i] += share * v[i];
	}
}

static void attention(const struct cpu_paged *p, int threads)
{
#pragma omp parallel for schedule(dynamic) num_threads(threads)
	for (int64_t i = 0; i < p->tokens * p->heads; i++) {
		int64_t row = i / p->heads;
		float *z = p->scores + omp_get_thread_num() * p->pages_each * p->slots;

		if (p->position[row] >= 0)
			attend(p, row, i % p->heads, z);
		else if (i % p->heads == 0)
			clear_row(p, row);
	}
}

const struct cpu_pages JM_CPU(cpu_pages) = {write, attention};
