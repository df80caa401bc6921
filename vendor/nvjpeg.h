/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvJPEG, NVIDIA's library that decodes JPEG on a GPU, and what of the driver it needs, opened at
 * run time. A picture is decoded whole; the rows that are wanted come back to the host.
 */
#ifndef JM_VENDOR_NVJPEG_H
#define JM_VENDOR_NVJPEG_H

#include <stddef.h>
#include <stdint.h>

#include "joulemark.h"

struct jm_nvjpeg;	  /* of one GPU, for all threads */
struct jm_nvjpeg_decoder; /* of one thread, which opens, uses and closes it */

/* The parts of a GPU that decode. */
enum jm_nvjpeg_way {
	JM_NVJPEG_ENGINE, /* the unit for JPEG that GPUs of some kinds have */
	JM_NVJPEG_CUDA,	  /* multiprocessors, and the host for entropy coding */
	JM_NVJPEG_WAYS,
};

/*
 * bus: the GPU by its address on the PCI bus, "0000:1b:00.0"; NULL = the first one. JM_ENOSUP: a
 * library is missing. JM_EVERSION: too old.
 */
int jm_nvjpeg_open(const char *bus, struct jm_nvjpeg **ret, struct jm_err *err);
/* Takes NULL; its decoders were closed before. */
void jm_nvjpeg_close(struct jm_nvjpeg *j);
/* "nvJPEG 13.3.2" */
const char *jm_nvjpeg_name(const struct jm_nvjpeg *j);

int jm_nvjpeg_decoder_open(struct jm_nvjpeg *j, struct jm_nvjpeg_decoder **ret, struct jm_err *err);
void jm_nvjpeg_decoder_close(struct jm_nvjpeg_decoder *d); /* takes NULL */

/* Reads the header of a file of n bytes. JM_ENOSUP, without a sentence: it is not a JPEG of one or
 * three components as the library can read it. */
int jm_nvjpeg_read_header(struct jm_nvjpeg_decoder *d, const unsigned char *bytes, size_t n,
	int *ret_width, int *ret_height);
/*
 * Decodes the file whose header was read last. ret: `rows` rows from `top` on, u8 [rows][width][3],
 * of the decoder until the next picture. JM_ENOSUP, without a sentence: the library cannot decode
 * it, or failed at it. JM_ENOMEM; JM_EGONE: the GPU failed, or the library at several pictures in
 * a row.
 */
int jm_nvjpeg_decode(struct jm_nvjpeg_decoder *d, const unsigned char *bytes, size_t n, int top,
	int rows, unsigned char **ret, enum jm_nvjpeg_way *ret_way, struct jm_err *err);
/* Pictures at which the engine failed although the library had said that it can decode them. */
int64_t jm_nvjpeg_engine_failed(const struct jm_nvjpeg_decoder *d);

#endif
