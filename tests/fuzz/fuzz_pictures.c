/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of any bytes: the first byte chooses the decoder of files, CIFAR or IDX, and each pixel
 * can be read. */
#include "fuzz.h"
#include "data/sets/cifar.h"
#include "data/sets/idx.h"

#define LABELS 24 /* bytes of IDX labels, at most */

static void read_all(struct jm_data_set *set, const struct jm_data_format *format)
{
	struct jm_picture_decoder d = {0};
	struct jm_err err = JM_ERR_INIT;
	int64_t bytes;

	set->format = format;
	for (int64_t i = 0; i < set->n && i < 4; i++) {
		struct jm_picture p;

		assert(set->label[i] >= 0 && set->label[i] < set->classes);
		jm_data_set_read(set, i, &d, &p, &bytes, &err);
	}
	jm_picture_decoder_done(&d);
}

/* A part and a size that the last byte chooses. */
static void choose(void *arg, int width, int height, struct jm_picture_part *ret)
{
	int by = *(const unsigned char *)arg;

	ret->shrink = 1 << by % 4;
	ret->left = by * 7 % width;
	ret->top = by * 5 % height;
	ret->width = 1 + by * 11 % (width - ret->left);
	ret->height = 1 + by * 13 % (height - ret->top);
}

static int decode(const unsigned char *bytes, size_t size, struct jm_err *err)
{
	struct jm_picture_decoder d = {0};
	unsigned char last = size ? bytes[size - 1] : 0;
	struct jm_picture p;
	int rc;

	if (size > 26 && bytes[0] == 0x89 && (bytes[16] | bytes[17] | bytes[20] | bytes[21]))
		return 0; /* a large PNG: slow, and checked by a test */
	if (last % 5) {
		d.choose = choose;
		d.arg = &last;
	}
	rc = jm_picture_decode(&d, "fuzz", bytes, size, &p, err);
	jm_picture_decoder_done(&d);
	return rc;
}

static int parse(int kind, unsigned char *bytes, size_t size, struct jm_err *err)
{
	extern const struct jm_data_format jm_data_format_cifar, jm_data_format_idx;
	struct jm_data_set set = {.path = strdup("fuzz")};
	size_t n = size < LABELS ? size : LABELS;
	unsigned char *labels = malloc(n + 1);
	int rc;

	memcpy(labels, bytes + size - n, n);
	set.format = kind == 3 ? &jm_data_format_idx : &jm_data_format_cifar;
	rc = kind == 3 ? jm_idx_parse(&set, bytes, size - n, labels, n, err)
		       : jm_cifar_parse(&set, bytes, size, kind == 1 ? 10 : 100, err);
	if (!rc)
		read_all(&set, set.format);
	free(labels);
	jm_data_set_close(&set);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_err err = JM_ERR_INIT;
	unsigned char *tight;
	int kind, rc;

	if (!size)
		return 0;
	kind = *data % 4;
	tight = malloc(size > 1 ? size - 1 : 1);
	memcpy(tight, data + 1, size - 1);
	rc = kind ? parse(kind, tight, size - 1, &err) : decode(tight, size - 1, &err);
	if (!kind)
		free(tight);
	if (rc)
		fuzz_check(rc, &err);
	return 0;
}
