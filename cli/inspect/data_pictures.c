/* SPDX-License-Identifier: Apache-2.0 */
#include "data_pictures.h"
#include "data_facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/printable.h"
#include "vendor/nvjpeg.h"

#define NAMED 5	  /* damaged files, classes and captions that are printed */
#define SHOWN 150 /* bytes of a caption */

/* What a GPU makes of the same files. */
struct on_device {
	struct jm_nvjpeg *gpu; /* NULL = none is asked */
	struct jm_picture_decoder decoder;
	int64_t by[JM_PICTURE_BY_COUNT];
	int64_t values; /* compared: three of each pixel */
	double sum;	/* of their differences */
	int largest;
};

struct look {
	int64_t corrupt, bytes;
	int64_t *count;	       /* [classes] */
	int least[2], most[2]; /* width, height */
	struct on_device device;
};

/* ---- pictures -------------------------------------------------------------------------------- */

static void compare(struct on_device *o, const struct jm_picture *a, const struct jm_picture *b)
{
	int64_t n = 3 * (int64_t)a->width * a->height;

	for (int64_t i = 0; i < n; i++) {
		int difference = abs(a->rgb[i] - b->rgb[i]);

		o->sum += difference;
		o->largest = difference > o->largest ? difference : o->largest;
	}
	o->values += n;
}

/* Reads again, by the GPU, what the host has read. */
static int read_on_device(struct on_device *o, const struct jm_data_set *set, int64_t i,
	const struct jm_picture *p, struct jm_err *err)
{
	struct jm_picture again;
	int64_t bytes;
	int code = jm_data_set_read(set, i, &o->decoder, &again, &bytes, err);

	if (code)
		return code;
	o->by[again.by]++;
	if (again.by == JM_PICTURE_BY_HOST)
		return 0;
	if (again.width != p->width || again.height != p->height)
		return jm_err_set(err, JM_EFORMAT,
			"Picture %lld of %s has %d x %d pixels by the host and %d x %d by the GPU; "
			"do not decode this data set on the GPU.",
			(long long)i, set->path, p->width, p->height, again.width, again.height);
	compare(o, p, &again);
	return 0;
}

static void print_on_device(struct jm_data_facts *f, const struct on_device *o)
{
	char line[80];

	jm_data_text(f, "decoder", jm_nvjpeg_name(o->gpu));
	jm_data_count(f, "decoded gpu", o->by[JM_PICTURE_BY_GPU]);
	jm_data_count(f, "decoded engine", o->by[JM_PICTURE_BY_ENGINE]);
	jm_data_count(f, "decoded host", o->by[JM_PICTURE_BY_HOST]);
	if (!o->values)
		return;
	snprintf(line, sizeof(line), "%.3g of 255 on average, %d at most",
		o->sum / (double)o->values, o->largest);
	jm_data_text(f, "differences", line);
}

static void take_size(struct look *l, const struct jm_picture *p)
{
	const int size[] = {p->width, p->height};

	for (int i = 0; i < 2; i++) {
		if (!l->most[i] || size[i] < l->least[i])
			l->least[i] = size[i];
		if (size[i] > l->most[i])
			l->most[i] = size[i];
	}
}

/* A damaged picture is counted, and the first ones are named. */
static int look_at(struct jm_data_facts *f, const struct jm_data_set *set, int64_t i,
	struct jm_picture_decoder *d, struct look *l)
{
	struct jm_err why = JM_ERR_INIT;
	struct jm_picture p;
	int64_t bytes = 0;
	int code = jm_data_set_read(set, i, d, &p, &bytes, &why);

	l->bytes += bytes;
	if (code == JM_ENOMEM)
		return jm_err_set(&f->cli->err, code, "%s", why.text);
	if (code) {
		if (l->corrupt++ < NAMED)
			jm_data_item(f, "damaged", why.text);
		return 0;
	}
	if (set->classes)
		l->count[set->label[i]]++;
	take_size(l, &p);
	return l->device.gpu ? read_on_device(&l->device, set, i, &p, &f->cli->err) : 0;
}

static void print_classes(
	struct jm_data_facts *f, const struct jm_data_set *set, const struct look *l)
{
	char line[160];

	for (int c = 0; c < set->classes && c < NAMED; c++) {
		snprintf(line, sizeof(line), "%d: %lld pictures%s%.80s", c, (long long)l->count[c],
			set->class_name ? " of " : "", set->class_name ? set->class_name[c] : "");
		jm_text_tame_lines(line);
		jm_data_item(f, "class", line);
	}
	if (set->classes > NAMED)
		jm_data_count(f, "more classes", set->classes - NAMED);
}

/* "image, caption" */
static void print_fields(struct jm_data_facts *f, const struct jm_data_set *set)
{
	char line[160] = "";

	for (const struct jm_data_field *one = set->format->fields; one->name; one++)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%s",
			*line ? ", " : "", one->name);
	jm_data_text(f, "fields", line);
}

/* How many, and the first ones. */
static void print_captions(struct jm_data_facts *f, const struct jm_data_set *set)
{
	const struct jm_sample_texts *t = &set->texts;
	bool talks = jm_data_set_field(set, "ids");
	int64_t texts = t->first[set->n], empty = 0;
	char line[160];

	for (int64_t i = 0; i < texts; i++)
		empty += t->start[i] == t->start[i + 1];
	jm_data_count(f, talks ? "turns" : "captions", texts);
	if (empty)
		jm_data_count(f, talks ? "empty ones" : "empty captions", empty);
	for (int64_t i = 0; i < texts && i < NAMED; i++) {
		int64_t n = t->start[i + 1] - t->start[i];

		snprintf(line, sizeof(line), "%.*s", (int)(n < SHOWN ? n : SHOWN),
			t->bytes + t->start[i]);
		jm_text_tame_lines(line);
		jm_data_item(f, !talks ? "caption" : i % 2 ? "answer" : "question", line);
	}
}

static void print_look(struct jm_data_facts *f, const struct jm_data_set *set, const struct look *l)
{
	char line[80];

	jm_data_text(f, "format", set->format->name);
	print_fields(f, set);
	if (set->classes)
		jm_data_count(f, "classes", set->classes);
	jm_data_count(f, "pictures", set->n - l->corrupt);
	jm_data_count(f, "bytes", l->bytes);
	snprintf(line, sizeof(line), "%d to %d wide, %d to %d high", l->least[0], l->most[0],
		l->least[1], l->most[1]);
	if (l->corrupt < set->n)
		jm_data_text(f, "pixels", line);
	jm_data_count(f, "corrupt files", l->corrupt);
	f->damaged = l->corrupt;
	if (l->device.gpu)
		print_on_device(f, &l->device);
	print_classes(f, set, l);
	if (set->texts.first)
		print_captions(f, set);
}

static int show(struct jm_data_facts *f, const struct jm_data_set *set, bool on_device)
{
	struct jm_picture_decoder decoder = {0};
	struct look l = {.count = calloc((size_t)set->classes + 1, sizeof(*l.count))};
	int code = l.count ? 0 : jm_err_set(&f->cli->err, JM_ENOMEM, "Out of memory.");

	if (!code && on_device)
		code = jm_nvjpeg_open(NULL, &l.device.gpu, &f->cli->err);
	l.device.decoder.gpu = l.device.gpu;

	for (int64_t i = 0; i < set->n && !code; i++)
		code = look_at(f, set, i, &decoder, &l);
	if (!code)
		print_look(f, set, &l);
	jm_picture_decoder_done(&decoder);
	jm_picture_decoder_done(&l.device.decoder);
	jm_nvjpeg_close(l.device.gpu);
	free(l.count);
	return code;
}

/* ---- values on a grid ------------------------------------------------------------------------ */

struct range {
	double least, most, sum;
	int64_t values, not_finite;
};

static void take_values(const float *value, int64_t n, struct range *r)
{
	r->values += n;
	for (int64_t i = 0; i < n; i++) {
		if (!isfinite(value[i])) {
			r->not_finite++;
			continue;
		}
		r->least = fmin(r->least, (double)value[i]);
		r->most = fmax(r->most, (double)value[i]);
		r->sum += (double)value[i];
	}
}

/* Of one channel; "0: -1.2 to 3.4, mean 0.1" */
static void print_range(struct jm_data_facts *f, const char *name, int64_t c, const struct range *r)
{
	char line[160];

	if (r->not_finite == r->values)
		snprintf(line, sizeof(line), "%lld: no range", (long long)c);
	else
		snprintf(line, sizeof(line), "%lld: %.4g to %.4g, mean %.4g", (long long)c,
			r->least, r->most, r->sum / (double)(r->values - r->not_finite));
	if (r->not_finite)
		snprintf(line + strlen(line), sizeof(line) - strlen(line),
			"; %lld of %lld values are not finite", (long long)r->not_finite,
			(long long)r->values);
	jm_data_item(f, name, line);
}

struct grid_look {
	float *value;		/* of a sample: inputs, then outputs */
	struct range *range[2]; /* [channels] of each */
	int64_t corrupt;	/* samples */
};

static int grid_look_init(
	struct jm_data_facts *f, const struct jm_data_set *set, struct grid_look *l)
{
	size_t n = (size_t)(jm_data_set_points(set) * set->channels);

	l->value = calloc(n, 2 * sizeof(*l->value));
	for (int w = 0; w < 2; w++) {
		l->range[w] = calloc((size_t)set->channels, sizeof(*l->range[w]));
		for (int64_t c = 0; l->range[w] && c < set->channels; c++)
			l->range[w][c] = (struct range){.least = INFINITY, .most = -INFINITY};
	}
	return l->value && l->range[0] && l->range[1]
		       ? 0
		       : jm_err_set(&f->cli->err, JM_ENOMEM, "Out of memory.");
}

static void grid_look_done(struct grid_look *l)
{
	free(l->value);
	free(l->range[0]);
	free(l->range[1]);
}

/* A sample that cannot be read is counted, and the first of them are named. */
static void look_at_sample(
	struct jm_data_facts *f, const struct jm_data_set *set, int64_t i, struct grid_look *l)
{
	int64_t points = jm_data_set_points(set), n = points * set->channels;
	struct jm_err why = JM_ERR_INIT;
	int code = jm_data_set_values(set, i, JM_DATA_INPUTS, l->value, &why);

	if (!code)
		code = jm_data_set_values(set, i, JM_DATA_OUTPUTS, l->value + n, &why);
	if (code) {
		if (l->corrupt++ < NAMED)
			jm_data_item(f, "damaged", why.text);
		return;
	}
	for (int64_t c = 0; c < set->channels; c++)
		for (int w = 0; w < 2; w++)
			take_values(l->value + w * n + c * points, points, &l->range[w][c]);
}

static void print_grid(
	struct jm_data_facts *f, const struct jm_data_set *set, const struct grid_look *l)
{
	char line[80];

	jm_data_text(f, "format", set->format->name);
	print_fields(f, set);
	jm_data_count(f, "samples", set->n - l->corrupt);
	jm_data_count(f, "corrupt samples", l->corrupt);
	f->damaged = l->corrupt;
	snprintf(line, sizeof(line), "%lld fields on %lld x %lld", (long long)set->channels,
		(long long)set->points[0], (long long)set->points[1]);
	if (set->axes > 2)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), " x %lld",
			(long long)set->points[2]);
	jm_data_text(f, "grid", line);
	for (int w = 0; w < 2; w++)
		for (int64_t c = 0; c < set->channels && l->corrupt < set->n; c++)
			print_range(f, w ? "outputs" : "inputs", c, &l->range[w][c]);
}

static int show_grid(struct jm_data_facts *f, const struct jm_data_set *set)
{
	struct grid_look l = {0};
	int code = grid_look_init(f, set, &l);

	for (int64_t i = 0; i < set->n && !code; i++)
		look_at_sample(f, set, i, &l);
	if (!code)
		print_grid(f, set, &l);
	grid_look_done(&l);
	return code;
}

bool jm_cli_is_picture(const char *path)
{
	char begin[16];
	bool found = false;
	size_t size;
	ssize_t n;
	int fd;

	if (jm_data_file_open(path, SIZE_MAX, &fd, &size, NULL))
		return false;
	n = read(fd, begin, sizeof(begin));
	close(fd);
	for (int i = 0; jm_picture_formats[i]; i++)
		found = found || (n >= (ssize_t)jm_picture_formats[i]->n_magic &&
					 !memcmp(begin, jm_picture_formats[i]->magic,
						 jm_picture_formats[i]->n_magic));
	return found;
}

int jm_cli_refuse_decode(struct jm_data_facts *f, const char *path)
{
	return jm_err_set(&f->cli->err, JM_EUSAGE,
		"--decode device has no effect on %.200s, because it has no pictures; omit it.",
		path);
}

int jm_cli_show_pictures(struct jm_data_facts *f, const char *path, bool held_out, bool on_device)
{
	struct jm_data_set set;
	int code = jm_data_set_open(
		path, held_out ? JM_PART_HELD_OUT : JM_PART_TRAIN, &set, &f->cli->err);

	if (code)
		return code;
	if (set.axes && on_device)
		code = jm_cli_refuse_decode(f, path);
	else
		code = set.axes ? show_grid(f, &set) : show(f, &set, on_device);
	jm_data_set_close(&set);
	return code;
}
