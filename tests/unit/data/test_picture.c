/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels of JPEG files that cjpeg wrote are those that djpeg reads from them. */
#include "data/sets/data_set.h"
#include "kit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_ppm(const char *path, int width, int height)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f, "P6\n%d %d\n255\n", width, height);
	for (int i = 0; i < 3 * width * height; i++)
		fputc(i * i / 7 % 200 + rand() % 56, f);
	assert_int_equal(fclose(f), 0);
}

static void expect_pixels_of_djpeg(int width, int height, const char *options)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_picture p;
	unsigned char *jpeg, *ppm;
	char command[256], header[40];
	size_t n, n_ppm;

	write_ppm("in.ppm", width, height);
	snprintf(command, sizeof(command),
		"cjpeg %s in.ppm >a.jpg && djpeg -rgb -pnm a.jpg >out.ppm", options);
	assert_int_equal(system(command), 0);
	assert_ok(jm_data_file_read("a.jpg", 1 << 20, &jpeg, &n, &err), err);
	assert_ok(jm_data_file_read("out.ppm", 1 << 20, &ppm, &n_ppm, &err), err);
	assert_ok(jm_picture_decode("a.jpg", jpeg, n, &p, &err), err);
	snprintf(header, sizeof(header), "P6\n%d %d\n255\n", width, height);
	assert_int_equal(n_ppm, strlen(header) + (size_t)(3 * width * height));
	assert_memory_equal(ppm + strlen(header), p.rgb, 3 * width * height);
	jm_picture_done(&p);
	free(jpeg);
	free(ppm);
}

static void test_equals_djpeg(void **state)
{
	static const char *const options[] = {"-quality 90", "-quality 50 -progressive",
		"-sample 1x1", "-sample 2x1", "-grayscale", "-optimize -restart 1"};

	(void)state;
	if (system("command -v cjpeg djpeg >/dev/null"))
		skip();
	assert_int_equal(chdir(getenv("TMPDIR")), 0);
	srand(1);
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		expect_pixels_of_djpeg(67, 45, options[i]);
		expect_pixels_of_djpeg(1, 1, options[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_djpeg)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
