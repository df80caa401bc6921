/* SPDX-License-Identifier: Apache-2.0 */
#include "data_pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "report/format/text.h"

#define COLUMN 16
#define NAMED  5   /* damaged files, classes and captions that are printed */
#define SHOWN  150 /* bytes of a caption */

struct look {
	int64_t corrupt, bytes;
	int64_t *count;	       /* [classes] */
	int least[2], most[2]; /* width, height */
};

static void print_entry(struct jm_cli *cli, const char *name, const char *text)
{
	jm_text_entry(cli->out, name, text, 0, COLUMN, cli->width);
}

static void print_count(struct jm_cli *cli, const char *name, int64_t value)
{
	char number[40];

	snprintf(number, sizeof(number), "%lld", (long long)value);
	jm_text_apart(number, sizeof(number));
	print_entry(cli, name, number);
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
static int look_at(struct jm_cli *cli, const struct jm_data_set *set, int64_t i,
	struct jm_picture_decoder *d, struct look *l)
{
	struct jm_err why = JM_ERR_INIT;
	struct jm_picture p;
	int64_t bytes = 0;
	int code = jm_data_set_read(set, i, d, &p, &bytes, &why);

	l->bytes += bytes;
	if (code == JM_ENOMEM)
		return jm_err_set(&cli->err, code, "%s", why.text);
	if (code) {
		if (l->corrupt++ < NAMED)
			print_entry(cli, "damaged", why.text);
		return 0;
	}
	if (set->classes)
		l->count[set->label[i]]++;
	take_size(l, &p);
	return 0;
}

static void print_classes(struct jm_cli *cli, const struct jm_data_set *set, const struct look *l)
{
	char line[160];

	for (int c = 0; c < set->classes && c < NAMED; c++) {
		snprintf(line, sizeof(line), "%d: %lld pictures%s%.80s", c, (long long)l->count[c],
			set->class_name ? " of " : "", set->class_name ? set->class_name[c] : "");
		jm_text_tame_lines(line);
		print_entry(cli, "class", line);
	}
	if (set->classes > NAMED) {
		snprintf(line, sizeof(line), "%d more", set->classes - NAMED);
		print_entry(cli, "class", line);
	}
}

/* "image, caption" */
static void print_fields(struct jm_cli *cli, const struct jm_data_set *set)
{
	char line[160] = "";

	for (const struct jm_data_field *f = set->format->fields; f->name; f++)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%s",
			*line ? ", " : "", f->name);
	print_entry(cli, "fields", line);
}

/* How many, and the first ones. */
static void print_captions(struct jm_cli *cli, const struct jm_data_set *set)
{
	const struct jm_sample_texts *t = &set->texts;
	bool talks = jm_data_set_field(set, "ids");
	int64_t texts = t->first[set->n], empty = 0;
	char line[160];

	for (int64_t i = 0; i < texts; i++)
		empty += t->start[i] == t->start[i + 1];
	print_count(cli, talks ? "questions and answers" : "captions", texts);
	if (empty)
		print_count(cli, talks ? "empty ones" : "empty captions", empty);
	for (int64_t i = 0; i < texts && i < NAMED; i++) {
		int64_t n = t->start[i + 1] - t->start[i];

		snprintf(line, sizeof(line), "%.*s", (int)(n < SHOWN ? n : SHOWN),
			t->bytes + t->start[i]);
		jm_text_tame_lines(line);
		print_entry(cli, !talks ? "caption" : i % 2 ? "answer" : "question", line);
	}
}

static void print_look(struct jm_cli *cli, const struct jm_data_set *set, const struct look *l)
{
	char line[80];

	print_entry(cli, "format", set->format->name);
	print_fields(cli, set);
	if (set->classes)
		print_count(cli, "classes", set->classes);
	print_count(cli, "pictures", set->n - l->corrupt);
	print_count(cli, "bytes", l->bytes);
	snprintf(line, sizeof(line), "%d to %d wide, %d to %d high", l->least[0], l->most[0],
		l->least[1], l->most[1]);
	print_entry(cli, "pixels", line);
	print_count(cli, "corrupt files", l->corrupt);
	print_classes(cli, set, l);
	if (set->texts.first)
		print_captions(cli, set);
}

static int show(struct jm_cli *cli, const struct jm_data_set *set)
{
	struct jm_picture_decoder decoder = {0};
	struct look l = {.count = calloc((size_t)set->classes + 1, sizeof(*l.count))};
	int code = l.count ? 0 : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory.");

	for (int64_t i = 0; i < set->n && !code; i++)
		code = look_at(cli, set, i, &decoder, &l);
	if (!code)
		print_look(cli, set, &l);
	jm_picture_decoder_done(&decoder);
	free(l.count);
	return code;
}

/* ---- values on a grid ------------------------------------------------------------------------ */

struct range {
	double least, most, sum;
	int64_t not_finite; /* values */
};

static void take_values(const float *value, int64_t n, struct range *r)
{
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
static void print_range(
	struct jm_cli *cli, const char *name, int64_t c, const struct range *r, int64_t n)
{
	char line[160];

	snprintf(line, sizeof(line), "%lld: %.4g to %.4g, mean %.4g", (long long)c, r->least,
		r->most, r->sum / (double)(n - r->not_finite));
	if (r->not_finite)
		snprintf(line + strlen(line), sizeof(line) - strlen(line),
			"; %lld of %lld values are not finite", (long long)r->not_finite,
			(long long)n);
	print_entry(cli, name, line);
}

static int look_at_values(struct jm_cli *cli, const struct jm_data_set *set,
	enum jm_data_type which, float *value, struct range *r)
{
	int64_t points = jm_data_set_points(set);
	int code = 0;

	for (int64_t c = 0; c < set->channels; c++)
		r[c] = (struct range){.least = INFINITY, .most = -INFINITY};
	for (int64_t i = 0; i < set->n && !code; i++) {
		code = jm_data_set_values(set, i, which, value, &cli->err);
		for (int64_t c = 0; c < set->channels && !code; c++)
			take_values(value + c * points, points, &r[c]);
	}
	for (int64_t c = 0; c < set->channels && !code; c++)
		print_range(cli, which == JM_DATA_INPUTS ? "inputs" : "outputs", c, &r[c],
			set->n * points);
	return code;
}

static int show_grid(struct jm_cli *cli, const struct jm_data_set *set)
{
	int64_t points = jm_data_set_points(set);
	float *value = calloc((size_t)(points * set->channels), sizeof(*value));
	struct range *r = calloc((size_t)set->channels, sizeof(*r));
	char line[80];
	int code = value && r ? 0 : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory.");

	print_entry(cli, "format", set->format->name);
	print_fields(cli, set);
	print_count(cli, "samples", set->n);
	snprintf(line, sizeof(line), "%lld fields on %lld x %lld", (long long)set->channels,
		(long long)set->points[0], (long long)set->points[1]);
	if (set->axes > 2)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), " x %lld",
			(long long)set->points[2]);
	print_entry(cli, "grid", line);
	if (!code)
		code = look_at_values(cli, set, JM_DATA_INPUTS, value, r);
	if (!code)
		code = look_at_values(cli, set, JM_DATA_OUTPUTS, value, r);
	free(value);
	free(r);
	return code;
}

bool jm_cli_is_picture(const char *path)
{
	FILE *f = fopen(path, "re");
	char begin[16];
	size_t n = f ? fread(begin, 1, sizeof(begin), f) : 0;
	bool found = false;

	for (int i = 0; jm_picture_formats[i]; i++)
		found = found || (n >= jm_picture_formats[i]->n_magic &&
					 !memcmp(begin, jm_picture_formats[i]->magic,
						 jm_picture_formats[i]->n_magic));
	if (f)
		fclose(f);
	return found;
}

int jm_cli_show_pictures(struct jm_cli *cli, const char *path, bool held_out)
{
	struct jm_data_set set;
	int code = jm_data_set_open(
		path, held_out ? JM_PART_HELD_OUT : JM_PART_TRAIN, &set, &cli->err);

	if (code)
		return code;
	code = set.axes ? show_grid(cli, &set) : show(cli, &set);
	jm_data_set_close(&set);
	return code;
}
