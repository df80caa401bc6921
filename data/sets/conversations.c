/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file NAME.json of conversations about pictures, which are in its folder or below it (LLaVA, Liu
 * et al., arXiv 2304.08485).
 */
#include "data/sets/conversation_list.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define PICTURE_MOST ((size_t)1 << 30) /* bytes */
#define LIST_MOST    ((size_t)1 << 32)

static bool conversations_fits(const char *path)
{
	size_t n = strlen(path);
	struct stat st;

	return n > 5 && !strcasecmp(path + n - 5, ".json") && !stat(path, &st) &&
	       S_ISREG(st.st_mode);
}

/* The path of picture i. */
static const char *path_of(const struct jm_data_set *set, int64_t i, char ret[PATH_MAX])
{
	const struct jm_conversations *c = set->state;
	const char *slash = strrchr(set->path, '/');

	snprintf(ret, PATH_MAX, "%.*s%s", slash ? (int)(slash - set->path) + 1 : 0, set->path,
		c->names.at + c->name[i]);
	return ret;
}

/* Every picture is there. */
static int check(const struct jm_data_set *set, struct jm_err *err)
{
	char path[PATH_MAX];
	struct stat st;

	for (int64_t i = 0; i < set->n; i++)
		if (stat(path_of(set, i, path), &st) || !S_ISREG(st.st_mode) || access(path, R_OK))
			return jm_err_set(err, JM_ENOENT,
				"Entry %lld of %s names the picture %s, which cannot be read; put "
				"it there, or remove the entry.",
				(long long)i, set->path, path);
	return 0;
}

static int conversations_open(struct jm_data_set *set, enum jm_part part, struct jm_err *err)
{
	struct jm_conversations *c = calloc(1, sizeof(*c));
	unsigned char *bytes = NULL;
	size_t n;
	int code;

	(void)part;
	set->state = c;
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", set->path);
	set->single = true;
	code = jm_data_file_read(set->path, LIST_MOST, &bytes, &n, err);
	if (!code)
		code = jm_conversations_read(c, set->path, (char *)bytes, n, err);
	free(bytes);
	if (code)
		return code;
	set->n = c->n;
	set->texts = c->texts;
	c->texts = (struct jm_sample_texts){0};
	return check(set, err);
}

static const char *conversations_file(const struct jm_data_set *set, int64_t i, char *to)
{
	const struct jm_conversations *c = set->state;

	path_of(set, i, to);
	return c->names.at + c->name[i];
}

static int conversations_read(const struct jm_data_set *set, int64_t i,
	struct jm_picture_decoder *d, struct jm_picture *ret, int64_t *ret_bytes,
	struct jm_err *err)
{
	char path[PATH_MAX];
	size_t n;
	int code = jm_data_file_read_to(path_of(set, i, path), PICTURE_MOST, &d->file, &n, err);

	*ret_bytes = code ? 0 : (int64_t)n;
	return code ? code : jm_picture_decode(d, path, d->file.bytes, n, ret, err);
}

static void conversations_close(struct jm_data_set *set)
{
	if (set->state)
		jm_conversations_done(set->state);
	free(set->state);
}

static const struct jm_data_field fields[] = {{"image", JM_DATA_PICTURE}, {"ids", JM_DATA_TALK_IDS},
	{"target", JM_DATA_TALK_TARGETS}, {"picture", JM_DATA_TALK_PLACE}, {0}};

const struct jm_data_format jm_data_format_conversations = {
	.name = "conversations about pictures",
	.fields = fields,
	.fits = conversations_fits,
	.open = conversations_open,
	.read = conversations_read,
	.file = conversations_file,
	.close = conversations_close,
};
