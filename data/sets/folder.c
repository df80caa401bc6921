/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder with one folder of pictures per class, in ImageNet's layout: classes and pictures are in
 * the order of their names' bytes. If it holds folders train and val (or test), these are its
 * parts.
 */
#include "data/sets/part_folder.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST ((size_t)1 << 30) /* bytes */

struct folder {
	char *root;
	char **file; /* [n] */
	int64_t n, room;
};

static bool folder_fits(const char *path)
{
	return jm_is_folder(path);
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* scandir with an order that no locale changes. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void free_list(struct dirent **list, int n)
{
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static int out_of_memory(const struct jm_data_set *set, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", set->path);
}

static int add_file(struct jm_data_set *set, const char *path, struct jm_err *err)
{
	struct folder *f = set->state;

	if (f->n == f->room) {
		int64_t room = f->room ? 2 * f->room : 1024;
		char **file = realloc(f->file, (size_t)room * sizeof(*file));
		int32_t *label;

		if (!file)
			return out_of_memory(set, err);
		f->file = file;
		label = realloc(set->label, (size_t)room * sizeof(*label));
		if (!label)
			return out_of_memory(set, err);
		set->label = label;
		f->room = room;
	}
	f->file[f->n] = strdup(path);
	if (!f->file[f->n])
		return out_of_memory(set, err);
	set->label[f->n++] = set->classes - 1;
	return 0;
}

/* below: a folder in it; "" = there is none */
static int no_pictures(const char *class, const char *below, struct jm_err *err)
{
	if (!*below)
		return jm_err_set(err, JM_EFORMAT,
			"Class %s has no pictures; remove the folder or put pictures into it.",
			class);
	return jm_err_set(err, JM_EFORMAT,
		"Class %s has no pictures, but folders, such as %s; if these are the classes, name "
		"%s as the data set.",
		class, below, class);
}

/* All files of a class, which is the last one so far. */
static int add_files(struct jm_data_set *set, const char *class, struct jm_err *err)
{
	struct folder *f = set->state;
	struct dirent **list;
	char path[PATH_MAX];
	const char *below = "";
	int64_t before = f->n;
	int n = scandir(class, &list, is_visible, by_bytes), code = 0;

	if (n < 0)
		return jm_err_set(err, JM_EIO,
			"Folder %s of a class cannot be read; give yourself the right to read it.",
			class);
	for (int i = 0; i < n && !code; i++)
		if (jm_is_folder_in(class, list[i]->d_name, path))
			below = list[i]->d_name;
		else
			code = add_file(set, path, err);
	if (!code && f->n == before)
		code = no_pictures(class, below, err);
	free_list(list, n);
	return code;
}

static int add_class(struct jm_data_set *set, const char *name, struct jm_err *err)
{
	const struct folder *f = set->state;
	char path[PATH_MAX];

	if (!jm_is_folder_in(f->root, name, path))
		return 0;
	set->class_name[set->classes] = strdup(name);
	if (!set->class_name[set->classes])
		return out_of_memory(set, err);
	set->classes++;
	return add_files(set, path, err);
}

static int add_classes(struct jm_data_set *set, struct jm_err *err)
{
	struct folder *f = set->state;
	struct dirent **list;
	int n = scandir(f->root, &list, is_visible, by_bytes), code = 0;

	if (n < 0)
		return jm_err_set(err, JM_EIO,
			"Folder %s cannot be read; give yourself the right to read it.", f->root);
	set->class_name = calloc((size_t)n + 1, sizeof(*set->class_name));
	if (!set->class_name)
		code = out_of_memory(set, err);
	for (int i = 0; i < n && !code; i++)
		code = add_class(set, list[i]->d_name, err);
	free_list(list, n);
	if (!code && !set->classes)
		code = jm_err_set(err, JM_EFORMAT,
			"Data set %s has neither a folder of pictures for each class nor pictures "
			"with captions (in metadata.jsonl, captions.json, or NAME.txt beside "
			"NAME.jpg); name another folder, or write what is missing.",
			f->root);
	set->n = f->n;
	return code;
}

static int folder_open(struct jm_data_set *set, enum jm_part part, struct jm_err *err)
{
	struct folder *f = calloc(1, sizeof(*f));
	char path[PATH_MAX];

	set->state = f;
	if (f)
		f->root = strdup(jm_part_folder(set->path, part, path));
	set->single = f && f->root && !strcmp(f->root, set->path);
	return f && f->root ? add_classes(set, err) : out_of_memory(set, err);
}

static const char *folder_file(const struct jm_data_set *set, int64_t i, char *to)
{
	const struct folder *f = set->state;

	snprintf(to, PATH_MAX, "%s", f->file[i]);
	return to + strlen(f->root);
}

static int folder_read(const struct jm_data_set *set, int64_t i, struct jm_picture_decoder *d,
	struct jm_picture *ret, int64_t *ret_bytes, struct jm_err *err)
{
	const struct folder *f = set->state;
	size_t n;
	int code = jm_data_file_read_to(f->file[i], FILE_MOST, &d->file, &n, err);

	*ret_bytes = 0;
	if (code)
		return code;
	*ret_bytes = (int64_t)n;
	return jm_picture_decode(d, f->file[i], d->file.bytes, n, ret, err);
}

static void folder_close(struct jm_data_set *set)
{
	struct folder *f = set->state;

	for (int64_t i = 0; f && i < f->n; i++)
		free(f->file[i]);
	if (f) {
		free(f->file);
		free(f->root);
	}
	free(f);
}

const struct jm_data_format jm_data_format_folder = {
	.name = "folder",
	.fields = jm_class_fields,
	.fits = folder_fits,
	.open = folder_open,
	.read = folder_read,
	.file = folder_file,
	.close = folder_close,
};
