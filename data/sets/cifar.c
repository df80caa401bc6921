/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CIFAR's binary version (https://www.cs.toronto.edu/~kriz/cifar.html): records of a label, or with
 * 100 classes a coarse and a fine one, and 3072 bytes: planes [3][32][32] of red, green and blue.
 */
#include "data/sets/cifar.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/sets/part_folder.h"
#include "data/sets/raw_pictures.h"

#define END	   ".bin"
#define SIDE	   32
#define PIXELS	   ((size_t)3 * SIDE * SIDE)
#define FILES_MOST 5
#define SIZE_MOST  ((size_t)1 << 30) /* bytes of a file */

static const struct kind {
	const char *file[2][FILES_MOST + 1]; /* of each part */
	const char *names;
	int classes, labels; /* bytes of labels, the last of which is the class */
} kinds[] = {
	{{{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
		  "data_batch_5.bin"},
		 {"test_batch.bin"}},
		"batches.meta.txt", 10, 1},
	{{{"train.bin"}, {"test.bin"}}, "fine_label_names.txt", 100, 2},
};

/* Does DIR/NAME exist? NAME.bin with a NAME.idx beside it is a text of Megatron. */
static bool has_file(const char *dir, const char *name)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name);

	if (n >= (int)sizeof(path) || access(path, F_OK))
		return false;
	memcpy(path + n - strlen(END), ".idx", strlen(END));
	return access(path, F_OK) != 0;
}

/* The files of a folder, or the one file that the path names. */
struct place {
	char dir[PATH_MAX];
	const char *name; /* NULL = it is a folder */
};

static void find_place(const char *path, struct place *ret)
{
	const char *slash = strrchr(path, '/');

	ret->name = jm_is_folder(path) ? NULL : slash ? slash + 1 : path;
	if (!ret->name)
		snprintf(ret->dir, sizeof(ret->dir), "%s", path);
	else
		snprintf(ret->dir, sizeof(ret->dir), "%.*s", slash > path ? (int)(slash - path) : 1,
			slash ? path : ".");
}

/* Has it the first file of the part, or is it any of them? */
static bool is_of(const struct place *place, const char *const *file)
{
	if (!place->name)
		return has_file(place->dir, *file);
	for (; *file; file++)
		if (!strcmp(place->name, *file))
			return has_file(place->dir, *file);
	return false;
}

static const struct kind *kind_of(const struct place *place)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (is_of(place, kinds[i].file[0]) || is_of(place, kinds[i].file[1]))
			return &kinds[i];
	return NULL;
}

static bool cifar_fits(const char *path)
{
	struct place place;

	find_place(path, &place);
	return kind_of(&place) != NULL;
}

int jm_cifar_parse(
	struct jm_data_set *set, unsigned char *bytes, size_t size, int classes, struct jm_err *err)
{
	size_t labels = classes == 100 ? 2 : 1, record = labels + PIXELS;
	struct jm_raw_pictures *raw = calloc(1, sizeof(*raw));

	set->state = raw;
	if (!raw) {
		free(bytes);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", set->path);
	}
	*raw = (struct jm_raw_pictures){bytes, record, labels, 3};
	set->classes = classes;
	set->width = set->height = SIDE;
	if (size % record || !size)
		return jm_err_set(err, JM_EFORMAT,
			"CIFAR file of %s is damaged: %zu bytes are no whole number of records of "
			"%zu; copy it again.",
			set->path, size, record);
	if (jm_data_set_labels(set, (int64_t)(size / record), err))
		return JM_ENOMEM;
	for (int64_t i = 0; i < set->n; i++) {
		set->label[i] = bytes[(size_t)i * record + labels - 1];
		if (set->label[i] >= classes)
			return jm_err_set(err, JM_EFORMAT,
				"CIFAR file of %s is damaged: picture %lld has class %d of %d; "
				"copy it again.",
				set->path, (long long)i, set->label[i], classes);
	}
	return 0;
}

/* Appends a file of whole records to what there is; *bytes is the caller's after an error, too. */
static int append(const char *path, const struct kind *kind, unsigned char **bytes, size_t *size,
	struct jm_err *err)
{
	size_t record = (size_t)kind->labels + PIXELS;
	unsigned char *one, *both;
	size_t n;
	int code = jm_data_file_read(path, SIZE_MOST, &one, &n, err);

	if (code)
		return code;
	if (n % record || !n) {
		free(one);
		return jm_err_set(err, JM_EFORMAT,
			"CIFAR file %s is damaged: %zu bytes are no whole number of records of "
			"%zu; "
			"copy it again.",
			path, n, record);
	}
	both = realloc(*bytes, *size + n + 1);
	if (both) {
		memcpy(both + *size, one, n);
		*bytes = both;
		*size += n;
	}
	free(one);
	return both ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for file %s.", path);
}

static int cifar_open(struct jm_data_set *set, enum jm_part part, struct jm_err *err)
{
	const char *const *file, *one[] = {NULL, NULL};
	const struct kind *kind;
	struct place place;
	char path[PATH_MAX];
	unsigned char *bytes = NULL;
	size_t size = 0;
	int code = 0;

	find_place(set->path, &place);
	kind = kind_of(&place);
	if (!kind)
		return jm_err_set(err, JM_ENOENT,
			"Files of CIFAR are no longer at %s; do not change a data set while it is "
			"read.",
			set->path);
	*one = place.name;
	set->single = place.name;
	for (file = place.name ? one : kind->file[part]; *file && !code; file++) {
		if (snprintf(path, sizeof(path), "%s/%s", place.dir, *file) >= (int)sizeof(path))
			code = jm_err_set(err, JM_EUSAGE, "Path %.60s... is too long.", path);
		else
			code = append(path, kind, &bytes, &size, err);
	}
	if (code) {
		free(bytes);
		return code;
	}
	code = jm_cifar_parse(set, bytes, size, kind->classes, err);
	if (!code)
		jm_raw_pictures_name(set, place.dir, kind->names);
	return code;
}

const struct jm_data_format jm_data_format_cifar = {
	.name = "CIFAR",
	.fields = jm_class_fields,
	.fits = cifar_fits,
	.open = cifar_open,
	.read = jm_raw_pictures_read,
	.close = jm_raw_pictures_close,
};
