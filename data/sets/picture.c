/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/picture.h"

#include "base/member.h"

#include <stdlib.h>
#include <string.h>

int jm_picture_room(
	const char *name, int64_t width, int64_t height, struct jm_picture *ret, struct jm_err *err)
{
	struct jm_picture p = {.width = (int)width, .height = (int)height};

	if (width < 1 || height < 1 || width > JM_PICTURE_SIDE_MOST ||
		height > JM_PICTURE_SIDE_MOST || width * height > JM_PICTURE_PIXELS_MOST)
		return jm_err_set(err, JM_EFORMAT,
			"Picture %s has %lld x %lld pixels; a side may have 1 to %d pixels and a "
			"picture %lld million: remove it or make it smaller.",
			name, (long long)width, (long long)height, JM_PICTURE_SIDE_MOST,
			(long long)JM_PICTURE_PIXELS_MOST / 1000000);
	p.rgb = malloc((size_t)(3 * width * height));
	if (!p.rgb)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for picture %s.", name);
	*ret = p;
	return 0;
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

int jm_picture_decode(
	const char *name, const void *bytes, size_t n, struct jm_picture *ret, struct jm_err *err)
{
	for (int i = 0; jm_picture_formats[i]; i++) {
		const struct jm_picture_format *f = jm_picture_formats[i];

		if (n >= f->n_magic && !memcmp(bytes, f->magic, f->n_magic))
			return f->decode(name, bytes, n, ret, err);
	}
	return unknown(name, n, err);
}

void jm_picture_done(struct jm_picture *p)
{
	free(p->rgb);
	*p = (struct jm_picture){0};
}
