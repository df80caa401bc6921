/* SPDX-License-Identifier: Apache-2.0 */
/* PNG, by the simplified API of libpng: 16 bits become 8, palettes become colours. */
#include "data/sets/picture.h"

#include <png.h>
#include <string.h>

static int damaged(const char *name, png_image *image, struct jm_err *err)
{
	int code = jm_err_set(err, JM_EFORMAT,
		"Picture %s is damaged: %s; remove it or copy it again.", name, image->message);

	png_image_free(image);
	return code;
}

static int png_decode(const char *name, const unsigned char *bytes, size_t n,
	struct jm_picture_decoder *d, void **state, struct jm_picture *ret, struct jm_err *err)
{
	const png_color black = {0, 0, 0}; /* what is transparent is put on it */
	png_image image = {.version = PNG_IMAGE_VERSION};
	struct jm_picture_part part; /* the whole is decoded */
	struct jm_picture p;
	int code;

	(void)state;
	if (!png_image_begin_read_from_memory(&image, bytes, n))
		return damaged(name, &image, err);
	image.format = PNG_FORMAT_RGB;
	image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* without a gamma, 16 bits are as 8 bits are */
	code = jm_picture_size(d, name, image.width, image.height, &part, err);
	if (!code)
		code = jm_picture_pixels(d, name, (int)image.width, (int)image.height, &p, err);
	if (code) {
		png_image_free(&image);
		return code;
	}
	if (!png_image_finish_read(&image, &black, p.rgb, 0, NULL))
		return damaged(name, &image, err);
	*ret = p;
	return 0;
}

const struct jm_picture_format jm_picture_format_png = {
	.name = "PNG",
	.magic = "\x89PNG\r\n\x1a\n",
	.n_magic = 8,
	.decode = png_decode,
};
