/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG files that a fake nvJPEG decodes, which changes the lowest bit of red: the rows of a part,
 * what is left to the host, the loader's counts, and each failure. */
#include "data/sets/data_set.h"
#include "kit/test.h"
#include "vendor/nvjpeg.h"
#include "workloads/train/picture_loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIDTH  67
#define HEIGHT 45
#define BUS    "0000:1b:00.0"
/* of a crop: too large for decoding at a half of the size, which a GPU does not do */
#define SIDE 32
#define PART (3 * SIDE * SIDE)

static bool is_ready(const char *fake)
{
	const char *dir = getenv("TMPDIR"), *build = getenv("JM_BUILD");
	char path[4096];

	if (!dir || !build || system("command -v cjpeg >/dev/null"))
		return false;
	snprintf(path, sizeof(path), "%s/tests/peers/libnvjpeg-fake.so", build);
	if (access(path, R_OK)) /* built without the headers of libjpeg-turbo */
		return false;
	assert_int_equal(chdir(dir), 0);
	setenv("JM_NVJPEG_LIB", path, 1);
	setenv("JM_CUDA_LIB", path, 1);
	setenv("NVJPEG_FAKE", fake, 1);
	return true;
}

static void make_file(const char *path, const char *options)
{
	char command[256];
	FILE *f = fopen("in.ppm", "w");

	assert_non_null(f);
	fprintf(f, "P6\n%d %d\n255\n", WIDTH, HEIGHT);
	for (int i = 0; i < 3 * WIDTH * HEIGHT; i++)
		fputc(i * i / 7 % 251, f);
	assert_int_equal(fclose(f), 0);
	snprintf(command, sizeof(command), "cjpeg %s in.ppm >%s", options, path);
	assert_int_equal(system(command), 0);
}

struct file {
	unsigned char *bytes;
	size_t n;
};

static struct file read_file(const char *options)
{
	struct jm_err err = JM_ERR_INIT;
	struct file f;

	make_file("a.jpg", options);
	assert_ok(jm_data_file_read("a.jpg", 1 << 22, &f.bytes, &f.n, &err), err);
	return f;
}

static struct jm_nvjpeg *open_gpu(void)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_nvjpeg *gpu;

	assert_ok(jm_nvjpeg_open(BUS, &gpu, &err), err);
	assert_string_equal(jm_nvjpeg_name(gpu), "nvJPEG 13.12.11");
	return gpu;
}

/* The same pixels as the host's, but for the lowest bit of red. */
static void expect_changed(const struct jm_picture *host, const struct jm_picture *gpu)
{
	assert_int_equal(gpu->width, host->width);
	for (int y = 0; y < gpu->height; y++)
		for (int x = 0; x < 3 * gpu->width; x++)
			assert_int_equal(gpu->rgb[3 * y * gpu->width + x],
				host->rgb[3 * (y + gpu->top) * host->width + x] ^ (x % 3 == 0));
}

static void choose_rows(void *arg, int width, int height, struct jm_picture_part *ret)
{
	(void)arg;
	assert_int_equal(width, WIDTH);
	assert_int_equal(height, HEIGHT);
	*ret = (struct jm_picture_part){
		.left = 30, .top = 11, .width = 20, .height = 17, .shrink = 2};
}

static void expect_decoded(const char *options, const char *fake, enum jm_picture_by by)
{
	struct file f = read_file(options);
	struct jm_picture_decoder host = {0}, gpu = {0}, part = {.choose = choose_rows};
	struct jm_err err = JM_ERR_INIT;
	struct jm_picture a, b;
	struct jm_nvjpeg *j;

	setenv("NVJPEG_FAKE", fake, 1);
	j = gpu.gpu = open_gpu();
	assert_ok(jm_picture_decode(&host, "a.jpg", f.bytes, f.n, &a, &err), err);
	assert_ok(jm_picture_decode(&gpu, "a.jpg", f.bytes, f.n, &b, &err), err);
	assert_int_equal(a.by, JM_PICTURE_BY_HOST);
	assert_int_equal(b.by, by);
	assert_int_equal(b.height, HEIGHT);
	expect_changed(&a, &b);
	jm_picture_decoder_done(&gpu);
	part.gpu = j;
	assert_ok(jm_picture_decode(&part, "a.jpg", f.bytes, f.n, &b, &err), err);
	assert_true(b.top <= 11 && b.top + b.height >= 28 && b.height < HEIGHT && b.shrink == 1);
	expect_changed(&a, &b);
	jm_picture_decoder_done(&part);
	jm_picture_decoder_done(&host);
	jm_nvjpeg_close(j);
	free(f.bytes);
}

static void test_decodes_on_the_gpu(void **state)
{
	(void)state;
	if (!is_ready(""))
		skip();
	expect_decoded("-quality 90", "", JM_PICTURE_BY_GPU);
	expect_decoded("-grayscale", "", JM_PICTURE_BY_GPU);
	expect_decoded("-quality 90", "engine", JM_PICTURE_BY_ENGINE);
	expect_decoded("-progressive", "engine", JM_PICTURE_BY_GPU);
}

/* What the library may not notice, or cannot decode, is the host's. */
static void test_leaves_damaged_files_to_the_host(void **state)
{
	struct jm_picture_decoder d = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_nvjpeg *j;
	struct jm_picture p;
	struct file f;

	(void)state;
	if (!is_ready("engine"))
		skip();
	f = read_file("-quality 90");
	j = d.gpu = open_gpu();
	assert_int_equal(jm_picture_decode(&d, "a.jpg", f.bytes, f.n - 100, &p, &err), JM_EFORMAT);
	assert_non_null(strstr(err.text, "a.jpg is damaged"));
	err = (struct jm_err)JM_ERR_INIT;
	memset(f.bytes + 3, 0, 40); /* no header, but both ends */
	assert_int_equal(jm_picture_decode(&d, "a.jpg", f.bytes, f.n, &p, &err), JM_EFORMAT);
	assert_non_null(strstr(err.text, "a.jpg is damaged"));
	jm_picture_decoder_done(&d);
	jm_nvjpeg_close(j);
	free(f.bytes);
}

/* Each of them, until there are too many in a row; then nvJPEG decodes again. */
static void expect_left_to_host(const char *fake)
{
	struct file f = read_file("-quality 90");
	struct jm_picture_decoder d = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_nvjpeg *j = d.gpu = open_gpu();
	struct jm_picture p;

	for (int i = 0; i < 16; i++) {
		setenv("NVJPEG_FAKE", i % 8 == 7 ? "" : fake, 1);
		assert_ok(jm_picture_decode(&d, "a.jpg", f.bytes, f.n, &p, &err), err);
		assert_int_equal(p.by, i % 8 == 7 ? JM_PICTURE_BY_GPU : JM_PICTURE_BY_HOST);
	}
	setenv("NVJPEG_FAKE", fake, 1);
	for (int i = 0; i < 7; i++)
		assert_ok(jm_picture_decode(&d, "a.jpg", f.bytes, f.n, &p, &err), err);
	assert_int_equal(jm_picture_decode(&d, "a.jpg", f.bytes, f.n, &p, &err), JM_EGONE);
	assert_sentence(&err, JM_EGONE);
	assert_non_null(strstr(err.text, "8 pictures in a row"));
	jm_picture_decoder_done(&d);
	jm_nvjpeg_close(j);
	free(f.bytes);
}

static void test_leaves_files_at_which_it_fails_to_the_host(void **state)
{
	(void)state;
	if (!is_ready(""))
		skip();
	expect_left_to_host("2");
	expect_left_to_host("6");
	expect_left_to_host("8");
}

static void expect_failure(const char *fake, int code, const char *says)
{
	struct file f = read_file("-quality 90");
	struct jm_picture_decoder d = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_nvjpeg *j;
	struct jm_picture p;

	j = d.gpu = open_gpu();
	setenv("NVJPEG_FAKE", fake, 1);
	assert_int_equal(jm_picture_decode(&d, "a.jpg", f.bytes, f.n, &p, &err), code);
	assert_sentence(&err, code);
	assert_non_null(strstr(err.text, says));
	jm_picture_decoder_done(&d);
	jm_nvjpeg_close(j);
	setenv("NVJPEG_FAKE", "", 1);
	free(f.bytes);
}

static void expect_no_gpu(const char *bus, int code, const char *says)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_nvjpeg *j = NULL;

	assert_int_equal(jm_nvjpeg_open(bus, &j, &err), code);
	assert_sentence(&err, code);
	assert_non_null(strstr(err.text, says));
	assert_null(j);
}

static void test_failures_have_a_sentence(void **state)
{
	(void)state;
	if (!is_ready(""))
		skip();
	expect_failure("gone", JM_EGONE, "error 719 of the driver");
	expect_failure("7", JM_EGONE, "status 7");
	expect_failure("full", JM_ENOMEM, "smaller --batch");
	expect_no_gpu("0000:ff:00.0", JM_EGONE, "Finding the GPU");
	setenv("NVJPEG_FAKE", "old", 1);
	expect_no_gpu(BUS, JM_EVERSION, "nvJPEG 13.12.11 cannot be started");
	setenv("JM_CUDA_LIB", "/none.so", 1);
	expect_no_gpu(BUS, JM_ENOSUP, "driver cannot be loaded");
	setenv("JM_NVJPEG_LIB", "/none.so", 1);
	expect_no_gpu(BUS, JM_ENOSUP, "nvidia-nvjpeg");
}

/* ---- the loader ------------------------------------------------------------------------------ */

static void make_folder(void)
{
	char path[64];

	assert_int_equal(mkdir("set", 0700), 0);
	assert_int_equal(mkdir("set/class", 0700), 0);
	for (int i = 0; i < 6; i++) {
		snprintf(path, sizeof(path), "set/class/%d.jpg", i);
		make_file(path, i % 2 ? "-quality 90" : "-quality 70 -progressive");
	}
	assert_int_equal(truncate("set/class/5.jpg", 300), 0);
}

static struct jm_loader_way way_of(const struct jm_data_set *set, struct jm_nvjpeg *gpu)
{
	return (struct jm_loader_way){.set = set,
		.part = {{.type = JM_DATA_PICTURE, .bytes = PART}},
		.parts = 1,
		.crop = {.size = SIDE, .kind = JM_CROP_RANDOM, .flip = true, .type = JM_U8},
		.gpu = gpu,
		.memory = 1 << 20,
		.seed = 5,
		.batch = 6,
		.threads = 3,
		.world = 1};
}

static struct jm_loader_cost take_two(const struct jm_loader_way *way, unsigned char *ret)
{
	struct jm_picture_loader *l;
	struct jm_err err = JM_ERR_INIT;
	struct jm_loader_cost cost;

	assert_ok(jm_picture_loader_open(way, &l, &err), err);
	for (int64_t k = 0; k < 2; k++)
		assert_ok(jm_picture_loader_take(l, k, (void *[]){ret + k * 6 * PART}, &err), err);
	cost = jm_picture_loader_cost(l);
	jm_picture_loader_close(l);
	return cost;
}

/* Crops of both are the same parts: on the GPU of pictures with another bit. */
static void test_loader_counts_who_decoded(void **state)
{
	unsigned char a[12 * PART], b[12 * PART];
	struct jm_loader_cost cost;
	struct jm_loader_way way;
	struct jm_data_set set;
	struct jm_err err = JM_ERR_INIT;
	int far = 0;

	(void)state;
	if (!is_ready("engine"))
		skip();
	make_folder();
	assert_ok(jm_data_set_open("set", JM_PART_TRAIN, &set, &err), err);
	way = way_of(&set, NULL);
	cost = take_two(&way, a);
	assert_int_equal(cost.by[JM_PICTURE_BY_HOST], cost.pictures);
	way.gpu = open_gpu();
	cost = take_two(&way, b);
	assert_int_equal(cost.corrupt, 1);
	assert_int_equal(cost.by[JM_PICTURE_BY_HOST], 0);
	assert_true(cost.by[JM_PICTURE_BY_GPU] >= 4 && cost.by[JM_PICTURE_BY_ENGINE] >= 4);
	assert_int_equal(cost.by[JM_PICTURE_BY_GPU] + cost.by[JM_PICTURE_BY_ENGINE], cost.pictures);
	for (size_t i = 0; i < sizeof(a); i++)
		far += abs(a[i] - b[i]) > 2;
	assert_int_equal(far, 0);
	assert_memory_not_equal(a, b, sizeof(a));
	jm_nvjpeg_close(way.gpu);
	jm_data_set_close(&set);
}

static void test_loader_counts_failures_of_the_engine(void **state)
{
	unsigned char a[12 * PART];
	struct jm_loader_cost cost;
	struct jm_loader_way way;
	struct jm_data_set set;
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	if (!is_ready("engine-fails"))
		skip();
	assert_ok(jm_data_set_open("set", JM_PART_TRAIN, &set, &err), err);
	way = way_of(&set, open_gpu());
	cost = take_two(&way, a);
	assert_int_equal(cost.by[JM_PICTURE_BY_GPU], cost.pictures);
	assert_true(cost.engine_failed >= 4 && cost.engine_failed < cost.pictures);
	jm_nvjpeg_close(way.gpu);
	jm_data_set_close(&set);
}

/* A GPU that fails ends the run; it does not count pictures as damaged. */
static void test_failed_gpu_ends_loading(void **state)
{
	struct jm_picture_loader *l;
	struct jm_loader_way way;
	struct jm_data_set set;
	struct jm_err err = JM_ERR_INIT;
	unsigned char to[6 * PART];

	(void)state;
	if (!is_ready(""))
		skip();
	assert_ok(jm_data_set_open("set", JM_PART_TRAIN, &set, &err), err);
	way = way_of(&set, open_gpu());
	setenv("NVJPEG_FAKE", "gone", 1);
	assert_ok(jm_picture_loader_open(&way, &l, &err), err);
	assert_int_equal(jm_picture_loader_take(l, 0, (void *[]){to}, &err), JM_EGONE);
	assert_sentence(&err, JM_EGONE);
	jm_picture_loader_close(l);
	jm_nvjpeg_close(way.gpu);
	jm_data_set_close(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_decodes_on_the_gpu),
		cmocka_unit_test(test_leaves_damaged_files_to_the_host),
		cmocka_unit_test(test_leaves_files_at_which_it_fails_to_the_host),
		cmocka_unit_test(test_failures_have_a_sentence),
		cmocka_unit_test(test_loader_counts_who_decoded),
		cmocka_unit_test(test_loader_counts_failures_of_the_engine),
		cmocka_unit_test(test_failed_gpu_ends_loading)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
