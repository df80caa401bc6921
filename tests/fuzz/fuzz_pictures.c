/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of any bytes: the first byte chooses the decoder of files, CIFAR or IDX, and each pixel can be read. */
#include "fuzz.h"
#include "data/sets/cifar.h"
#include "data/sets/idx.h"

#define LABELS 24 /* bytes of IDX labels, at most */

static void read_all(struct jm_data_set *set, const struct jm_data_format *format)
{
	struct jm_err err = JM_ERR_INIT;
	int64_t bytes;

	set->format = format;
	for (int64_t i = 0; i < set->n && i < 4; i++) {
		struct jm_picture p;

		assert(set->label[i] >= 0 && set->label[i] < set->classes);
		if (!jm_data_set_read(set, i, &p, &bytes, &err))
			jm_picture_done(&p);
	}
}

static int decode(const unsigned char *bytes, size_t size, struct jm_err *err)
{
	struct jm_picture p;
	int rc;

	if (size > 26 && bytes[0] == 0x89 && (bytes[16] | bytes[17] | bytes[20] | bytes[21]))
		return 0; /* a large PNG: slow, and checked by a test */
	rc = jm_picture_decode("fuzz", bytes, size, &p, err);
	if (!rc)
		jm_picture_done(&p);
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
