/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JPEG, by libjpeg-turbo: the pixels are those of djpeg with its default settings. Of a part only
 * its pixels are computed, and what is below it is parsed only in files that do not end as a JPEG
 * does: those that end early are damaged, whichever part is wanted.
 */
#include "data/sets/picture.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
/* which the next one needs: */
#include <jpeglib.h>
/* and its numbers of messages: */
#include <jerror.h>

/* pixels: the library computes those at the edges of a part as if nothing were beyond */
#define EDGE 2

struct jpeg {
	struct jpeg_decompress_struct d;
	struct jpeg_error_mgr errors;
	jmp_buf out; /* where errors of the library end */
	char why[JMSG_LENGTH_MAX];
};

/* ---- what the library reports ---------------------------------------------------------------- */

static void on_error(j_common_ptr c)
{
	struct jpeg *j = (struct jpeg *)c; /* its first member */

	if (!j->errors.num_warnings)
		j->errors.format_message(c, j->why);
	longjmp(j->out, 1);
}

/* Warnings of an unknown version, or of fields without a use: no pixel is lost. */
static bool is_harmless(int message)
{
	return message == JWRN_JFIF_MAJOR || message == JWRN_ADOBE_XFORM ||
	       message == JWRN_NOT_SEQUENTIAL;
}

/* Other warnings count as damage: of a file that ends early the rest is grey. The first one is
 * kept. */
static void on_message(j_common_ptr c, int level)
{
	struct jpeg *j = (struct jpeg *)c;

	if (level < 0 && !is_harmless(j->errors.msg_code) && !j->errors.num_warnings++)
		j->errors.format_message(c, j->why);
}

static int damaged(const struct jpeg *j, const char *name, struct jm_err *err)
{
	return jm_err_set(err, JM_EFORMAT, "Picture %s is damaged: %s; remove it or copy it again.",
		name, j->why);
}

/* ---- decoding -------------------------------------------------------------------------------- */

static int read_header(
	struct jpeg *j, const char *name, const unsigned char *bytes, size_t n, struct jm_err *err)
{
	jpeg_mem_src(&j->d, bytes, (unsigned long)n);
	jpeg_read_header(&j->d, TRUE);
	if (j->d.jpeg_color_space == JCS_CMYK || j->d.jpeg_color_space == JCS_YCCK)
		return jm_err_set(err, JM_EFORMAT,
			"Picture %s has the colours of print (CMYK), which have no exact red, "
			"green and blue; convert it to RGB or remove it.",
			name);
	return 0;
}

/* From `from` on, of `length` values, as values of which one is `shrink` of them; `most` there
 * are. */
static void scale(int from, int length, int shrink, JDIMENSION most, int *ret_from, int *ret_length)
{
	int end = (from + length + shrink - 1) / shrink + EDGE;

	*ret_from = from / shrink > EDGE ? from / shrink - EDGE : 0;
	*ret_length = (end < (int)most ? end : (int)most) - *ret_from;
}

static void read_rows(struct jpeg *j, struct jm_picture *p)
{
	for (int y = 0; y < p->height;) {
		JSAMPROW row[8];
		int n = p->height - y < 8 ? p->height - y : 8;

		for (int i = 0; i < n; i++)
			row[i] = p->rgb + 3 * (size_t)(y + i) * (size_t)p->width;
		y += (int)jpeg_read_scanlines(&j->d, row, (JDIMENSION)n);
	}
}

/* Parses what is below the part. The last row is computed, because the library skips the end
 * without a look at it. */
static void read_rest(struct jpeg *j, struct jm_picture_decoder *d)
{
	JSAMPROW row[] = {d->pixels.bytes + d->pixels.size - 3 * (size_t)j->d.output_width};
	JDIMENSION rest = j->d.output_height - j->d.output_scanline;

	if (rest > 1)
		jpeg_skip_scanlines(&j->d, rest - 1);
	if (rest)
		jpeg_read_scanlines(&j->d, row, 1);
	jpeg_finish_decompress(&j->d);
}

/*
 * May columns be left out? Not of progressive pictures, for which the library needs all; nor where
 * a channel has more than twice the values of another one per side (4:1:0), because libjpeg-turbo
 * 2.1.5 then leaves columns of smaller pictures unwritten.
 */
static bool may_crop(const struct jpeg *j)
{
	return !j->d.progressive_mode && j->d.max_h_samp_factor <= 2 && j->d.max_v_samp_factor <= 2;
}

static int read_part(struct jpeg *j, const char *name, const struct jm_picture_part *part,
	struct jm_picture_decoder *d, struct jm_picture *ret, struct jm_err *err)
{
	int left, top, width, height, code;
	JDIMENSION from = 0, across;

	j->d.out_color_space = JCS_RGB;
	j->d.scale_num = 1;
	j->d.scale_denom = (unsigned int)part->shrink;
	jpeg_start_decompress(&j->d);
	scale(part->left, part->width, part->shrink, j->d.output_width, &left, &width);
	scale(part->top, part->height, part->shrink, j->d.output_height, &top, &height);
	across = (JDIMENSION)width;
	if (may_crop(j) && across < j->d.output_width) {
		from = (JDIMENSION)left;
		jpeg_crop_scanline(&j->d, &from, &across);
	}
	/* one more row, for read_rest */
	code = jm_picture_pixels(d, name, (int)j->d.output_width, height + 1, ret, err);
	if (code)
		return code;
	ret->height = height;
	ret->left = (int)from;
	ret->top = top;
	ret->shrink = part->shrink;
	if (top)
		jpeg_skip_scanlines(&j->d, (JDIMENSION)top);
	read_rows(j, ret);
	return 0;
}

/* Errors of the library end in `decode`. */
static int decode_parts(struct jpeg *j, const char *name, const unsigned char *bytes, size_t n,
	struct jm_picture_decoder *d, struct jm_picture *ret, struct jm_err *err)
{
	struct jm_picture_part part;
	int code = read_header(j, name, bytes, n, err);

	if (!code)
		code = jm_picture_size(d, name, j->d.image_width, j->d.image_height, &part, err);
	if (!code)
		code = read_part(j, name, &part, d, ret, err);
	if (!code && (part.height == (int)j->d.image_height || !jm_jpeg_ends_whole(bytes, n)))
		read_rest(j, d);
	if (!code && j->errors.num_warnings)
		code = damaged(j, name, err);
	return code;
}

static int decode(struct jpeg *j, const char *name, const unsigned char *bytes, size_t n,
	struct jm_picture_decoder *d, struct jm_picture *ret, struct jm_err *err)
{
	j->errors.num_warnings = 0;
	return setjmp(j->out) ? damaged(j, name, err)
			      : decode_parts(j, name, bytes, n, d, ret, err);
}

/* False: the library has no memory for it. */
static bool create(struct jpeg *j)
{
	if (setjmp(j->out))
		return false;
	jpeg_create_decompress(&j->d);
	return true;
}

static struct jpeg *new_jpeg(void)
{
	struct jpeg *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->d.err = jpeg_std_error(&j->errors);
	j->errors.error_exit = on_error;
	j->errors.emit_message = on_message;
	if (create(j))
		return j;
	free(j);
	return NULL;
}

static int jpeg_decode(const char *name, const unsigned char *bytes, size_t n,
	struct jm_picture_decoder *d, void **state, struct jm_picture *ret, struct jm_err *err)
{
	int code;

	if (!*state)
		*state = new_jpeg();
	if (!*state)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for picture %s.", name);
	code = decode(*state, name, bytes, n, d, ret, err);
	jpeg_abort_decompress(&((struct jpeg *)*state)->d);
	return code;
}

static void jpeg_close(void *state)
{
	struct jpeg *j = state;

	jpeg_destroy_decompress(&j->d);
	free(j);
}

const struct jm_picture_format jm_picture_format_jpeg = {
	.name = "JPEG",
	.magic = "\xff\xd8\xff",
	.n_magic = 3,
	.decode = jpeg_decode,
	.close = jpeg_close,
};
