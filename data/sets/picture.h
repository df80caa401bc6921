/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a picture format: one file = one format, which turns the bytes of a file into
 * pixels. */
#ifndef JM_PICTURE_H
#define JM_PICTURE_H

#include "joulemark.h"

#include <stddef.h>
#include <stdint.h>

#define JM_PICTURE_SIDE_MOST	20000
#define JM_PICTURE_PIXELS_MOST	((int64_t)1 << 27)
#define JM_PICTURE_FORMATS_MOST 4

struct jm_nvjpeg;
struct jm_nvjpeg_decoder;

/* Who decoded a picture: the processor; multiprocessors of a GPU, or its engine for JPEG. */
enum jm_picture_by {
	JM_PICTURE_BY_HOST,
	JM_PICTURE_BY_GPU,
	JM_PICTURE_BY_ENGINE,
	JM_PICTURE_BY_COUNT,
};

/* Pixels of a picture, u8 [height][width][3]: red, green, blue. They are of one part, which may
 * have been made smaller. */
struct jm_picture {
	int width, height;
	unsigned char *rgb; /* of the decoder, until its next picture */
	int left, top;	    /* where they begin in the picture, counted in these pixels */
	int shrink;	    /* pixels of the file in one of these, per side: 1, 2, 4 or 8 */
	enum jm_picture_by by;
};

/* What is wanted of a picture, in its own pixels; a format may give more of it, and a smaller
 * shrink. */
struct jm_picture_part {
	int left, top, width, height;
	int shrink; /* 1, 2, 4 or 8 */
};

/* Memory that grows and is kept. */
struct jm_picture_room {
	unsigned char *bytes;
	size_t size;
};

/* What one thread keeps from picture to picture. Zeroed: it decodes whole pictures. */
struct jm_picture_decoder {
	/* Chooses the part, within the picture, once its size is known; *ret holds the whole. NULL
	 * = the whole. */
	void (*choose)(void *arg, int width, int height, struct jm_picture_part *ret);
	void *arg;
	struct jm_nvjpeg *gpu; /* decodes JPEG files that it can; NULL = the host decodes all */
	struct jm_nvjpeg_decoder *on_gpu; /* its own, once it was needed */
	struct jm_picture_room file, pixels;
	void *state[JM_PICTURE_FORMATS_MOST]; /* of the formats, in the order of their table */
};

struct jm_picture_format {
	const char *name; /* "JPEG" */
	const char *magic;
	size_t n_magic; /* the bytes that every file of the format begins with */
	/*
	 * The pixels of a file's bytes; grey becomes three equal channels, what is transparent
	 * lies on black.
	 * JM_EFORMAT: it ends early, is damaged where it was read (all of it for the whole
	 * picture), or is not supported; `name` is the file's. Its size has passed jm_picture_size
	 * before its pixels are read.
	 * *state: NULL at first, kept by the decoder.
	 */
	int (*decode)(const char *name, const unsigned char *bytes, size_t n,
		struct jm_picture_decoder *d, void **state, struct jm_picture *ret,
		struct jm_err *err);
	void (*close)(void *state); /* NULL = there is none; else never called with NULL */
};

extern const struct jm_picture_format *const jm_picture_formats[]; /* NULL-terminated, generated */

/* Decodes a file that is in memory, by what it begins with. ret: its pixels stay the decoder's.
 * JM_EFORMAT: empty, damaged, too large or of no format of this build. JM_EGONE: the GPU failed. */
int jm_picture_decode(struct jm_picture_decoder *d, const char *name, const void *bytes, size_t n,
	struct jm_picture *ret, struct jm_err *err);
/* Pictures so far at which the GPU's engine for JPEG failed. */
int64_t jm_picture_engine_failed(const struct jm_picture_decoder *d);
void jm_picture_decoder_done(struct jm_picture_decoder *d);

/* For formats: asks what is wanted of a picture of this size. JM_EFORMAT: a side is not positive,
 * or above the limits. */
int jm_picture_size(struct jm_picture_decoder *d, const char *name, int64_t width, int64_t height,
	struct jm_picture_part *ret, struct jm_err *err);
/* For formats: room for so many pixels, as a whole picture that is not made smaller. */
int jm_picture_pixels(struct jm_picture_decoder *d, const char *name, int width, int height,
	struct jm_picture *ret, struct jm_err *err);

/* A JPEG file ends with its marker of the end (EOI). */
bool jm_jpeg_ends_whole(const unsigned char *bytes, size_t n);

/* Makes room for `size` bytes; what was there is lost. JM_ENOMEM. */
int jm_picture_room(
	struct jm_picture_room *room, const char *name, size_t size, struct jm_err *err);

#endif
