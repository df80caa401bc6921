/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels of JPEG files that cjpeg wrote, whole, in part and made smaller, are those that djpeg
 * reads from them. */
#include "data/sets/data_set.h"
#include "kit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In a folder of its own. False: cjpeg or djpeg is not there. */
static bool is_ready(void)
{
	const char *dir = getenv("TMPDIR");

	if (!dir || system("command -v cjpeg djpeg >/dev/null"))
		return false;
	assert_int_equal(chdir(dir), 0);
	return true;
}

static void write_ppm(const char *path, int width, int height)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f, "P6\n%d %d\n255\n", width, height);
	for (unsigned int i = 0; i < 3u * (unsigned int)width * (unsigned int)height; i++)
		fputc((int)(i * i / 7 % 200) + rand() % 56, f);
	assert_int_equal(fclose(f), 0);
}

struct djpeg {
	int width, height;
	unsigned char *jpeg, *ppm, *rgb; /* rgb: in ppm */
	size_t n;
};

/* A JPEG that cjpeg writes, and what djpeg makes of it. */
static struct djpeg make(int width, int height, const char *options, int shrink)
{
	struct djpeg d = {0};
	struct jm_err err = JM_ERR_INIT;
	char command[256];
	size_t n_ppm;
	int header;

	write_ppm("in.ppm", width, height);
	snprintf(command, sizeof(command),
		"cjpeg %s in.ppm >a.jpg && djpeg -rgb -pnm -scale 1/%d a.jpg >out.ppm", options,
		shrink);
	assert_int_equal(system(command), 0);
	assert_ok(jm_data_file_read("a.jpg", 1 << 22, &d.jpeg, &d.n, &err), err);
	assert_ok(jm_data_file_read("out.ppm", 1 << 22, &d.ppm, &n_ppm, &err), err);
	d.ppm[n_ppm] = '\0';
	assert_int_equal(sscanf((char *)d.ppm, "P6 %d %d 255%n", &d.width, &d.height, &header), 2);
	assert_int_equal(n_ppm, header + 1 + 3 * d.width * d.height);
	d.rgb = d.ppm + header + 1;
	return d;
}

static void drop(struct djpeg *d)
{
	free(d->jpeg);
	free(d->ppm);
}

static void expect_pixels_of_djpeg(int width, int height, const char *options)
{
	struct djpeg d = make(width, height, options, 1);
	struct jm_picture_decoder decoder = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_picture p;

	assert_ok(jm_picture_decode(&decoder, "a.jpg", d.jpeg, d.n, &p, &err), err);
	assert_int_equal(p.width, width);
	assert_int_equal(p.height, height);
	assert_memory_equal(d.rgb, p.rgb, 3 * width * height);
	jm_picture_decoder_done(&decoder);
	drop(&d);
}

static void test_equals_djpeg(void **state)
{
	static const char *const options[] = {"-quality 90", "-quality 50 -progressive",
		"-sample 1x1", "-sample 2x1", "-grayscale", "-optimize -restart 1"};

	(void)state;
	if (!is_ready())
		skip();
	srand(1);
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		expect_pixels_of_djpeg(67, 45, options[i]);
		expect_pixels_of_djpeg(1, 1, options[i]);
	}
}

static void take_part(void *arg, int width, int height, struct jm_picture_part *ret)
{
	(void)width;
	(void)height;
	*ret = *(const struct jm_picture_part *)arg;
}

/* All pixels that lie wholly in the part are there. */
static void expect_part(
	const struct djpeg *d, const struct jm_picture *p, const struct jm_picture_part *part)
{
	int left = (part->left + part->shrink - 1) / part->shrink;
	int width = (part->left + part->width) / part->shrink - left;
	int top = (part->top + part->shrink - 1) / part->shrink;

	assert_int_equal(p->shrink, part->shrink);
	assert_true(p->left <= left && p->left + p->width >= left + width);
	for (int y = top; y < (part->top + part->height) / part->shrink && width > 0; y++) {
		assert_in_range(y, p->top, p->top + p->height - 1);
		assert_memory_equal(d->rgb + 3 * (y * d->width + left),
			p->rgb + 3 * ((y - p->top) * p->width + left - p->left), 3 * width);
	}
}

static void expect_parts(int width, int height, const char *options, int shrink)
{
	struct djpeg d = make(width, height, options, shrink);
	struct jm_picture_part part;
	struct jm_picture_decoder decoder = {.choose = take_part, .arg = &part};
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < 60; i++) {
		struct jm_picture p;

		part.left = rand() % width;
		part.top = rand() % height;
		part.width = 1 + rand() % (width - part.left);
		part.height = 1 + rand() % (height - part.top);
		part.shrink = shrink;
		assert_ok(jm_picture_decode(&decoder, "a.jpg", d.jpeg, d.n, &p, &err), err);
		expect_part(&d, &p, &part);
	}
	jm_picture_decoder_done(&decoder);
	drop(&d);
}

static void test_parts_equal_djpeg(void **state)
{
	static const char *const options[] = {"-quality 90", "-quality 50 -progressive",
		"-sample 1x1", "-sample 2x1", "-sample 4x2", "-sample 2x1,4x1,1x1", "-grayscale",
		"-optimize -restart 1"};

	(void)state;
	if (!is_ready())
		skip();
	srand(2);
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		for (int shrink = 1; shrink <= 8; shrink *= 2) {
			expect_parts(203, 149, options[i], shrink);
			expect_parts(16, 33, options[i], shrink);
		}
}

/* A file that ends early is damaged, also where the part lies before its end. */
static void test_damage_beyond_the_part(void **state)
{
	struct djpeg d;
	struct jm_picture_part part = {.width = 40, .height = 20, .shrink = 1};
	struct jm_picture_decoder decoder = {.choose = take_part, .arg = &part};
	struct jm_err err = JM_ERR_INIT;
	struct jm_picture p;

	(void)state;
	if (!is_ready())
		skip();
	d = make(203, 149, "-quality 90", 1);
	assert_int_equal(
		jm_picture_decode(&decoder, "a.jpg", d.jpeg, d.n - 200, &p, &err), JM_EFORMAT);
	assert_sentence(&err, JM_EFORMAT);
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(jm_picture_decode(&decoder, "a.jpg", d.jpeg, d.n, &p, &err), err);
	expect_part(&d, &p, &part); /* the decoder goes on behind a damaged file */
	jm_picture_decoder_done(&decoder);
	drop(&d);
}

/* Two pixels of grey, 0x4080 and 0xffff. */
static void test_sixteen_bits_become_eight_without_a_gamma(void **state)
{
	static const unsigned char png[] = {0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00,
		0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00,
		0x01, 0x10, 0x00, 0x00, 0x00, 0x00, 0x81, 0xd9, 0xfc, 0x15, 0x00, 0x00, 0x00, 0x0d,
		0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x70, 0x68, 0xf8, 0xff, 0x1f, 0x00, 0x05,
		0x82, 0x02, 0xbf, 0xe3, 0xae, 0x7e, 0x51, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e,
		0x44, 0xae, 0x42, 0x60, 0x82};
	struct jm_picture_decoder decoder = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_picture p;
	int code = jm_picture_decode(&decoder, "a.png", png, sizeof(png), &p, &err);

	(void)state;
	if (code && strstr(err.text, "built without"))
		skip();
	assert_ok(code, err);
	assert_memory_equal(p.rgb, ((unsigned char[]){64, 64, 64, 255, 255, 255}), 6);
	jm_picture_decoder_done(&decoder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_djpeg),
		cmocka_unit_test(test_parts_equal_djpeg),
		cmocka_unit_test(test_damage_beyond_the_part),
		cmocka_unit_test(test_sixteen_bits_become_eight_without_a_gamma)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
