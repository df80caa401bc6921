/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how the layout of images changes the time of kernels after convolutions: batch norm and
 * max pooling of a ResNet-50, with channels last and with blocks of 16 channels, alternately.
 *
 *	image_layouts [BATCH [THREADS]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cpu/kernels/kernels.h"
#include "base/stat/stat.h"

enum { ROUNDS = 3, BUFFERS = 5 };

/* Batch norms of one shape: how many, and how many of them add a residual. */
static const struct {
	int64_t channels, side;
	int count, sums;
} shapes[] = {{64, 112, 1, 0}, {64, 56, 6, 0}, {256, 56, 4, 3}, {128, 56, 1, 0}, {128, 28, 7, 0},
	{512, 28, 5, 4}, {256, 28, 1, 0}, {256, 14, 11, 0}, {1024, 14, 7, 6}, {512, 14, 1, 0},
	{512, 7, 5, 0}, {2048, 7, 4, 3}};

enum { N_SHAPES = sizeof(shapes) / sizeof(*shapes) };

struct bench {
	const struct cpu_kernels *kernels;
	void *buffer[BUFFERS], *scratch;
	float *vector[8];
	int64_t batch;
	int threads;
	bool bf16, last;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct cpu_image image(const struct bench *b, int which, int64_t channels, int64_t side)
{
	int64_t pixels = side * side;

	return (struct cpu_image){.data = b->buffer[which],
		.bf16 = b->bf16,
		.n = b->batch,
		.c = channels,
		.rows = side,
		.cols = side,
		.lanes = 16,
		.pixel = b->last ? channels : 16,
		.chunk = b->last ? 16 : 16 * pixels,
		.image = pixels * channels};
}

static const struct cpu_images *images(const struct bench *b)
{
	return b->last ? b->kernels->images_last : b->kernels->images;
}

static void forward(const struct bench *b, int s, bool sum)
{
	struct cpu_bn p = {.x = image(b, 0, shapes[s].channels, shapes[s].side),
		.stats = true,
		.apply = true,
		.relu = true,
		.mean = b->vector[0],
		.var = b->vector[1],
		.rstd = b->vector[2],
		.gamma = b->vector[3],
		.beta = b->vector[4],
		.eps = 1e-5,
		.scratch = b->scratch};

	p.y = image(b, 1, p.x.c, p.x.rows);
	if (sum)
		p.add = image(b, 2, p.x.c, p.x.rows);
	p.count = p.x.n * p.x.rows * p.x.cols;
	images(b)->bn(&p, b->threads);
}

static void backward(const struct bench *b, int s, bool sum)
{
	struct cpu_bn_grad p = {.x = image(b, 0, shapes[s].channels, shapes[s].side),
		.mean = b->vector[0],
		.rstd = b->vector[2],
		.gamma = b->vector[3],
		.dgamma = b->vector[5],
		.dbeta = b->vector[6],
		.scratch = b->scratch};

	p.y = image(b, 1, p.x.c, p.x.rows);
	p.dy = image(b, 2, p.x.c, p.x.rows);
	p.dx = image(b, 3, p.x.c, p.x.rows);
	if (sum)
		p.dadd = image(b, 4, p.x.c, p.x.rows);
	images(b)->bn_grad(&p, b->threads);
}

static struct cpu_pool pool(const struct bench *b)
{
	return (struct cpu_pool){.x = image(b, 0, 64, 112),
		.y = image(b, 1, 64, 56),
		.dx = image(b, 2, 64, 112),
		.kernel = {3, 3},
		.stride = {2, 2},
		.pad = {1, 1},
		.scratch = b->scratch};
}

enum what { FORWARD, BACKWARD, POOL, POOL_GRAD, WHATS };

static double seconds(const struct bench *b, enum what what)
{
	struct cpu_pool p = pool(b);
	double start = now();

	if (what == POOL)
		b->kernels->pools->max(&p, b->threads);
	if (what == POOL_GRAD)
		b->kernels->pools->max_grad(&p, b->threads);
	for (int s = 0; what < POOL && s < N_SHAPES; s++)
		for (int i = 0; i < shapes[s].count; i++) {
			if (what == FORWARD)
				forward(b, s, i < shapes[s].sums);
			else
				backward(b, s, i < shapes[s].sums);
		}
	return now() - start;
}

static void measure(struct bench *b, enum what what)
{
	static const char *const name[WHATS] = {"bn", "bn-grad", "maxpool", "maxpool-grad"};
	double time[2][ROUNDS + 1];

	for (int i = 0; i <= ROUNDS; i++)
		for (int last = 0; last < 2; last++) {
			b->last = last;
			time[last][i] = seconds(b, what);
		}
	for (int last = 0; last < 2; last++)
		qsort(time[last] + 1, ROUNDS, sizeof(double), jm_stat_by_value);
	printf("%-4s %-13s nChw16c %6.1f ms (%.1f-%.1f)   nhwc %6.1f ms (%.1f-%.1f)   %.2f\n",
		b->bf16 ? "bf16" : "f32", name[what], 1e3 * time[0][1 + ROUNDS / 2],
		1e3 * time[0][1], 1e3 * time[0][ROUNDS], 1e3 * time[1][1 + ROUNDS / 2],
		1e3 * time[1][1], 1e3 * time[1][ROUNDS],
		time[1][1 + ROUNDS / 2] / time[0][1 + ROUNDS / 2]);
}

/* Allocates zeros and ones: the times do not depend on the values, but the pages must exist. */
static void *memory(size_t bytes)
{
	void *p = aligned_alloc(1 << 21, (bytes + (1 << 21)) >> 21 << 21);

	if (!p)
		exit(1);
	for (size_t i = 0; i < bytes / 4; i++)
		((float *)p)[i] = (float)(i * 2654435761u >> 31 & 1);
	return p;
}

int main(int argc, char **argv)
{
	struct bench b = {.kernels = cpu_kernels_best(),
		.batch = argc > 1 ? atoi(argv[1]) : 32,
		.threads = argc > 2 ? atoi(argv[2]) : 2};
	size_t largest = (size_t)b.batch * 64 * 112 * 112 * sizeof(float);

	for (int i = 0; i < BUFFERS; i++)
		b.buffer[i] = memory(largest);
	for (size_t i = 0; i < sizeof(b.vector) / sizeof(*b.vector); i++)
		b.vector[i] = memory(2048 * sizeof(float));
	b.scratch = memory((size_t)b.threads * 112 * 112 * 16 * sizeof(float) +
			   cpu_bn_scratch(2048, b.threads));
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int what = 0; what < WHATS; what++) {
			b.bf16 = bf16;
			measure(&b, (enum what)what);
		}
	for (int i = 0; i < BUFFERS; i++)
		free(b.buffer[i]);
	for (size_t i = 0; i < sizeof(b.vector) / sizeof(*b.vector); i++)
		free(b.vector[i]);
	free(b.scratch);
	return 0;
}
