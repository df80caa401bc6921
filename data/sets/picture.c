/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/picture.h"

#include "base/member.h"
#include "vendor/nvjpeg.h"

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

/* ---- on a GPU -------------------------------------------------------------------------------- */

static bool begins_as_jpeg(const unsigned char *bytes, size_t n)
{
	return n >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

bool jm_jpeg_ends_whole(const unsigned char *bytes, size_t n)
{
	return n >= 2 && bytes[n - 2] == 0xff && bytes[n - 1] == 0xd9;
}

/* The rows of the part, in full size. */
static int decode_rows(struct jm_picture_decoder *d, const char *name, const unsigned char *bytes,
	size_t n, struct jm_picture *ret, struct jm_err *err)
{
	struct jm_picture_part part;
	enum jm_nvjpeg_way way;
	int width, height;
	int code = jm_nvjpeg_read_header(d->on_gpu, bytes, n, &width, &height);

	if (!code)
		code = jm_picture_size(d, name, width, height, &part, err);
	if (code)
		return code;
	*ret = (struct jm_picture){
		.width = width, .height = part.height, .top = part.top, .shrink = 1};
	code = jm_nvjpeg_decode(d->on_gpu, bytes, n, part.top, part.height, &ret->rgb, &way, err);
	ret->by = way == JM_NVJPEG_ENGINE ? JM_PICTURE_BY_ENGINE : JM_PICTURE_BY_GPU;
	return code;
}

/* 1: it is left to the host, because nvJPEG cannot decode it, or may not find damage that the host
 * finds in a file that does not end as a JPEG does. */
static int decode_on_gpu(struct jm_picture_decoder *d, const char *name, const unsigned char *bytes,
	size_t n, struct jm_picture *ret, struct jm_err *err)
{
	int code = 0;

	if (!d->gpu || !begins_as_jpeg(bytes, n) || !jm_jpeg_ends_whole(bytes, n))
		return 1;
	if (!d->on_gpu)
		code = jm_nvjpeg_decoder_open(d->gpu, &d->on_gpu, err);
	if (!code)
		code = decode_rows(d, name, bytes, n, ret, err);
	return code == JM_ENOSUP ? 1 : code;
}

/* ---- all ------------------------------------------------------------------------------------- */

int jm_picture_decode(struct jm_picture_decoder *d, const char *name, const void *bytes, size_t n,
	struct jm_picture *ret, struct jm_err *err)
{
	int code = decode_on_gpu(d, name, bytes, n, ret, err);

	if (code <= 0)
		return code;
	for (int i = 0; jm_picture_formats[i] && i < JM_PICTURE_FORMATS_MOST; i++) {
		const struct jm_picture_format *f = jm_picture_formats[i];

		if (n >= f->n_magic && !memcmp(bytes, f->magic, f->n_magic))
			return f->decode(name, bytes, n, d, &d->state[i], ret, err);
	}
	return unknown(name, n, err);
}

int64_t jm_picture_engine_failed(const struct jm_picture_decoder *d)
{
	return d->on_gpu ? jm_nvjpeg_engine_failed(d->on_gpu) : 0;
}

void jm_picture_decoder_done(struct jm_picture_decoder *d)
{
	for (int i = 0; jm_picture_formats[i] && i < JM_PICTURE_FORMATS_MOST; i++)
		if (d->state[i])
			jm_picture_formats[i]->close(d->state[i]);
	jm_nvjpeg_decoder_close(d->on_gpu);
	free(d->file.bytes);
	free(d->pixels.bytes);
	*d = (struct jm_picture_decoder){0};
}
