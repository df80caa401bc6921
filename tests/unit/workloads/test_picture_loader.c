/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of pictures depend on the seed alone, each epoch has each picture once, and crops are
 * what their words say. */
#include "data/sets/cifar.h"
#include "kit/test.h"
#include "workloads/train/picture_loader.h"
#include "workloads/train/sample_order.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
		.part = {{.type = JM_DATA_PICTURE, .bytes = 3 * PLANE * sizeof(float)},
			{.type = JM_DATA_CLASS, .bytes = sizeof(int32_t)}},
		.parts = 2,
		.crop = {.size = SIDE, .kind = JM_CROP_MOVED, .flip = true, .type = JM_F32},
		.memory = 1 << 24,
		.seed = 5,
		.batch = BATCH,
		.threads = threads,
		.world = 1};
}

static float *take(struct jm_picture_loader *l, int64_t number, int32_t *target)
{
	float *pixels = malloc((size_t)BATCH * 3 * PLANE * sizeof(*pixels));
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_picture_loader_take(l, number, (void *[]){pixels, target}, &err), err);
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

/* Until threads have prepared all that they may after `taken` batches. */
static void wait_until_idle(struct jm_picture_loader *l, int64_t taken)
{
	while (jm_picture_loader_cost(l).pictures <
		(taken + jm_picture_loader_cost(l).depth) * BATCH)
		usleep(100);
}

/* Bursts that need more than is prepared make it more, as far as memory allows. */
static void test_depth_grows_to_the_memory(void **state)
{
	struct jm_data_set set;

	(void)state;
	make_set(&set);
	for (int most = 2; most <= 4; most++) {
		struct jm_loader_way way = way_of(&set, 1);
		struct jm_picture_loader *l;
		int64_t taken = 0;

		way.memory = (size_t)most * BATCH * (3 * PLANE * sizeof(float) + sizeof(int32_t));
		l = open_loader(&way);
		for (int rest = 20; rest > 0; rest -= jm_picture_loader_cost(l).depth == most) {
			for (int k = 0; k < 8; k++) {
				int32_t target[BATCH];

				free(take(l, taken++, target));
			}
			wait_until_idle(l, taken);
			assert_in_range(jm_picture_loader_cost(l).depth, 2, most);
		}
		jm_picture_loader_close(l);
	}
	jm_data_set_close(&set);
}

static double process_cpu_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of 8 threads on one core, which mostly wait for it: they compute no longer than the process. */
static void test_waiting_is_not_processor_time(void **state)
{
	enum { SIZE = 384, SAMPLES = 32 };
	float *pixels = malloc((size_t)SAMPLES * 3 * SIZE * SIZE * sizeof(*pixels));
	struct jm_loader_cost cost;
	struct jm_picture_loader *l;
	struct jm_loader_way way;
	struct jm_data_set set;
	struct jm_err err = JM_ERR_INIT;
	int32_t target[SAMPLES];
	cpu_set_t all, one;
	double begun;

	(void)state;
	make_set(&set);
	way = way_of(&set, 8);
	way.crop.size = SIZE;
	way.crop.kind = JM_CROP_RANDOM;
	way.part[0].bytes = 3 * SIZE * SIZE * sizeof(*pixels);
	way.batch = SAMPLES;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	begun = process_cpu_s();
	l = open_loader(&way);
	for (int64_t k = 0; k < 3; k++)
		assert_ok(jm_picture_loader_take(l, k, (void *[]){pixels, target}, &err), err);
	cost = jm_picture_loader_cost(l);
	assert_true(cost.decode_cpu_s > 0 && cost.decode_cpu_s <= 1.01 * cost.decode_s);
	assert_true(cost.decode_cpu_s <= process_cpu_s() - begun);
	jm_picture_loader_close(l);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	jm_data_set_close(&set);
	free(pixels);
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
				int64_t at = jm_sample_order(9, epoch, i, sizes[k]);

				assert_in_range(at, 0, sizes[k] - 1);
				assert_int_equal(seen[at]++, 0);
				fixed += sizes[k] > 100 && at == i;
			}
			free(seen);
		}
	assert_in_range(fixed, 0, 30); /* of 6 random permutations: 6 are expected */
}

/* Each five places of the random order have the same samples, the longest first, whatever was
 * looked up before. */
static void test_groups_are_sorted_by_length(void **state)
{
	enum { SAMPLES = 23, SIZE = 5 };
	int64_t start[SAMPLES + 1] = {0}, got;
	struct jm_length_groups g = {.start = start, .n = SAMPLES, .size = SIZE, .seed = 9};
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	for (int i = 0; i < SAMPLES; i++)
		start[i + 1] = start[i] + i * 7 % 6; /* some are equal */
	for (int64_t epoch = 1; epoch >= 0; epoch--)
		for (int64_t i = SAMPLES - 1; i >= 0; i--) {
			int64_t first = i / SIZE * SIZE, before = 0, own, length;
			int64_t end = first + SIZE < SAMPLES ? first + SIZE : SAMPLES;

			assert_ok(jm_length_groups_order(&g, epoch, i, &got, &err), err);
			length = start[got + 1] - start[got];
			own = -1;
			for (int64_t k = first; k < end; k++)
				if (jm_sample_order(9, epoch, k, SAMPLES) == got)
					own = k;
			assert_true(own >= 0);
			for (int64_t k = first; k < end; k++) {
				int64_t other = jm_sample_order(9, epoch, k, SAMPLES);
				int64_t its = start[other + 1] - start[other];

				before += its > length || (its == length && k < own);
			}
			assert_int_equal(before, i - first);
		}
	jm_length_groups_done(&g);
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

		way.batches = evaluates ? jm_loader_batches(&set, BATCH) : 0;
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

/* Lengths of the pictures of the first ten batches, in groups of two batches within an epoch. */
static void expect_groups(struct jm_picture_loader *l, const int64_t *start)
{
	int64_t before = 0, sample = 0;

	for (int64_t k = 0; k < 10; k++) {
		int32_t target[BATCH];
		float *pixels = take(l, k, target);

		for (int b = 0; b < BATCH; b++, sample++) {
			int i = shown(pixels + (size_t)b * 3 * PLANE);
			int64_t length = start[i + 1] - start[i];

			if (sample % N % (2 * BATCH) > 0)
				assert_true(length <= before);
			before = length;
		}
		free(pixels);
	}
}

static void test_groups_depend_on_seed_alone(void **state)
{
	int64_t start[N + 1] = {0};
	struct jm_talk_rows rows = {.start = start};
	struct jm_data_set set;

	(void)state;
	make_set(&set);
	for (int i = 0; i < N; i++)
		start[i + 1] = start[i] + 1 + i * 7 % 11;
	for (int threads = 1; threads < 5; threads += 2) {
		struct jm_loader_way way = way_of(&set, threads), one = way_of(&set, 1);
		struct jm_picture_loader *l, *alone, *rank;

		way.sorted = one.sorted = &rows;
		way.group = one.group = 2 * BATCH;
		l = open_loader(&way);
		alone = open_loader(&one);
		expect_groups(l, start);
		expect_same(l, 7, 15, 1, alone); /* as a run that goes on there */
		way.world = 3;
		rank = open_loader(&way);
		expect_same(rank, 2, 20, 3, alone);
		jm_picture_loader_close(l);
		jm_picture_loader_close(rank);
		jm_picture_loader_close(alone);
	}
	jm_data_set_close(&set);
}

static struct jm_picture draw(int width, int height)
{
	struct jm_picture p = {.width = width, .height = height, .shrink = 1};

	p.rgb = calloc((size_t)width * (size_t)height, 3);
	for (int i = 0; i < 3 * width * height; i++)
		p.rgb[i] = (unsigned char)(rand() % 200 + 55 * (i / 40 % 2));
	return p;
}

static double triangle(double x)
{
	return fmax(1 - fabs(x), 0);
}

/* Value (x, y) of channel c: the mean of all pixels, weighted by triangles around its middle. */
static double resized(
	const struct jm_picture *p, const struct jm_picture_box *b, int size, int x, int y, int c)
{
	double sx = b->width / size, sy = b->height / size, sum = 0, weights = 0;

	for (int i = 0; i < p->height; i++)
		for (int k = 0; k < p->width; k++) {
			double w = triangle((k + 0.5 - b->x - (x + 0.5) * sx) / fmax(sx, 1)) *
				   triangle((i + 0.5 - b->y - (y + 0.5) * sy) / fmax(sy, 1));

			weights += w;
			sum += w * p->rgb[3 * (i * p->width + k) + c];
		}
	return sum / weights;
}

static void expect_resized(const struct jm_picture *p, const struct jm_picture_box *box, int size)
{
	static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
	size_t n = 3 * (size_t)size * (size_t)size;
	float *values[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
	uint16_t *bf16 = malloc(n * sizeof(*bf16));
	struct jm_resize_room room = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_resize_to to = {.size = size, .type = JM_F32};

	for (int flips = 0; flips < 2; flips++) {
		to.flips = flips;
		to.values = values[flips];
		assert_ok(jm_picture_resize(p, box, &to, &room, &err), err);
	}
	to.type = JM_BF16;
	to.values = bf16;
	assert_ok(jm_picture_resize(p, box, &to, &room, &err), err);
	for (int i = 0; i < (int)n; i++) {
		int x = i % size, y = i / size % size, c = i / size / size;
		double truth = resized(p, box, size, x, y, c) / 255;

		assert_near((double)values[0][i], (truth - mean[c]) / deviation[c], 2e-5);
		assert_true(values[1][i - x + size - 1 - x] == values[0][i]);
		assert_int_equal(bf16[i], jm_bf16_set(values[1][i]));
	}
	for (int k = 0; k < 2; k++)
		free(values[k]);
	free(bf16);
	jm_resize_room_done(&room);
}

static void test_resizes_by_triangles(void **state)
{
	static const struct {
		int width, height, size;
		struct jm_picture_box box;
	} cases[] = {{64, 64, 2, {4, 4, 56, 56}}, {50, 37, 16, {0, 0, 50, 37}},
		{50, 37, 13, {30.5, 20.25, 19.5, 16}}, {9, 7, 21, {2, 1, 6, 5}},
		{1, 1, 5, {0, 0, 1, 1}}, {40, 3, 7, {1, 0, 38, 3}}, {70, 60, 9, {60, 55, 10, 5}}};

	(void)state;
	srand(4);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct jm_picture p = draw(cases[i].width, cases[i].height);

		expect_resized(&p, &cases[i].box, cases[i].size);
		free(p.rgb);
	}
}

/* The pixels of a part, as a decoder that reads no more gives them. */
static struct jm_picture cut(const struct jm_picture *p, const struct jm_picture_part *part)
{
	struct jm_picture ret = {.width = part->width,
		.height = part->height,
		.left = part->left,
		.top = part->top,
		.shrink = 1,
		.rgb = calloc((size_t)part->width * (size_t)part->height, 3)};

	for (int y = 0; y < part->height; y++)
		memcpy(ret.rgb + 3 * y * part->width,
			p->rgb + 3 * ((part->top + y) * p->width + part->left),
			3 * (size_t)part->width);
	return ret;
}

/* A crop is the same from the part that it asked for as from the whole picture. */
static void test_part_is_enough(void **state)
{
	struct jm_crop crop = {.size = 12, .kind = JM_CROP_RANDOM, .flip = true, .type = JM_F32};
	struct jm_picture whole = draw(61, 47);
	struct jm_resize_room room = {0};
	struct jm_err err = JM_ERR_INIT;
	float a[3 * 144], b[3 * 144];

	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct jm_crop_taken taken;
		struct jm_picture_part part;
		struct jm_picture p;

		crop.kind = seed % 4 ? JM_CROP_RANDOM : JM_CROP_CENTRE;
		jm_crop_choose(&crop, seed, whole.width, whole.height, &taken, &part);
		assert_true(part.shrink == 1 || (part.width >= 24 && part.height >= 24));
		p = cut(&whole, &part);
		assert_ok(jm_crop_apply(&crop, &taken, &whole, &room, a, &err), err);
		assert_ok(jm_crop_apply(&crop, &taken, &p, &room, b, &err), err);
		for (int i = 0; i < 3 * 144; i++)
			assert_near((double)a[i], (double)b[i], 1e-5);
		free(p.rgb);
	}
	free(whole.rgb);
	jm_resize_room_done(&room);
}

/* Waves of 7 to 60 pixels. */
static void write_waves(const char *path, int width, int height)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f, "P6\n%d %d\n255\n", width, height);
	for (int i = 0; i < 3 * width * height; i++) {
		int x = i / 3 % width, y = i / 3 / width, c = i % 3;

		fputc((int)(128 + 60 * sin(x * 0.1 * (c + 1)) + 60 * sin(y * 0.9 + x * 0.2)), f);
	}
	assert_int_equal(fclose(f), 0);
}

struct view {
	struct jm_crop crop;
	uint64_t seed;
	int shrink; /* 0 = what the crop chooses, and then that */
	struct jm_crop_taken taken;
};

static void take_view(void *arg, int width, int height, struct jm_picture_part *ret)
{
	struct view *v = arg;

	jm_crop_choose(&v->crop, v->seed, width, height, &v->taken, ret);
	if (v->shrink)
		ret->shrink = v->shrink;
	v->shrink = ret->shrink;
}

static void load(const char *path, struct view *v, float *ret)
{
	struct jm_picture_decoder decoder = {.choose = take_view, .arg = v};
	struct jm_resize_room room = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_picture p;
	unsigned char *bytes;
	size_t n;

	assert_ok(jm_data_file_read(path, 1 << 22, &bytes, &n, &err), err);
	assert_ok(jm_picture_decode(&decoder, path, bytes, n, &p, &err), err);
	assert_ok(jm_crop_apply(&v->crop, &v->taken, &p, &room, ret, &err), err);
	free(bytes);
	jm_picture_decoder_done(&decoder);
	jm_resize_room_done(&room);
}

/* Decoding a large picture smaller changes values of strong waves by 3 of 255 on average, and none
 * by more than 12. */
static void test_smaller_decoding_is_near(void **state)
{
	static const int size[] = {100, 50, 24}, shrink[] = {2, 4, 8};

	(void)state;
	if (system("command -v cjpeg >/dev/null"))
		skip();
	assert_int_equal(chdir(getenv("TMPDIR")), 0);
	write_waves("in.ppm", 460, 400);
	assert_int_equal(system("cjpeg -quality 92 in.ppm >a.jpg"), 0);
	for (int k = 0; k < 3; k++) {
		struct view v = {.crop = {.size = size[k], .kind = JM_CROP_CENTRE, .type = JM_F32}};
		int n = 3 * size[k] * size[k];
		float *a = malloc((size_t)n * sizeof(*a)), *b = malloc((size_t)n * sizeof(*b));
		double sum = 0, most = 0;

		load("a.jpg", &v, a);
		assert_int_equal(v.shrink, shrink[k]);
		v.shrink = 1;
		load("a.jpg", &v, b);
		for (int i = 0; i < n; i++) {
			sum += fabs((double)a[i] - (double)b[i]) * 255 * 0.225;
			most = fmax(most, fabs((double)a[i] - (double)b[i]) * 255 * 0.225);
		}
		assert_true(sum / n < 3 && most < 12);
		free(a);
		free(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_depends_on_seed_alone),
		cmocka_unit_test(test_order_is_a_permutation),
		cmocka_unit_test(test_groups_are_sorted_by_length),
		cmocka_unit_test(test_groups_depend_on_seed_alone),
		cmocka_unit_test(test_depth_grows_to_the_memory),
		cmocka_unit_test(test_waiting_is_not_processor_time),
		cmocka_unit_test(test_epochs_and_evaluations_have_all),
		cmocka_unit_test(test_resizes_by_triangles), cmocka_unit_test(test_part_is_enough),
		cmocka_unit_test(test_smaller_decoding_is_near)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
