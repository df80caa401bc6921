/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/raw_pictures.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MOST 65536 /* bytes of a file with names */

int jm_raw_pictures_read(const struct jm_data_set *set, int64_t i, struct jm_picture_decoder *d,
	struct jm_picture *ret, int64_t *ret_bytes, struct jm_err *err)
{
	const struct jm_raw_pictures *raw = set->state;
	const unsigned char *from = raw->bytes + (size_t)i * raw->stride + raw->offset;
	int plane = set->width * set->height, step = raw->channels == 3 ? plane : 0;
	struct jm_picture_part part;
	int code = jm_picture_size(d, set->path, set->width, set->height, &part, err);

	if (!code)
		code = jm_picture_pixels(d, set->path, set->width, set->height, ret, err);
	for (int at = 0; at < plane && !code; at++)
		for (int c = 0; c < 3; c++)
			ret->rgb[3 * at + c] = from[at + c * step];
	*ret_bytes = (int64_t)raw->stride;
	return code;
}

void jm_raw_pictures_close(struct jm_data_set *set)
{
	struct jm_raw_pictures *raw = set->state;

	if (raw)
		free(raw->bytes);
	free(raw);
}

static void take_names(struct jm_data_set *set, char *text)
{
	char **names = calloc((size_t)set->classes, sizeof(*names)), *rest = text, *line;
	int n = 0;

	while (names && (line = strsep(&rest, "\r\n")))
		if (*line && n < set->classes)
			names[n++] = strdup(line);
	set->class_name = names;
	if (names && n && n == set->classes && names[n - 1])
		return;
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	set->class_name = NULL;
}

void jm_raw_pictures_name(struct jm_data_set *set, const char *dir, const char *name)
{
	struct jm_err ignored = JM_ERR_INIT; /* names are not needed */
	char path[PATH_MAX];
	unsigned char *text;
	size_t n;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
		jm_data_file_read(path, NAMES_MOST, &text, &n, &ignored))
		return;
	text[n] = '\0';
	take_names(set, (char *)text);
	free(text);
}
