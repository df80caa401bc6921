/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake nvJPEG and what of NVIDIA's driver it needs (JM_NVJPEG_LIB and JM_CUDA_LIB name this one
 * file). It decodes with libjpeg and changes the lowest bit of each red value, so that a test sees
 * who decoded. Memory of the "GPU" is the host's; a copy is made when an event after it is waited
 * for. NVJPEG_FAKE:
 *
 *	engine	the GPU has an engine for JPEG, which decodes baseline pictures
 *	engine-fails	it has one, which fails with status 8
 *	2, 6, 8, 7	decoding fails with this status, the first three as for a file that nvJPEG
 *		alone cannot read; so does each decoding with a state that failed before
 *	gone	decoding fails with status 6, and then the driver
 *	full	the GPU has no memory
 *	old	the library does not know the flags
 */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* which the next one needs: */
#include <jpeglib.h>

#define API __attribute__((visibility("default")))

static int mode(const char *word)
{
	const char *given = getenv("NVJPEG_FAKE");

	return given && !strcmp(given, word);
}

/* ---- the driver ------------------------------------------------------------------------------ */

static _Thread_local void *current;
static void *context; /* of the device that is in use: of one user */

struct stream {
	void *to;
	const void *from;
	size_t bytes;
};

API int cuInit(unsigned int flags)
{
	return flags ? 1 : 0;
}

API int cuDeviceGet(int *ret, int number)
{
	*ret = 40 + number;
	return number != 0;
}

API int cuDeviceGetByPCIBusId(int *ret, const char *bus)
{
	*ret = 41;
	return strcmp(bus, "0000:1b:00.0") != 0;
}

API int cuDevicePrimaryCtxRetain(void **ret, int device)
{
	*ret = context = malloc(1);
	return device != 40 && device != 41;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	free(context);
	return 0;
}

API int cuCtxPushCurrent_v2(void *pushed)
{
	if (current)
		abort(); /* one at a time */
	current = pushed;
	return 0;
}

API int cuCtxPopCurrent_v2(void **ret)
{
	*ret = current;
	current = NULL;
	return 0;
}

API int cuStreamCreate(void **ret, unsigned int flags)
{
	*ret = calloc(1, sizeof(struct stream));
	return !current || flags != 1;
}

API int cuStreamDestroy_v2(void *stream)
{
	free(stream);
	return 0;
}

/* An event is the stream that it was recorded in. */
API int cuEventCreate(void **ret, unsigned int flags)
{
	*ret = calloc(1, sizeof(void *));
	return !current || flags != 3;
}

API int cuEventDestroy_v2(void *event)
{
	free(event);
	return 0;
}

API int cuEventRecord(void *event, void *stream)
{
	*(void **)event = stream;
	return 0;
}

API int cuEventSynchronize(void *event)
{
	struct stream *s = *(struct stream **)event;

	if (mode("gone"))
		return 719;
	memcpy(s->to, s->from, s->bytes);
	return 0;
}

API int cuMemAlloc_v2(uint64_t *ret, size_t bytes)
{
	if (!current || mode("full"))
		return 2;
	*ret = (uint64_t)(uintptr_t)malloc(bytes);
	return 0;
}

API int cuMemFree_v2(uint64_t memory)
{
	free((void *)(uintptr_t)memory);
	return 0;
}

API int cuMemHostAlloc(void **ret, size_t bytes, unsigned int flags)
{
	*ret = malloc(bytes);
	return !current || flags;
}

API int cuMemFreeHost(void *memory)
{
	free(memory);
	return 0;
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
	*(struct stream *)stream = (struct stream){to, (const void *)(uintptr_t)from, bytes};
	return 0;
}

/* ---- nvJPEG ---------------------------------------------------------------------------------- */

struct header {
	unsigned int width, height, components;
	int progressive;
};

struct image {
	uint64_t plane[4];
	size_t pitch[4];
};

struct source {
	struct jpeg_decompress_struct d;
	struct jpeg_error_mgr errors;
	jmp_buf out;
};

static void on_error(j_common_ptr c)
{
	longjmp(((struct source *)c)->out, 1);
}

static void on_message(j_common_ptr c, int level)
{
	(void)c;
	(void)level;
}

static void read_pixels(struct source *s, const struct image *to)
{
	s->d.out_color_space = JCS_RGB;
	jpeg_start_decompress(&s->d);
	while (s->d.output_scanline < s->d.output_height) {
		unsigned char *row = (unsigned char *)(uintptr_t)to->plane[0] +
				     s->d.output_scanline * to->pitch[0];

		jpeg_read_scanlines(&s->d, &row, 1);
		for (unsigned int x = 0; x < s->d.output_width; x++)
			row[3 * x] ^= 1;
	}
	jpeg_finish_decompress(&s->d);
}

/* to: NULL = the header alone. Status 3: it is no JPEG. */
static int read_file(
	const unsigned char *bytes, size_t n, struct header *header, const struct image *to)
{
	struct source s = {0};

	s.d.err = jpeg_std_error(&s.errors);
	s.errors.error_exit = on_error;
	s.errors.emit_message = on_message;
	if (setjmp(s.out)) {
		jpeg_destroy_decompress(&s.d);
		return 3;
	}
	jpeg_create_decompress(&s.d);
	jpeg_mem_src(&s.d, bytes, (unsigned long)n);
	jpeg_read_header(&s.d, TRUE);
	if (header)
		*header = (struct header){s.d.image_width, s.d.image_height,
			(unsigned int)s.d.num_components, s.d.progressive_mode};
	if (to)
		read_pixels(&s, to);
	jpeg_destroy_decompress(&s.d);
	return 0;
}

API int nvjpegGetProperty(int which, int *ret)
{
	*ret = 13 - which;
	return 0;
}

/* A handle is its kind of backend. */
API int nvjpegCreateEx(int backend, const void *device_memory, const void *pinned_memory,
	unsigned int flags, void **ret)
{
	if (!current || device_memory || pinned_memory || flags != 36)
		return 2;
	if (mode("old") || (backend == 3 && !mode("engine") && !mode("engine-fails")))
		return 7;
	*ret = malloc(sizeof(int));
	*(int *)*ret = backend;
	return 0;
}

API int nvjpegDestroy(void *jpeg)
{
	if (!current)
		abort();
	free(jpeg);
	return 0;
}

#define BROKEN (-1)

/* A state is the size of its batches, or that it is broken. */
API int nvjpegJpegStateCreate(const int *jpeg, void **ret)
{
	*ret = calloc(1, sizeof(int));
	return !current || !jpeg;
}

API int nvjpegJpegStateDestroy(void *state)
{
	free(state);
	return 0;
}

API int nvjpegJpegStreamCreate(const int *jpeg, void **ret)
{
	*ret = calloc(1, sizeof(struct header));
	return !jpeg;
}

API int nvjpegJpegStreamDestroy(void *header)
{
	free(header);
	return 0;
}

API int nvjpegJpegStreamParseHeader(
	const int *jpeg, const unsigned char *bytes, size_t n, struct header *header)
{
	return *jpeg ? 2 : read_file(bytes, n, header, NULL);
}

API int nvjpegJpegStreamGetFrameDimensions(
	const struct header *header, unsigned int *width, unsigned int *height)
{
	*width = header->width;
	*height = header->height;
	return 0;
}

API int nvjpegJpegStreamGetComponentsNum(const struct header *header, unsigned int *ret)
{
	*ret = header->components;
	return 0;
}

API int nvjpegDecodeBatchedSupported(const int *jpeg, const struct header *header, int *ret)
{
	*ret = header->progressive;
	return *jpeg != 3;
}

API int nvjpegDecodeBatchedInitialize(
	const int *jpeg, int *state, int size, int host_threads, int format)
{
	*state = size;
	return *jpeg != 3 || size != 1 || host_threads != 1 || format != 5;
}

/* A state that failed does so for ever. */
static int decode(int *state, const unsigned char *bytes, size_t n, const struct image *to)
{
	const char *given = getenv("NVJPEG_FAKE");
	int status = mode("gone") ? 6 : given ? atoi(given) : 0;

	if (!current)
		abort();
	if (*state == BROKEN || status)
		*state = BROKEN;
	return *state == BROKEN ? status ? status : 6 : read_file(bytes, n, NULL, to);
}

API int nvjpegDecodeBatched(const int *jpeg, int *state, const unsigned char *const *bytes,
	const size_t *n, const struct image *to, void *stream)
{
	if (*jpeg != 3 || *state != 1 || !stream)
		return 2;
	return mode("engine-fails") ? 8 : decode(state, *bytes, *n, to);
}

API int nvjpegDecode(const int *jpeg, int *state, const unsigned char *bytes, size_t n, int format,
	const struct image *to, void *stream)
{
	if (*jpeg || (*state && *state != BROKEN) || format != 5 || !stream)
		return 2;
	return decode(state, bytes, n, to);
}
