/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG, by libjpeg-turbo's TurboJPEG API: the pixels are those of djpeg with its default settings. */
#include "data/sets/picture.h"

#include <turbojpeg.h>

static int damaged(const char *name, tjhandle h, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT, "Picture %s is damaged: %s; remove it or copy it again.",
		name, tjGetErrorStr2(h));
}

static int read_header(tjhandle h, const char *name, const unsigned char *bytes, size_t n,
	int *ret_width, int *ret_height, struct jm_err *err)
{
	int samples, colours;

	if (tjDecompressHeader3(
		    h, bytes, (unsigned long)n, ret_width, ret_height, &samples, &colours))
		return damaged(name, h, err);
	if (colours == TJCS_CMYK || colours == TJCS_YCCK)
		return jm_err_set(err, JM_EFORMAT,
			"Picture %s has the colours of print (CMYK), which have no exact red, "
			"green and blue; convert it to RGB or remove it.",
			name);
	return 0;
}

static int decode(tjhandle h, const char *name, const unsigned char *bytes, size_t n,
	struct jm_picture *ret, struct jm_err *err)
{
	struct jm_picture p;
	int width, height, code = read_header(h, name, bytes, n, &width, &height, err);

	if (!code)
		code = jm_picture_room(name, width, height, &p, err);
	if (code)
		return code;
	/* warnings count: of a file that ends early the rest is grey */
	if (tjDecompress2(h, bytes, (unsigned long)n, p.rgb, width, 0, height, TJPF_RGB, 0)) {
		jm_picture_done(&p);
		return damaged(name, h, err);
	}
	*ret = p;
	return 0;
}

static int jpeg_decode(const char *name, const unsigned char *bytes, size_t n,
	struct jm_picture *ret, struct jm_err *err)
{
	tjhandle h = tjInitDecompress();
	int code;

	if (!h)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for picture %s.", name);
	code = decode(h, name, bytes, n, ret, err);
	tjDestroy(h);
	return code;
}

const struct jm_picture_format jm_picture_format_jpeg = {
	.name = "JPEG",
	.magic = "\xff\xd8\xff",
	.n_magic = 3,
	.decode = jpeg_decode,
};
