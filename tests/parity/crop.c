/* SPDX-License-Identifier: Apache-2.0 */
/* crop WIDTH HEIGHT SIZE <rgb >values: what an evaluation makes of a picture, f32 [3][SIZE][SIZE]. */
#include "workloads/train/picture_crop.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	struct jm_picture p = {0};
	struct jm_crop crop = {.kind = JM_CROP_CENTRE};
	size_t bytes, values;
	float *scratch, *ret;

	if (argc != 4)
		return 2;
	p.width = atoi(argv[1]);
	p.height = atoi(argv[2]);
	crop.size = atoi(argv[3]);
	bytes = 3 * (size_t)p.width * (size_t)p.height;
	values = 3 * (size_t)crop.size * (size_t)crop.size;
	p.rgb = malloc(bytes);
	scratch = malloc(jm_crop_scratch(&crop) * sizeof(*scratch));
	ret = malloc(values * sizeof(*ret));
	if (!p.rgb || !scratch || !ret || fread(p.rgb, 1, bytes, stdin) != bytes)
		return 1;
	jm_crop_apply(&crop, &p, 1, scratch, ret);
	return fwrite(ret, sizeof(*ret), values, stdout) != values;
}
