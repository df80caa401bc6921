/* SPDX-License-Identifier: Apache-2.0 */
/* crop WIDTH HEIGHT SIZE <rgb >values: what an evaluation makes of a picture, f32 [3][SIZE][SIZE]. */
#include "workloads/train/picture_crop.h"

#include <stdio.h>
#include <stdlib.h>

static int crop_all(
	const struct jm_crop *crop, const struct jm_picture *p, float *scratch, float *ret)
{
	size_t bytes = 3 * (size_t)p->width * (size_t)p->height;
	size_t values = 3 * (size_t)crop->size * (size_t)crop->size;

	if (!p->rgb || !scratch || !ret || fread(p->rgb, 1, bytes, stdin) != bytes)
		return 1;
	jm_crop_apply(crop, p, 1, scratch, ret);
	return fwrite(ret, sizeof(*ret), values, stdout) != values;
}

int main(int argc, char **argv)
{
	struct jm_crop crop = {.kind = JM_CROP_CENTRE};
	struct jm_picture p = {0};
	float *scratch, *ret;
	int status;

	if (argc != 4)
		return 2;
	p.width = atoi(argv[1]);
	p.height = atoi(argv[2]);
	crop.size = atoi(argv[3]);
	p.rgb = malloc(3 * (size_t)p.width * (size_t)p.height);
	scratch = malloc(jm_crop_scratch(&crop) * sizeof(*scratch));
	ret = malloc(3 * (size_t)crop.size * (size_t)crop.size * sizeof(*ret));
	status = crop_all(&crop, &p, scratch, ret);
	free(p.rgb);
	free(scratch);
	free(ret);
	return status;
}
