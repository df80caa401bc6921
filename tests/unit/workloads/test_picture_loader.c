/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of pictures depend on the seed alone, each epoch has each picture once, and crops are what their words say. */
#include "data/sets/cifar.h"
#include "kit/test.h"
#include "workloads/train/picture_loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N     23
#define BATCH 4
#define SIDE  32
#define PLANE (SIDE * SIDE)

extern const struct jm_data_format jm_data_format_cifar;

/* Pictures of CIFAR whose red is their number, so that a crop shows which one it is. */
static void make_set(struct jm_data_set *ret)
{
	unsigned char *bytes = calloc(N, 3073);
	struct jm_err err = JM_ERR_INIT;

	*ret = (struct jm_data_set){.path = strdup("test"), .format = &jm_data_format_cifar};
	for (int i = 0; i < N; i++) {
		bytes[3073 * i] = (unsigned char)(i % 10);
		memset(bytes + 3073 * i + 1, 10 * i + 1, PLANE);
	}
	assert_ok(jm_cifar_parse(ret, bytes, (size_t)N * 3073, 10, &err), err);
}

static struct jm_loader_way way_of(const struct jm_data_set *set, int threads)
{
	return (struct jm_loader_way){.set = set,
		.crop = {.size = SIDE, .kind = JM_CROP_MOVED, .flip = true},
		.type = JM_F32,
		.seed = 5,
		.batch = BATCH,
		.threads = threads,
		.world = 1};
}

static float *take(struct jm_picture_loader *l, int64_t number, int32_t *target)
{
	float *pixels = malloc((size_t)BATCH * 3 * PLANE * sizeof(*pixels));
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_picture_loader_take(l, number, pixels, target, &err), err);
	return pixels;
}

static struct jm_picture_loader *open_loader(const struct jm_loader_way *way)
{
	struct jm_picture_loader *l;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_picture_loader_open(way, &l, &err), err);
	return l;
}

/* Batches begin..end - 1 by one loader are those that one thread made for each of them alone. */
static void expect_same(struct jm_picture_loader *a, int64_t begin, int64_t end, int64_t step,
	struct jm_picture_loader *alone)
{
	for (int64_t k = begin; k < end; k += step) {
		int32_t target[2][BATCH];
		float *x = take(a, k, target[0]), *y = take(alone, k, target[1]);

		assert_memory_equal(x, y, (size_t)BATCH * 3 * PLANE * sizeof(*x));
		assert_memory_equal(target[0], target[1], sizeof(target[0]));
		free(x);
		free(y);
	}
}

static void test_depends_on_seed_alone(void **state)
{
	static const int threads[] = {1, 2, 5};
	struct jm_data_set set;

	(void)state;
	make_set(&set);
	for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++) {
		struct jm_loader_way way = way_of(&set, threads[i]), one = way_of(&set, 1);
		struct jm_picture_loader *l = open_loader(&way), *alone = open_loader(&one), *rank;

		expect_same(l, 0, 20, 1, alone);
		expect_same(l, 7, 15, 1, alone); /* as a run that goes on there */
		way.world = 3;
		rank = open_loader(&way);
		expect_same(rank, 2, 20, 3, alone); /* rank 2 of 3 */
		jm_picture_loader_close(l);
		jm_picture_loader_close(rank);
		jm_picture_loader_close(alone);
	}
	jm_data_set_close(&set);
}

static void test_order_is_a_permutation(void **state)
{
	static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 1000, 4097};
	int64_t fixed = 0;

	(void)state;
	for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++)
		for (int64_t epoch = 0; epoch < 3; epoch++) {
			char *seen = calloc((size_t)sizes[k], 1);

			for (int64_t i = 0; i < sizes[k]; i++) {
				int64_t at = jm_loader_order(9, epoch, i, sizes[k]);

				assert_in_range(at, 0, sizes[k] - 1);
				assert_int_equal(seen[at]++, 0);
				fixed += sizes[k] > 100 && at == i;
			}
			free(seen);
		}
	assert_in_range(fixed, 0, 30); /* of 6 random permutations: 6 are expected */
}

/* The number of the picture that a sample shows. */
static int shown(const float *pixels)
{
	float red = -9;

	for (int i = 0; i < PLANE; i++)
		red = fmaxf(red, pixels[i]);
	return (int)lround(((double)red * 0.229 + 0.485) * 255 - 1) / 10;
}

static void test_epochs_and_evaluations_have_all(void **state)
{
	struct jm_data_set set;

	(void)state;
	make_set(&set);
	for (int evaluates = 0; evaluates < 2; evaluates++) {
		struct jm_loader_way way = way_of(&set, 2);
		struct jm_picture_loader *l;
		int seen[N] = {0}, most = 0;

		way.evaluates = evaluates;
		l = open_loader(&way);
		for (int64_t k = 0, sample = 0; sample < N; k++) {
			int32_t target[BATCH];
			float *pixels = take(l, k, target);

			for (int b = 0; b < BATCH && sample < N; b++, sample++) {
				int i = shown(pixels + (size_t)b * 3 * PLANE);

				assert_in_range(i, 0, N - 1);
				assert_int_equal(target[b], i % 10);
				most = seen[i]++ ? 2 : most;
			}
			free(pixels);
		}
		assert_int_equal(most, 0);
		assert_int_equal(jm_picture_loader_cost(l).fillers, evaluates ? 1 : 0);
		jm_picture_loader_close(l);
	}
	jm_data_set_close(&set);
}

/* Half of a picture that is black left and white right, and a mean over each square of pixels. */
static void test_centre_and_mean(void **state)
{
	const struct jm_crop crop = {.size = 2, .kind = JM_CROP_CENTRE};
	struct jm_picture p = {.width = 64, .height = 64, .rgb = calloc(64 * 64, 3)};
	float *scratch = malloc(jm_crop_scratch(&crop) * sizeof(*scratch)), ret[12];

	(void)state;
	for (int y = 0; y < 64; y++)
		memset(p.rgb + 3 * (64 * y + 32), 255, 96);
	jm_crop_apply(&crop, &p, 1, scratch, ret);
	for (int c = 0; c < 3; c++) {
		/* a triangle over 28 pixels to both sides of pixel 18: 3.5 of 28 are beyond the edge at 32,
		 * 25/14 beyond the picture */
		assert_true(ret[4 * c] < ret[4 * c + 1]);
		assert_true(fabsf(ret[4 * c] - ret[4 * c + 2]) < 1e-5f);
	}
	assert_true(fabs((double)ret[0] * 0.229 + 0.485 - 3.5 / (28 - 25 / 14.0)) < 0.003);
	jm_picture_done(&p);
	free(scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_depends_on_seed_alone),
		cmocka_unit_test(test_order_is_a_permutation),
		cmocka_unit_test(test_epochs_and_evaluations_have_all),
		cmocka_unit_test(test_centre_and_mean)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
