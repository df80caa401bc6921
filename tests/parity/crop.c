/* SPDX-License-Identifier: Apache-2.0 */
/* crop WIDTH HEIGHT SIZE [u8] <rgb >values: what an evaluation makes of a picture, f32 or u8
 * [3][SIZE][SIZE]. */
#include "workloads/train/picture_crop.h"

#include <stdio.h>
#include <stdlib.h>

static int crop_all(const struct jm_crop *crop, const struct jm_picture *p, void *ret)
{
	size_t bytes = 3 * (size_t)p->width * (size_t)p->height;
	size_t values = 3 * (size_t)crop->size * (size_t)crop->size;
	struct jm_resize_room room = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_crop_taken taken;
	struct jm_picture_part part;
	int code;

	if (!p->rgb || !ret || fread(p->rgb, 1, bytes, stdin) != bytes)
		return 1;
	jm_crop_choose(crop, 1, p->width, p->height, &taken, &part);
	code = jm_crop_apply(crop, &taken, p, &room, ret, &err);
	jm_resize_room_done(&room);
	return code || fwrite(ret, jm_dtype_bytes(crop->type), values, stdout) != values;
}

int main(int argc, char **argv)
{
	struct jm_crop crop = {.kind = JM_CROP_CENTRE, .type = JM_F32};
	struct jm_picture p = {.shrink = 1};
	float *ret;
	int status;

	if (argc < 4 || argc > 5)
		return 2;
	if (argc == 5)
		crop.type = JM_U8;
	p.width = atoi(argv[1]);
	p.height = atoi(argv[2]);
	crop.size = atoi(argv[3]);
	p.rgb = malloc(3 * (size_t)p.width * (size_t)p.height);
	ret = malloc(3 * (size_t)crop.size * (size_t)crop.size * sizeof(*ret));
	status = crop_all(&crop, &p, ret);
	free(p.rgb);
	free(ret);
	return status;
}
