/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/data_set.h"

#include "base/member.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

static const struct jm_data_format *find(const char *path)
{
	for (int i = 0; jm_data_formats[i]; i++)
		if (jm_data_formats[i]->fits(path))
			return jm_data_formats[i];
	return NULL;
}

bool jm_data_set_is(const char *path)
{
	return find(path) != NULL;
}

static int not_found(const char *path, struct jm_err *err)
{
	char absent[256] = "";

	if (access(path, F_OK))
		return jm_err_set(
			err, JM_ENOENT, "Data set %s does not exist; check the path.", path);
	for (const struct jm_absent *a = jm_absent_data_formats; a->name; a++)
		snprintf(absent + strlen(absent), sizeof(absent) - strlen(absent),
			"; format %s is absent: %s", a->name, a->reason);
	return jm_err_set(err, JM_EFORMAT,
		"%s is no data set: it is neither a folder with one folder of pictures per class, "
		"nor pictures with captions, nor a NAME.json of conversations, nor a NAME.h5 of "
		"fields, nor files of CIFAR or IDX (MNIST)%s.",
		path, absent);
}

int jm_data_set_open(
	const char *path, enum jm_part part, struct jm_data_set *ret, struct jm_err *err)
{
	struct jm_data_set set = {.format = find(path)};
	int code;

	if (!set.format)
		return not_found(path, err);
	set.path = strdup(path);
	code = set.path ? set.format->open(&set, part, err)
			: jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", path);
	if (!code && set.n < 1)
		code = jm_err_set(
			err, JM_EFORMAT, "Data set %s has no samples; name another one.", path);
	if (code) {
		jm_data_set_close(&set);
		return code;
	}
	*ret = set;
	return 0;
}

int jm_data_set_read(const struct jm_data_set *set, int64_t i, struct jm_picture_decoder *d,
	struct jm_picture *ret, int64_t *ret_bytes, struct jm_err *err)
{
	return set->format->read(set, i, d, ret, ret_bytes, err);
}

int jm_data_set_values(const struct jm_data_set *set, int64_t i, enum jm_data_type which, float *to,
	struct jm_err *err)
{
	return set->format->values(set, i, which, to, err);
}

int64_t jm_data_set_points(const struct jm_data_set *set)
{
	int64_t points = 1;

	for (int a = 0; a < set->axes; a++)
		points *= set->points[a];
	return points;
}

void jm_data_set_close(struct jm_data_set *set)
{
	if (set->format)
		set->format->close(set);
	for (int i = 0; set->class_name && i < set->classes; i++)
		free(set->class_name[i]);
	free(set->class_name);
	free(set->label);
	free(set->texts.bytes);
	free(set->texts.start);
	free(set->texts.first);
	free(set->path);
	*set = (struct jm_data_set){0};
}

const struct jm_data_field jm_class_fields[] = {
	{"image", JM_DATA_PICTURE}, {"class", JM_DATA_CLASS}, {0}};

const struct jm_data_field *jm_data_set_field(const struct jm_data_set *set, const char *name)
{
	for (const struct jm_data_field *f = set->format->fields; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

int jm_data_set_same_classes(
	const struct jm_data_set *a, const struct jm_data_set *b, struct jm_err *err)
{
	if (a->classes != b->classes)
		return jm_err_set(err, JM_EUSAGE,
			"Data set %s has %d classes for training and %s has %d for evaluation; "
			"both need the same classes: move or remove folders of classes.",
			a->path, a->classes, b->path, b->classes);
	if (a->format != b->format && (!a->class_name || !b->class_name))
		return jm_err_set(err, JM_EUSAGE,
			"Data set %s is %s and %s is %s, of which one has no names of classes, so "
			"that nothing shows that they are the same; give --eval-data of the format "
			"of --data.",
			a->path, a->format->name, b->path, b->format->name);
	for (int i = 0; a->class_name && b->class_name && i < a->classes; i++)
		if (strcmp(a->class_name[i], b->class_name[i]) != 0)
			return jm_err_set(err, JM_EUSAGE,
				"Class %d is '%.60s' for training (%s) and '%.60s' for evaluation "
				"(%s); both need the same classes: rename or move the folders.",
				i, a->class_name[i], a->path, b->class_name[i], b->path);
	return 0;
}

/* -1 = it cannot be found out. */
static int64_t file_size(const char *path)
{
	struct stat st;

	return stat(path, &st) ? -1 : S_ISREG(st.st_mode) ? (int64_t)st.st_size : 0;
}

/* Of names and sizes of files, in order. */
static uint64_t files_digest(const struct jm_data_set *set, uint64_t sum)
{
	int64_t step = 1 + (set->n - 1) / JM_DIGEST_SIZES, size;
	char path[PATH_MAX];

	for (int64_t i = 0; i < set->n; i++) {
		const char *name = set->format->file(set, i, path);

		sum = XXH3_64bits_withSeed(name, strlen(name), sum);
		if (i % step)
			continue;
		size = file_size(path);
		sum = XXH3_64bits_withSeed(&size, sizeof(size), sum);
	}
	return sum;
}

uint64_t jm_data_set_digest(const struct jm_data_set *set)
{
	uint64_t sum = (uint64_t)set->n;

	for (int i = 0; set->class_name && i < set->classes; i++)
		sum = XXH3_64bits_withSeed(set->class_name[i], strlen(set->class_name[i]), sum);
	if (set->label)
		sum = XXH3_64bits_withSeed(set->label, (size_t)set->n * sizeof(*set->label), sum);
	if (set->texts.first)
		sum = XXH3_64bits_withSeed(
			set->texts.bytes, (size_t)set->texts.start[set->texts.first[set->n]], sum);
	if (set->format->file)
		return files_digest(set, sum);
	return sum ^ (uint64_t)file_size(set->path);
}

int jm_data_set_labels(struct jm_data_set *set, int64_t n, struct jm_err *err)
{
	set->label = calloc(n > 0 ? (size_t)n : 1, sizeof(*set->label));
	if (!set->label)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", set->path);
	set->n = n;
	return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int failed(const char *path, struct jm_err *err)
{
	return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EIO,
		"File %s of the data set cannot be read: %s; check it, and do not change a data "
		"set while it is read.",
		path, strerror(errno));
}

static int read_all(int fd, const char *path, unsigned char *bytes, size_t n, struct jm_err *err)
{
	for (size_t done = 0; done < n;) {
		ssize_t now = read(fd, bytes + done, n - done);

		if (now < 0 && errno == EINTR)
			continue;
		if (now < 0)
			return failed(path, err);
		if (!now)
			return jm_err_set(err, JM_EFORMAT,
				"File %s became shorter while it was read; do not change a data "
				"set while it is read.",
				path);
		done += (size_t)now;
	}
	return 0;
}

int jm_data_file_open(
	const char *path, size_t most, int *ret_fd, size_t *ret_size, struct jm_err *err)
{
	/* O_NONBLOCK: opening a pipe would wait for its writer */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code = 0;
	struct stat st;

	if (fd < 0)
		return failed(path, err);
	if (fstat(fd, &st))
		code = failed(path, err);
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > most)
		code = jm_err_set(err, JM_EFORMAT,
			"%s is no regular file of at most %zu bytes; remove it from the data set.",
			path, most);
	if (code) {
		close(fd);
		return code;
	}
	*ret_fd = fd;
	*ret_size = (size_t)st.st_size;
	return 0;
}

int jm_data_file_read_to(const char *path, size_t most, struct jm_picture_room *room,
	size_t *ret_size, struct jm_err *err)
{
	int fd, code = jm_data_file_open(path, most, &fd, ret_size, err);

	if (code)
		return code;
	code = jm_picture_room(room, path, *ret_size + 1, err); /* one more for a '\0' */
	if (!code)
		code = read_all(fd, path, room->bytes, *ret_size, err);
	close(fd);
	return code;
}

int jm_data_file_read(
	const char *path, size_t most, unsigned char **ret, size_t *ret_size, struct jm_err *err)
{
	struct jm_picture_room room = {0};
	int code = jm_data_file_read_to(path, most, &room, ret_size, err);

	if (code)
		free(room.bytes);
	else
		*ret = room.bytes;
	return code;
}
