/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/picture.h"

#include "base/member.h"

#include <stdlib.h>
#include <string.h>

int jm_picture_room(struct jm_picture_room *room, const char *name, size_t size, struct jm_err *err)
{
	if (room->bytes && room->size >= size)
		return 0;
	free(room->bytes);
	room->bytes = malloc(size ? size : 1);
	room->size = room->bytes ? size : 0;
	return room->bytes ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for picture %s.", name);
}

int jm_picture_size(struct jm_picture_decoder *d, const char *name, int64_t width, int64_t height,
	struct jm_picture_part *ret, struct jm_err *err)
{
	if (width < 1 || height < 1 || width > JM_PICTURE_SIDE_MOST ||
		height > JM_PICTURE_SIDE_MOST || width * height > JM_PICTURE_PIXELS_MOST)
		return jm_err_set(err, JM_EFORMAT,
			"Picture %s has %lld x %lld pixels; a side may have 1 to %d pixels and a "
			"picture %lld million: remove it or make it smaller.",
			name, (long long)width, (long long)height, JM_PICTURE_SIDE_MOST,
			(long long)JM_PICTURE_PIXELS_MOST / 1000000);
	*ret = (struct jm_picture_part){.width = (int)width, .height = (int)height, .shrink = 1};
	if (d->choose)
		d->choose(d->arg, (int)width, (int)height, ret);
	return 0;
}

int jm_picture_pixels(struct jm_picture_decoder *d, const char *name, int width, int height,
	struct jm_picture *ret, struct jm_err *err)
{
	int code = jm_picture_room(&d->pixels, name, 3 * (size_t)width * (size_t)height, err);

	*ret = (struct jm_picture){
		.width = width, .height = height, .rgb = d->pixels.bytes, .shrink = 1};
	return code;
}

static int unknown(const char *name, size_t n, struct jm_err *err)
{
	const struct jm_absent *absent = jm_absent_picture_formats;

	if (!n)
		return jm_err_set(
			err, JM_EFORMAT, "Picture %s is empty: it has no bytes; remove it.", name);
	if (absent->name)
		return jm_err_set(err, JM_EFORMAT,
			"Picture %s is of no format of this build, which has no %s, because %s.",
			name, absent->name, absent->reason);
	return jm_err_set(err, JM_EFORMAT,
		"File %s is no picture: it begins neither as a JPEG nor as a PNG; remove it.",
		name);
}

int jm_picture_decode(struct jm_picture_decoder *d, const char *name, const void *bytes, size_t n,
	struct jm_picture *ret, struct jm_err *err)
{
	for (int i = 0; jm_picture_formats[i] && i < JM_PICTURE_FORMATS_MOST; i++) {
		const struct jm_picture_format *f = jm_picture_formats[i];

		if (n >= f->n_magic && !memcmp(bytes, f->magic, f->n_magic))
			return f->decode(name, bytes, n, d, &d->state[i], ret, err);
	}
	return unknown(name, n, err);
}

void jm_picture_decoder_done(struct jm_picture_decoder *d)
{
	for (int i = 0; jm_picture_formats[i] && i < JM_PICTURE_FORMATS_MOST; i++)
		if (d->state[i])
			jm_picture_formats[i]->close(d->state[i]);
	free(d->file.bytes);
	free(d->pixels.bytes);
	*d = (struct jm_picture_decoder){0};
}
