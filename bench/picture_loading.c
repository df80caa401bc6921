/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processor time per picture of the loader (reading, decoding, random crop, resizing, mirroring,
 * values of the device's type) beside that of a bare loop of libjpeg-turbo over the same files,
 * which are in memory there and decoded as a whole. One thread each, in turns; the pictures are
 * made before.
 *
 *	picture_loading [PICTURES [ROUNDS [WIDTH HEIGHT [SIZE]]]]
 *
 * Or pictures per second of both by the number of threads, with values of one byte, as lines of
 * JSON for bench/loading_chart.py; the thread that takes batches is one more.
 *
 *	picture_loading threads 1,2,4 [SECONDS [PICTURES | DIR]]
 *
 * DIR: a folder of JPEG files in one folder per class, which are loaded in place of those that it
 * makes; all of them fit into memory.
 */
#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
/* */
#include <jpeglib.h>

#include "joulemark.h"
#include "base/stat/stat.h"
#include "workloads/train/picture_loader.h"

enum { OCTAVES = 7, SHAPES = 30, QUALITY = 92, BATCH = 16, ROUNDS_MOST = 1000 };
enum { THREADS_MOST = 512, BATCH_STEP = 128 }; /* of the measurement by threads */
/* bytes that batches ahead may take there; a single thread prepares two batches */
#define MEMORY (UINT64_C(2) << 30)

struct bench {
	int pictures, rounds, width, height, size;
	char dir[256];
	unsigned char **file;
	size_t *bytes;
};

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

_Noreturn static void fail(const char *what)
{
	fprintf(stderr, "picture_loading: %s.\n", what);
	exit(1);
}

static double uniform(void)
{
	return rand() / (RAND_MAX + 1.0);
}

/* ---- pictures ---- */

/* Detail of all sizes, as in photographs: amplitude like 1 / frequency, edges, noise. */

/* Adds one octave: random values on a grid of `step` pixels, bilinear between them. */
static void add_octave(const struct bench *b, int step, double amplitude, float *to)
{
	int across = b->width / step + 2, down = b->height / step + 2;
	double *grid = calloc((size_t)across * (size_t)down, sizeof(*grid));

	if (!grid)
		fail("out of memory");
	for (int i = 0; i < across * down; i++)
		grid[i] = amplitude * (2 * uniform() - 1);
	for (int y = 0; y < b->height; y++)
		for (int x = 0; x < b->width; x++) {
			const double *g = grid + y / step * across + x / step;
			double right = (double)(x % step) / step, low = (double)(y % step) / step;

			to[3 * (y * b->width + x)] +=
				(float)((1 - low) * ((1 - right) * g[0] + right * g[1]) +
					low * ((1 - right) * g[across] + right * g[across + 1]));
		}
	free(grid);
}

/* An ellipse of another colour with a sharp edge. */
static void add_shape(const struct bench *b, float *to)
{
	double x0 = uniform() * b->width, y0 = uniform() * b->height, colour[3] = {0};
	double a = (0.01 + 0.2 * uniform()) * b->width, c = (0.01 + 0.2 * uniform()) * b->height;

	for (int i = 0; i < 3; i++)
		colour[i] = 120 * uniform() - 60;
	for (int y = 0; y < b->height; y++)
		for (int x = 0; x < b->width; x++)
			for (int i = 0; i < 3; i++)
				if (hypot((x - x0) / a, (y - y0) / c) < 1)
					to[3 * (y * b->width + x) + i] += (float)colour[i];
}

static void draw(const struct bench *b, unsigned char *rgb)
{
	int n = 3 * b->width * b->height;
	float *values = calloc((size_t)n, sizeof(*values));

	if (!values)
		fail("out of memory");
	for (int i = 0; i < n; i++)
		values[i] = 128;
	for (int c = 0; c < 3; c++)
		for (int o = 0; o < OCTAVES; o++)
			add_octave(b, 1 << o, (c ? 0.4 : 1.2) * (14 + (1 << o)), values + c);
	for (int i = 0; i < SHAPES; i++)
		add_shape(b, values);
	for (int i = 0; i < n; i++)
		rgb[i] = (unsigned char)fmin(fmax((double)values[i], 0), 255);
	free(values);
}

static void write_jpeg(const struct bench *b, const unsigned char *rgb, FILE *f)
{
	struct jpeg_error_mgr jerr;
	struct jpeg_compress_struct c = {.err = jpeg_std_error(&jerr)};

	jpeg_create_compress(&c);
	jpeg_stdio_dest(&c, f);
	c.image_width = (JDIMENSION)b->width;
	c.image_height = (JDIMENSION)b->height;
	c.input_components = 3;
	c.in_color_space = JCS_RGB;
	jpeg_set_defaults(&c);
	jpeg_set_quality(&c, QUALITY, TRUE);
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < c.image_height)
		jpeg_write_scanlines(
			&c, (JSAMPROW[]){(JSAMPROW)(rgb + 3 * c.next_scanline * c.image_width)}, 1);
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
}

static void path_of(const struct bench *b, int i, char path[300])
{
	snprintf(path, 300, "%s/all/%05d.jpg", b->dir, i);
}

/* The file stands at its end. */
static void keep(struct bench *b, int i, FILE *f)
{
	b->bytes[i] = (size_t)ftell(f);
	b->file[i] = malloc(b->bytes[i]);
	rewind(f);
	if (!b->file[i] || fread(b->file[i], 1, b->bytes[i], f) != b->bytes[i])
		fail("a picture cannot be read back");
}

static double make_files(struct bench *b)
{
	unsigned char *rgb = calloc((size_t)b->width * (size_t)b->height, 3);
	char path[300];
	double bytes = 0;

	snprintf(path, sizeof(path), "%s/all", b->dir);
	if (mkdir(path, 0700))
		fail("a folder for pictures cannot be made");
	for (int i = 0; i < b->pictures; i++) {
		FILE *f;

		path_of(b, i, path);
		f = fopen(path, "w+");
		if (!f)
			fail("a picture cannot be written");
		draw(b, rgb);
		write_jpeg(b, rgb, f);
		keep(b, i, f);
		bytes += (double)b->bytes[i];
		fclose(f);
	}
	free(rgb);
	return bytes / b->pictures;
}

static void remove_files(const struct bench *b)
{
	char path[300];

	for (int i = 0; i < b->pictures; i++) {
		path_of(b, i, path);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/all", b->dir);
	rmdir(path);
	rmdir(b->dir);
}

/* ---- both sides ------------------------------------------------------------------------------ */

static void decode(
	const struct bench *b, int i, struct jpeg_decompress_struct *d, unsigned char *rgb)
{
	jpeg_mem_src(d, b->file[i], b->bytes[i]);
	jpeg_read_header(d, TRUE);
	d->out_color_space = JCS_RGB;
	jpeg_start_decompress(d);
	while (d->output_scanline < d->output_height)
		jpeg_read_scanlines(
			d, (JSAMPROW[]){rgb + 3 * d->output_scanline * d->output_width}, 1);
	jpeg_finish_decompress(d);
}

/* CPU seconds per picture of libjpeg-turbo alone. */
static double bare(const struct bench *b, struct jpeg_decompress_struct *d, unsigned char *rgb)
{
	double begun = cpu_now();

	for (int i = 0; i < b->pictures; i++)
		decode(b, i, d, rgb);
	return (cpu_now() - begun) / b->pictures;
}

/* Until the loader's thread has prepared all that it may; ret: pictures so far. */
static int64_t wait_idle(struct jm_picture_loader *l, int64_t taken)
{
	for (;;) {
		struct jm_loader_cost c = jm_picture_loader_cost(l);

		if (c.pictures >= (taken + c.depth) * BATCH)
			return c.pictures;
		usleep(1000);
	}
}

/* CPU seconds per picture of the loader's thread and the one that takes; batches go on at
 * *number. */
static double loaded(
	const struct bench *b, struct jm_picture_loader *l, int64_t *number, void *pixels)
{
	int32_t target[BATCH];
	struct jm_err err = JM_ERR_INIT;
	int64_t before = wait_idle(l, *number);
	double begun = cpu_now();

	for (int i = 0; i < b->pictures; i += BATCH)
		if (jm_picture_loader_take(l, (*number)++, (void *[]){pixels, target}, &err))
			fail(err.text);
	before = wait_idle(l, *number) - before;
	return (cpu_now() - begun) / (double)before;
}

/* ms per picture */
static double print(const char *name, double *s, int n)
{
	qsort(s, (size_t)n, sizeof(*s), jm_stat_by_value);
	printf("%-22s %7.3f %7.3f %7.3f %9.0f\n", name, 1e3 * s[0], 1e3 * s[n / 2], 1e3 * s[n - 1],
		1 / s[n / 2]);
	return s[n / 2];
}

static void compare(
	const struct bench *b, struct jm_picture_loader *l, const char *type, size_t bytes)
{
	static double alone[ROUNDS_MOST], whole[ROUNDS_MOST], ratio[ROUNDS_MOST];
	struct jpeg_error_mgr jerr;
	struct jpeg_decompress_struct d = {.err = jpeg_std_error(&jerr)};
	unsigned char *rgb = calloc((size_t)b->width * (size_t)b->height, 3);
	void *pixels = malloc((size_t)BATCH * bytes);
	struct jm_err err = JM_ERR_INIT;
	int64_t number = 0;

	jpeg_create_decompress(&d);
	bare(b, &d, rgb);
	if (jm_picture_loader_take(l, number++, (void *[]){pixels, (int32_t[BATCH]){0}}, &err))
		fail(err.text);
	loaded(b, l, &number, pixels);
	for (int i = 0; i < b->rounds; i++) {
		alone[i] = bare(b, &d, rgb);
		whole[i] = loaded(b, l, &number, pixels);
		ratio[i] = alone[i] / whole[i];
	}
	printf("%-22s %7s %7s %7s %9s\n", "CPU ms per picture", "least", "median", "most", "1/s");
	print("libjpeg-turbo alone", alone, b->rounds);
	print(type, whole, b->rounds);
	qsort(ratio, (size_t)b->rounds, sizeof(*ratio), jm_stat_by_value);
	printf("rate of the loader / alone: %.3f (%.3f to %.3f)\n", ratio[b->rounds / 2], ratio[0],
		ratio[b->rounds - 1]);
	jpeg_destroy_decompress(&d);
	free(rgb);
	free(pixels);
}

/* The loader of a data set, which it opens. */
static struct jm_picture_loader *open_loader(const struct bench *b, enum jm_dtype type, int threads,
	int64_t batch, struct jm_data_set *set)
{
	struct jm_picture_loader *l;
	struct jm_err err = JM_ERR_INIT;
	size_t bytes = 3 * (size_t)(b->size * b->size) * jm_dtype_bytes(type);
	struct jm_loader_way way = {.set = set,
		.part = {{.type = JM_DATA_PICTURE, .bytes = bytes},
			{.type = JM_DATA_CLASS, .bytes = sizeof(int32_t)}},
		.parts = 2,
		.crop = {.size = b->size, .kind = JM_CROP_RANDOM, .flip = true, .type = type},
		.seed = 1,
		.batch = batch,
		.threads = threads,
		.memory = MEMORY,
		.world = 1,
		.strict = true};

	if (jm_data_set_open(b->dir, JM_PART_TRAIN, set, &err) ||
		jm_picture_loader_open(&way, &l, &err))
		fail(err.text);
	return l;
}

static void run(const struct bench *b, enum jm_dtype type, const char *name)
{
	struct jm_data_set set;
	struct jm_picture_loader *l = open_loader(b, type, 1, BATCH, &set);

	compare(b, l, name, 3 * (size_t)(b->size * b->size) * jm_dtype_bytes(type));
	jm_picture_loader_close(l);
	jm_data_set_close(&set);
}

/* ---- by threads ------------------------------------------------------------------------------ */

static double wall_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct bare_thread {
	const struct bench *b;
	double until;
	long pictures;
	pthread_t thread;
};

static void *decode_until(void *arg)
{
	struct bare_thread *t = arg;
	struct jpeg_error_mgr jerr;
	struct jpeg_decompress_struct d = {.err = jpeg_std_error(&jerr)};
	unsigned char *rgb = calloc((size_t)t->b->width * (size_t)t->b->height, 3);

	if (!rgb)
		fail("out of memory");
	jpeg_create_decompress(&d);
	for (; wall_now() < t->until; t->pictures++)
		decode(t->b, (int)(t->pictures % t->b->pictures), &d, rgb);
	jpeg_destroy_decompress(&d);
	free(rgb);
	return NULL;
}

/* Pictures per second of libjpeg-turbo alone. */
static double bare_rate(const struct bench *b, int threads, double seconds)
{
	static struct bare_thread t[THREADS_MOST];
	double begun = wall_now();
	long pictures = 0;

	for (int i = 0; i < threads; i++) {
		t[i] = (struct bare_thread){.b = b, .until = begun + seconds};
		if (pthread_create(&t[i].thread, NULL, decode_until, &t[i]))
			fail("a thread cannot be started");
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(t[i].thread, NULL);
		pictures += t[i].pictures;
	}
	return (double)pictures / (wall_now() - begun);
}

/* Pictures per second that the loader has made ready, after two batches. */
static double loader_rate(const struct bench *b, int threads, double seconds)
{
	struct jm_data_set set;
	struct jm_picture_loader *l = open_loader(b, JM_U8, threads, BATCH_STEP, &set);
	size_t bytes = 3 * (size_t)(b->size * b->size) * jm_dtype_bytes(JM_U8);
	void *pixels = malloc(BATCH_STEP * bytes);
	int32_t target[BATCH_STEP];
	struct jm_err err = JM_ERR_INIT;
	int64_t number = 0, before = 0;
	double begun = 0;

	if (!pixels)
		fail("out of memory");
	for (; number <= 2 || wall_now() < begun + seconds; number++) {
		if (jm_picture_loader_take(l, number, (void *[]){pixels, target}, &err))
			fail(err.text);
		if (number == 2) {
			before = jm_picture_loader_cost(l).pictures;
			begun = wall_now();
		}
	}
	before = jm_picture_loader_cost(l).pictures - before;
	seconds = wall_now() - begun;
	jm_picture_loader_close(l);
	jm_data_set_close(&set);
	free(pixels);
	return (double)before / seconds;
}

static void by_threads(const struct bench *b, const char *list, double seconds)
{
	for (char *end; *list; list = *end == ',' ? end + 1 : end) {
		int threads = (int)strtol(list, &end, 10);

		if (end == list || threads < 1 || threads > THREADS_MOST)
			fail("threads are numbers from 1 to 512, separated by commas");
		printf("{\"threads\": %d, \"width\": %d, \"height\": %d, \"size\": %d, "
		       "\"values\": \"bytes\", \"loader\": %.1f, \"alone\": %.1f}\n",
			threads, b->width, b->height, b->size, loader_rate(b, threads, seconds),
			bare_rate(b, threads, seconds));
		fflush(stdout);
	}
}

static void make_room(struct bench *b)
{
	b->file = calloc((size_t)b->pictures, sizeof(*b->file));
	b->bytes = calloc((size_t)b->pictures, sizeof(*b->bytes));
	if (!b->file || !b->bytes)
		fail("out of memory");
}

static void make_folder(struct bench *b)
{
	make_room(b);
	if (!mkdtemp(b->dir))
		fail("no temporary folder can be made");
}

/* Widens the room for pixels to those of picture i. */
static void measure_file(struct bench *b, int i)
{
	struct jpeg_error_mgr jerr;
	struct jpeg_decompress_struct d = {.err = jpeg_std_error(&jerr)};

	jpeg_create_decompress(&d);
	jpeg_mem_src(&d, b->file[i], b->bytes[i]);
	jpeg_read_header(&d, TRUE);
	b->width = b->width > (int)d.image_width ? b->width : (int)d.image_width;
	b->height = b->height > (int)d.image_height ? b->height : (int)d.image_height;
	jpeg_destroy_decompress(&d);
}

/* Keeps the files of a folder in memory, for the bare loops. */
static void read_files(struct bench *b)
{
	char pattern[300];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/*/*", b->dir);
	if (glob(pattern, 0, NULL, &found))
		fail("the folder has no pictures in folders of classes");
	b->pictures = (int)found.gl_pathc;
	make_room(b);
	for (int i = 0; i < b->pictures; i++) {
		FILE *f = fopen(found.gl_pathv[i], "r");

		if (!f || fseek(f, 0, SEEK_END))
			fail("a picture cannot be read");
		keep(b, i, f);
		measure_file(b, i);
		fclose(f);
	}
	globfree(&found);
}

static void forget_files(struct bench *b)
{
	for (int i = 0; i < b->pictures; i++)
		free(b->file[i]);
	free(b->file);
	free(b->bytes);
}

static int run_threads(int argc, char **argv)
{
	const char *what = argc > 4 ? argv[4] : "512";
	struct bench b = {
		.pictures = atoi(what), .size = 224, .dir = "/tmp/picture_loading.XXXXXX"};
	bool makes = b.pictures > 0;

	if (argc < 3 || (makes && b.pictures < BATCH))
		fail("threads LIST [SECONDS [PICTURES | DIR]], at least 16 pictures");
	if (makes) {
		b.width = 500;
		b.height = 375;
		make_folder(&b);
		make_files(&b);
	} else {
		snprintf(b.dir, sizeof(b.dir), "%s", what);
		read_files(&b);
	}
	by_threads(&b, argv[2], argc > 3 ? atof(argv[3]) : 3);
	if (makes)
		remove_files(&b);
	forget_files(&b);
	return 0;
}

int main(int argc, char **argv)
{
	struct bench b = {.pictures = argc > 1 ? atoi(argv[1]) : 64,
		.rounds = argc > 2 ? atoi(argv[2]) : 15,
		.width = argc > 4 ? atoi(argv[3]) : 500,
		.height = argc > 4 ? atoi(argv[4]) : 375,
		.size = argc > 5 ? atoi(argv[5]) : 224,
		.dir = "/tmp/picture_loading.XXXXXX"};

	if (argc > 1 && !strcmp(argv[1], "threads"))
		return run_threads(argc, argv);
	if (b.pictures < BATCH || b.rounds < 1 || b.rounds > ROUNDS_MOST || b.width < 8 ||
		b.height < 8 || b.size < 1)
		fail("at least 16 pictures, 1 to 1000 rounds, sides of at least 8 pixels");
	make_folder(&b);
	printf("%d JPEGs of %d x %d pixels, ", b.pictures, b.width, b.height);
	printf("%.0f kB each; size %d, %d rounds\n", make_files(&b) / 1000, b.size, b.rounds);
	run(&b, JM_U8, "loader, bytes");
	run(&b, JM_BF16, "loader, bf16");
	run(&b, JM_F32, "loader, f32");
	remove_files(&b);
	return 0;
}
