/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a picture format: one file = one format, which turns the bytes of a file into pixels. */
#ifndef JM_PICTURE_H
#define JM_PICTURE_H

#include "joulemark.h"

#include <stddef.h>
#include <stdint.h>

#define JM_PICTURE_SIDE_MOST   20000
#define JM_PICTURE_PIXELS_MOST ((int64_t)1 << 27)

/* u8 [height][width][3]: red, green, blue. */
struct jm_picture {
	int width, height;
	unsigned char *rgb; /* from malloc */
};

struct jm_picture_format {
	const char *name; /* "JPEG" */
	const char *magic;
	size_t n_magic; /* the bytes that every file of the format begins with */
	/*
	 * The pixels of a file's bytes; grey becomes three equal channels, alpha is dropped. Called by several threads at
	 * once. JM_EFORMAT: damaged or not supported; `name` is the file's. Its size has passed jm_picture_room before its
	 * pixels are read.
	 */
	int (*decode)(const char *name, const unsigned char *bytes, size_t n,
		struct jm_picture *ret, struct jm_err *err);
};

extern const struct jm_picture_format *const jm_picture_formats[]; /* NULL-terminated, generated */

/* Decodes a file that is in memory, by what it begins with. ret: to be freed by jm_picture_done. JM_EFORMAT: empty, damaged,
 * too large or of no format of this build. */
int jm_picture_decode(
	const char *name, const void *bytes, size_t n, struct jm_picture *ret, struct jm_err *err);
void jm_picture_done(struct jm_picture *p);

/* For formats: allocates the pixels. JM_EFORMAT: the size is not positive, or larger than the limits above. */
int jm_picture_room(const char *name, int64_t width, int64_t height, struct jm_picture *ret,
	struct jm_err *err);

#endif
