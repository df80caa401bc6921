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
static void print_range(struct jm_cli *cli, const char *name, int64_t c, const struct range *r)
{
	char line[160];

	snprintf(line, sizeof(line), "%lld: %.4g to %.4g, mean %.4g", (long long)c, r->least,
		r->most, r->sum / (double)(r->values - r->not_finite));
	if (r->not_finite)
		snprintf(line + strlen(line), sizeof(line) - strlen(line),
			"; %lld of %lld values are not finite", (long long)r->not_finite,
			(long long)r->values);
	print_entry(cli, name, line);
}

struct grid_look {
	float *value;		/* of a sample: inputs, then outputs */
	struct range *range[2]; /* [channels] of each */
	int64_t corrupt;	/* samples */
};

static int grid_look_init(struct jm_cli *cli, const struct jm_data_set *set, struct grid_look *l)
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
		       : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory.");
}

static void grid_look_done(struct grid_look *l)
{
	free(l->value);
	free(l->range[0]);
	free(l->range[1]);
}

/* A sample that cannot be read is counted, and the first of them are named. */
static void look_at_sample(
	struct jm_cli *cli, const struct jm_data_set *set, int64_t i, struct grid_look *l)
{
	int64_t points = jm_data_set_points(set), n = points * set->channels;
	struct jm_err why = JM_ERR_INIT;
	int code = jm_data_set_values(set, i, JM_DATA_INPUTS, l->value, &why);

	if (!code)
		code = jm_data_set_values(set, i, JM_DATA_OUTPUTS, l->value + n, &why);
	if (code) {
		if (l->corrupt++ < NAMED)
			print_entry(cli, "damaged", why.text);
		return;
	}
	for (int64_t c = 0; c < set->channels; c++)
		for (int w = 0; w < 2; w++)
			take_values(l->value + w * n + c * points, points, &l->range[w][c]);
}

static void print_grid(struct jm_cli *cli, const struct jm_data_set *set, const struct grid_look *l)
{
	char line[80];

	print_entry(cli, "format", set->format->name);
	print_fields(cli, set);
	print_count(cli, "samples", set->n - l->corrupt);
	print_count(cli, "corrupt samples", l->corrupt);
	snprintf(line, sizeof(line), "%lld fields on %lld x %lld", (long long)set->channels,
		(long long)set->points[0], (long long)set->points[1]);
	if (set->axes > 2)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), " x %lld",
			(long long)set->points[2]);
	print_entry(cli, "grid", line);
	for (int w = 0; w < 2; w++)
		for (int64_t c = 0; c < set->channels && l->corrupt < set->n; c++)
			print_range(cli, w ? "outputs" : "inputs", c, &l->range[w][c]);
}

static int show_grid(struct jm_cli *cli, const struct jm_data_set *set)
{
	struct grid_look l = {0};
	int code = grid_look_init(cli, set, &l);

	for (int64_t i = 0; i < set->n && !code; i++)
		look_at_sample(cli, set, i, &l);
	if (!code)
		print_grid(cli, set, &l);
	grid_look_done(&l);
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
