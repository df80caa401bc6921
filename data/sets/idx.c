/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IDX, the format of MNIST (http://yann.lecun.com/exdb/mnist/): two bytes 0, a type (8: u8), the
 * number of dimensions, these as big-endian u32, then the values. Files may be compressed by gzip.
 */
#include "data/sets/idx.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/sets/raw_pictures.h"

#define SIZE_MOST ((size_t)1 << 31) /* bytes of a file, uncompressed */
#define PART	  65536

static const char *const stems[] = {"train", "t10k"}; /* by enum jm_part */

static uint32_t get_u32(const unsigned char *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int damaged(
	const struct jm_data_set *set, const char *of, const char *what, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT,
		"The IDX file of %s in %s is damaged: %s; copy it again.", of, set->path, what);
}

/* Checks header and size of a file of u8 with `dims` dimensions of at least 1. */
static int check(const struct jm_data_set *set, const unsigned char *bytes, size_t size, int dims,
	struct jm_err *err)
{
	const char *of = dims > 1 ? "pictures" : "labels";
	size_t header = 4 + 4 * (size_t)dims, values = 1;

	if (size < header || bytes[0] || bytes[1] || bytes[2] != 8 || bytes[3] != dims)
		return damaged(set, of, "it does not begin as a file of bytes does", err);
	for (int i = 0; i < dims; i++) {
		uint32_t dim = get_u32(bytes + 4 + 4 * i);

		if (!dim || dim > (size - header) / values)
			return damaged(set, of, "its size is not the one in its header", err);
		values *= dim;
	}
	return values == size - header
		       ? 0
		       : damaged(set, of, "its size is not the one in its header", err);
}

static int take_labels(struct jm_data_set *set, const unsigned char *labels, struct jm_err *err)
{
	int code = jm_data_set_labels(set, get_u32(labels + 4), err);

	for (int64_t i = 0; i < set->n && !code; i++) {
		set->label[i] = labels[8 + i];
		if (set->label[i] >= set->classes)
			set->classes = set->label[i] + 1;
	}
	return code;
}

int jm_idx_parse(struct jm_data_set *set, unsigned char *pictures, size_t n_pictures,
	const unsigned char *labels, size_t n_labels, struct jm_err *err)
{
	struct jm_raw_pictures *raw = calloc(1, sizeof(*raw));
	int code;

	set->state = raw;
	if (!raw) {
		free(pictures);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", set->path);
	}
	raw->bytes = pictures;
	code = check(set, pictures, n_pictures, 3, err);
	if (!code)
		code = check(set, labels, n_labels, 1, err);
	if (!code && get_u32(pictures + 4) != get_u32(labels + 4))
		code = damaged(
			set, "labels", "it has not as many labels as there are pictures", err);
	if (code)
		return code;
	if (get_u32(pictures + 8) > JM_PICTURE_SIDE_MOST ||
		get_u32(pictures + 12) > JM_PICTURE_SIDE_MOST)
		return damaged(set, "pictures", "its pictures are too large", err);
	set->height = (int)get_u32(pictures + 8);
	set->width = (int)get_u32(pictures + 12);
	raw->stride = (size_t)set->height * (size_t)set->width;
	raw->offset = 16;
	raw->channels = 1;
	return take_labels(set, labels, err);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* DIR/STEM-KIND, with or without .gz. False: there is none. */
static bool find_file(const char *dir, enum jm_part part, const char *kind, char *ret)
{
	for (int i = 0; i < 2; i++) {
		const char *end = i ? ".gz" : "";

		if (snprintf(ret, PATH_MAX, "%s/%s-%s%s", dir, stems[part], kind, end) < PATH_MAX &&
			!access(ret, F_OK))
			return true;
	}
	return false;
}

static bool idx_fits(const char *path)
{
	char file[PATH_MAX];

	return find_file(path, JM_PART_TRAIN, "images-idx3-ubyte", file) ||
	       find_file(path, JM_PART_HELD_OUT, "images-idx3-ubyte", file);
}

/* The rest of an open file; *bytes is the caller's also after an error. */
static int inflate_all(
	gzFile f, const char *path, unsigned char **bytes, size_t *size, struct jm_err *err)
{
	size_t room = 0;

	for (int now = 1; now > 0; *size += (size_t)now) {
		if (room - *size < PART) {
			unsigned char *more = realloc(*bytes, room = 2 * room + PART);

			if (!more)
				return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", path);
			*bytes = more;
		}
		now = gzread(f, *bytes + *size, PART);
		if (now < 0 || *size > SIZE_MOST)
			return jm_err_set(err, JM_EFORMAT,
				"File %s cannot be read: %s; copy it again.", path,
				now < 0 ? "its compressed data is damaged" : "it is too large");
	}
	return 0;
}

static int read_file(const char *path, unsigned char **ret, size_t *ret_size, struct jm_err *err)
{
	size_t stored;
	int fd, code = jm_data_file_open(path, SIZE_MOST, &fd, &stored, err);
	gzFile f;

	if (code)
		return code;
	*ret = NULL;
	*ret_size = 0;
	f = gzdopen(fd, "rb"); /* reads files that are not compressed as well */
	if (!f) {
		close(fd);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", path);
	}
	code = inflate_all(f, path, ret, ret_size, err);
	if (gzclose_r(f) != Z_OK && !code)
		code = jm_err_set(err, JM_EFORMAT, "File %s is truncated; copy it again.", path);
	if (code)
		free(*ret);
	return code;
}

static int idx_open(struct jm_data_set *set, enum jm_part part, struct jm_err *err)
{
	unsigned char *pictures, *labels;
	char path[2][PATH_MAX];
	size_t n[2];
	int code;

	if (!find_file(set->path, part, "images-idx3-ubyte", path[0]) ||
		!find_file(set->path, part, "labels-idx1-ubyte", path[1]))
		return jm_err_set(err, JM_ENOENT,
			"Data set %s lacks %s-images-idx3-ubyte or %s-labels-idx1-ubyte; put them "
			"there, or name a folder that has them.",
			set->path, stems[part], stems[part]);
	code = read_file(path[1], &labels, &n[1], err);
	if (code)
		return code;
	code = read_file(path[0], &pictures, &n[0], err);
	if (!code)
		code = jm_idx_parse(set, pictures, n[0], labels, n[1], err);
	free(labels);
	return code;
}

const struct jm_data_format jm_data_format_idx = {
	.name = "IDX",
	.fields = jm_class_fields,
	.fits = idx_fits,
	.open = idx_open,
	.read = jm_raw_pictures_read,
	.close = jm_raw_pictures_close,
};
