/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of pictures with captions: JPEG and PNG files, also in folders below it, and
 * metadata.jsonl, or captions.json as COCO has it, or NAME.txt beside NAME.jpg. If it holds folders
 * train and val (or test), these are its parts. Every picture has a caption, and every caption a
 * picture. Or a folder as COCO is distributed: pictures in train2017 and val2017, their captions in
 * annotations/captions_train2017.json and captions_val2017.json (any year, the last one).
 */
#include "data/sets/caption_table.h"
#include "data/sets/part_folder.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PICTURE_MOST ((size_t)1 << 30) /* bytes */
#define TABLE_MOST   ((size_t)1 << 32)
#define TEXT_MOST    ((size_t)1 << 20)
#define FOLDERS_MOST 16 /* one in the other */

struct captions {
	char *root;
	char *list; /* of COCO, which is not within the root; NULL = it is none */
	struct jm_caption_table pictures; /* found, without texts; sorted */
};

static const char *const picture_ends[] = {".jpg", ".jpeg", ".png", NULL};
static const char *const lists[] = {"metadata.jsonl", "captions.json", NULL};

/* ---- names ----------------------------------------------------------------------------------- */

/* Where the end of a picture's name begins; NULL = it is not the name of a picture. */
static const char *picture_end(const char *name)
{
	size_t n = strlen(name);

	for (int i = 0; picture_ends[i]; i++) {
		size_t m = strlen(picture_ends[i]);

		if (n > m && !strcasecmp(name + n - m, picture_ends[i]))
			return name + n - m;
	}
	return NULL;
}

static bool is_there(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	       !access(path, F_OK);
}

/* The file that lists the captions; NULL = each picture has a file of text. */
static const char *list_of(const char *root)
{
	for (int i = 0; lists[i]; i++)
		if (is_there(root, lists[i]))
			return lists[i];
	return NULL;
}

/* Is this a picture with a file of text beside it? */
static bool is_captioned(const char *root, const char *name)
{
	const char *end = picture_end(name);
	char text[NAME_MAX + 8];

	if (!end || end - name > NAME_MAX)
		return false;
	snprintf(text, sizeof(text), "%.*s.txt", (int)(end - name), name);
	return is_there(root, text);
}

static bool is_text(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && !strcasecmp(name + n - 4, ".txt");
}

/* Has the folder such a picture? One without texts, as those of classes are, is read once. */
static bool has_captioned(const char *folder)
{
	const struct dirent *entry;
	bool texts = false, found = false;
	DIR *d = opendir(folder);

	while (d && !texts && (entry = readdir(d)))
		texts = is_text(entry->d_name);
	if (texts)
		rewinddir(d);
	while (texts && !found && (entry = readdir(d)))
		found = is_captioned(folder, entry->d_name);
	if (d)
		closedir(d);
	return found;
}

/* Has the folder, or one in it, such a picture? */
static bool have_captioned(const char *root)
{
	const struct dirent *entry;
	char below[PATH_MAX];
	bool found = has_captioned(root);
	DIR *d = found ? NULL : opendir(root);

	while (d && !found && (entry = readdir(d)))
		found = entry->d_name[0] != '.' && jm_is_folder_in(root, entry->d_name, below) &&
			has_captioned(below);
	if (d)
		closedir(d);
	return found;
}

#define COCO_BEGIN "captions_"
#define COCO_END   ".json"

/* "train2017" of "captions_train2017.json"; false: it is no list of this part. */
static bool coco_name(const char *file, enum jm_part part, char ret[NAME_MAX + 1])
{
	const char *begin = part == JM_PART_TRAIN ? COCO_BEGIN "train" : COCO_BEGIN "val";
	size_t n = strlen(file), before = strlen(COCO_BEGIN), behind = strlen(COCO_END);

	if (strncmp(file, begin, strlen(begin)) != 0 || strcmp(file + n - behind, COCO_END) != 0)
		return false;
	snprintf(ret, NAME_MAX + 1, "%.*s", (int)(n - before - behind), file + before);
	return true;
}

/* Pictures and captions of a part as COCO lays them out; both of PATH_MAX bytes. False: it does not
 * have them. */
static bool find_coco(const char *dir, enum jm_part part, char *folder, char *list)
{
	char last[NAME_MAX + 1] = "", name[NAME_MAX + 1];
	const struct dirent *entry;
	DIR *d;

	snprintf(list, PATH_MAX, "%s/annotations", dir);
	d = opendir(list);
	while (d && (entry = readdir(d)))
		if (coco_name(entry->d_name, part, name) && strcmp(name, last) > 0 &&
			jm_is_folder_in(dir, name, folder))
			memcpy(last, name, sizeof(last));
	if (d)
		closedir(d);
	snprintf(list, PATH_MAX, "%s/annotations/" COCO_BEGIN "%s" COCO_END, dir, last);
	return *last && jm_is_folder_in(dir, last, folder);
}

static bool captions_fits(const char *path)
{
	char part[PATH_MAX], list[PATH_MAX];
	const char *root;

	if (find_coco(path, JM_PART_TRAIN, part, list) ||
		find_coco(path, JM_PART_HELD_OUT, part, list))
		return true;
	root = jm_part_folder(path, JM_PART_TRAIN, part);
	return jm_is_folder(root) && (list_of(root) || have_captioned(root));
}

/* ---- pictures -------------------------------------------------------------------------------- */

static int out_of_memory(const struct jm_data_set *set, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", set->path);
}

/* What may be a sample: pictures, or files of text. */
struct search {
	const char *root;
	bool texts; /* look for files of text, too */
	struct jm_caption_table *pictures, *found_texts;
	struct jm_err *err;
};

static int look_in(struct search *s, const char *below, int depth);

static int look_at(struct search *s, const char *name, int depth)
{
	char path[PATH_MAX];

	if (picture_end(name))
		return jm_caption_add(s->pictures, s->root, name, "", 0, s->err);
	if (is_text(name))
		return s->texts ? jm_caption_add(s->found_texts, s->root, name, "", 0, s->err) : 0;
	return jm_is_folder_in(s->root, name, path) ? look_in(s, name, depth + 1) : 0;
}

/* All files in the folder `below` the root, "" for itself. */
static int look_in(struct search *s, const char *below, int depth)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	DIR *d = NULL;
	int code = 0;

	if (depth <= FOLDERS_MOST && jm_is_folder_in(s->root, below, path))
		d = opendir(path);
	if (!d)
		return jm_err_set(s->err, JM_EIO,
			"Folder %s/%s cannot be read, or is more than %d folders deep; give "
			"yourself "
			"the right to read it, or move it.",
			s->root, below, FOLDERS_MOST);
	while (!code && (entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(path, sizeof(path), "%s%s%s", below, *below ? "/" : "",
			    entry->d_name) < (int)sizeof(path))
			code = look_at(s, path, depth);
	}
	closedir(d);
	return code;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const char *path_in(const struct captions *c, const char *name, char *path)
{
	snprintf(path, PATH_MAX, "%s/%s", c->root, name);
	return path;
}

static int read_list(
	struct captions *c, const char *list, struct jm_caption_table *ret, struct jm_err *err)
{
	char path[PATH_MAX];
	bool lines = list == lists[0];
	unsigned char *bytes;
	size_t n;
	int code;

	if (list != c->list)
		list = path_in(c, list, path);
	code = jm_data_file_read(list, TABLE_MOST, &bytes, &n, err);
	if (code)
		return code;
	bytes[n] = '\0';
	code = lines ? jm_caption_read_lines(ret, list, (char *)bytes, n, err)
		     : jm_caption_read_coco(ret, list, (char *)bytes, n, err);
	free(bytes);
	return code;
}

/* Name and length of a picture without its end. */
static int compare_stem(const char *picture, const char *stem, size_t n)
{
	int order = strncmp(picture, stem, n);

	return order ? order : (unsigned char)picture[n] - '.';
}

/* The picture of a file of text, the first whose name is `stem` and an end. NULL = none is. */
static const char *picture_of(const struct jm_caption_table *pictures, const char *stem, size_t n)
{
	int64_t low = 0, high = pictures->n;

	while (low < high) {
		int64_t mid = low + (high - low) / 2;

		if (compare_stem(jm_caption_name(pictures, mid), stem, n) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < pictures->n; low++) {
		const char *name = jm_caption_name(pictures, low);

		if (compare_stem(name, stem, n))
			break;
		if (picture_end(name) == name + n)
			return name;
	}
	return NULL;
}

static int read_text(struct captions *c, const char *name, struct jm_picture_room *room,
	struct jm_caption_table *ret, struct jm_err *err)
{
	size_t stem = strlen(name) - 4, n;
	char path[PATH_MAX];
	const char *picture = picture_of(&c->pictures, name, stem);
	int code = jm_data_file_read_to(path_in(c, name, path), TEXT_MOST, room, &n, err);

	if (code)
		return code;
	while (n && strchr(" \t\r\n", room->bytes[n - 1]))
		n--;
	return jm_caption_add(ret, c->root, picture ? picture : name, (char *)room->bytes, n, err);
}

static int read_texts(struct captions *c, const struct jm_caption_table *texts,
	struct jm_caption_table *ret, struct jm_err *err)
{
	struct jm_picture_room room = {0};
	int code = 0;

	for (int64_t i = 0; i < texts->n && !code; i++)
		code = read_text(c, jm_caption_name(texts, i), &room, ret, err);
	free(room.bytes);
	return code;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* What differs between sorted names of pictures and of captions: how many, and the first. */
struct lack {
	int64_t n;
	const char *first;
};

static void note(struct lack *lack, const char *name)
{
	if (!lack->n++)
		lack->first = name;
}

static void compare(const struct jm_caption_table *pictures, const struct jm_caption_table *texts,
	struct lack *no_picture, struct lack *no_text)
{
	int64_t p = 0, t = 0;

	while (p < pictures->n || t < texts->n) {
		const char *a = p < pictures->n ? jm_caption_name(pictures, p) : NULL;
		const char *b = t < texts->n ? jm_caption_name(texts, t) : NULL;
		int order = !a ? 1 : !b ? -1 : strcmp(a, b);

		if (order < 0)
			note(no_text, a);
		else if (order > 0)
			note(no_picture, b);
		p += order <= 0;
		t += order > 0;
		while (!order && t < texts->n && !strcmp(a, jm_caption_name(texts, t)))
			t++;
	}
}

static int check(const struct captions *c, const struct jm_caption_table *texts, struct jm_err *err)
{
	struct lack no_picture = {0}, no_text = {0};

	compare(&c->pictures, texts, &no_picture, &no_text);
	if (no_picture.n)
		return jm_err_set(err, JM_EFORMAT,
			"Data set %s has captions without a picture: %lld, the first one for %s; "
			"remove them, or put the pictures there.",
			c->root, (long long)no_picture.n, no_picture.first);
	if (no_text.n)
		return jm_err_set(err, JM_EFORMAT,
			"Data set %s has pictures without a caption: %lld, the first one %s; "
			"remove them, or write their captions.",
			c->root, (long long)no_text.n, no_text.first);
	return 0;
}

/* The texts, in the order of pictures, as the set has them. */
static int keep(struct jm_data_set *set, struct jm_caption_table *texts, struct jm_err *err)
{
	struct captions *c = set->state;
	struct jm_bytes all = {0};
	int64_t t = 0;

	set->n = c->pictures.n;
	set->texts.first = calloc((size_t)set->n + 1, sizeof(int64_t));
	set->texts.start = calloc((size_t)texts->n + 1, sizeof(int64_t));
	if (!set->texts.first || !set->texts.start || !jm__bytes_reserve(&all, 1))
		return out_of_memory(set, err);
	for (int64_t i = 0; i < set->n; i++) {
		const char *name = jm_caption_name(&c->pictures, i);

		for (; t < texts->n && !strcmp(name, jm_caption_name(texts, t)); t++) {
			if (!jm__bytes_add(&all, texts->bytes.at + texts->at[t].text,
				    texts->at[t].n_text)) {
				free(all.at);
				return out_of_memory(set, err);
			}
			set->texts.start[t + 1] = (int64_t)all.n;
		}
		set->texts.first[i + 1] = t;
	}
	set->texts.bytes = all.at;
	return 0;
}

static int find_texts(struct captions *c, struct jm_caption_table *ret, struct jm_err *err)
{
	const char *list = c->list ? c->list : list_of(c->root);
	struct jm_caption_table names = {0};
	struct search s = {.root = c->root,
		.texts = !list,
		.pictures = &c->pictures,
		.found_texts = &names,
		.err = err};
	int code = look_in(&s, "", 0);

	jm_caption_sort(&c->pictures);
	if (!code)
		code = list ? read_list(c, list, ret, err) : read_texts(c, &names, ret, err);
	jm_caption_sort(ret);
	jm_caption_table_done(&names);
	return code;
}

/* Where its pictures are, and in COCO's layout its captions. */
static int find_root(
	const struct jm_data_set *set, struct captions *c, enum jm_part part, struct jm_err *err)
{
	enum jm_part other = part == JM_PART_TRAIN ? JM_PART_HELD_OUT : JM_PART_TRAIN;
	char path[PATH_MAX], list[PATH_MAX];
	bool coco = find_coco(set->path, part, path, list);

	if (!coco && find_coco(set->path, other, path, list))
		return jm_err_set(err, JM_ENOENT,
			"Data set %s has no pictures in a folder %s2017 (or of another year) with "
			"captions in annotations/" COCO_BEGIN "%s2017" COCO_END "; put both there.",
			set->path, part == JM_PART_TRAIN ? "train" : "val",
			part == JM_PART_TRAIN ? "train" : "val");
	c->list = coco ? strdup(list) : NULL;
	c->root = strdup(coco ? path : jm_part_folder(set->path, part, path));
	return c->root && (c->list || !coco) ? 0 : out_of_memory(set, err);
}

static int captions_open(struct jm_data_set *set, enum jm_part part, struct jm_err *err)
{
	struct captions *c = calloc(1, sizeof(*c));
	struct jm_caption_table texts = {0};
	int code;

	set->state = c;
	code = c ? find_root(set, c, part, err) : out_of_memory(set, err);
	if (code)
		return code;
	set->single = !strcmp(c->root, set->path);
	code = find_texts(c, &texts, err);
	if (!code)
		code = check(c, &texts, err);
	if (!code)
		code = keep(set, &texts, err);
	jm_caption_table_done(&texts);
	return code;
}

static const char *captions_file(const struct jm_data_set *set, int64_t i, char *to)
{
	const struct captions *c = set->state;

	return path_in(c, jm_caption_name(&c->pictures, i), to) + strlen(c->root);
}

static int captions_read(const struct jm_data_set *set, int64_t i, struct jm_picture_decoder *d,
	struct jm_picture *ret, int64_t *ret_bytes, struct jm_err *err)
{
	const struct captions *c = set->state;
	char path[PATH_MAX];
	size_t n;
	int code = jm_data_file_read_to(path_in(c, jm_caption_name(&c->pictures, i), path),
		PICTURE_MOST, &d->file, &n, err);

	*ret_bytes = 0;
	if (code)
		return code;
	*ret_bytes = (int64_t)n;
	return jm_picture_decode(d, path, d->file.bytes, n, ret, err);
}

static void captions_close(struct jm_data_set *set)
{
	struct captions *c = set->state;

	if (c) {
		jm_caption_table_done(&c->pictures);
		free(c->root);
		free(c->list);
	}
	free(c);
}

static const struct jm_data_field fields[] = {
	{"image", JM_DATA_PICTURE}, {"caption", JM_DATA_TEXT}, {0}};

const struct jm_data_format jm_data_format_captions = {
	.name = "pictures with captions",
	.fields = fields,
	.fits = captions_fits,
	.open = captions_open,
	.read = captions_read,
	.file = captions_file,
	.close = captions_close,
};
