/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions, numbers and structs are declared here as nvjpeg.h and cuda.h document them, so that no
 * header of NVIDIA is needed. A picture goes to the engine for JPEG where the GPU has one that can
 * decode it, else to the multiprocessors.
 */
#include "nvjpeg.h"
#include "library.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what the libraries have ----------------------------------------------------------------- */

typedef void *handle;

#define DRIVER_CALLS(X)                                                                            \
	X(init, "cuInit", (unsigned int flags))                                                    \
	X(device, "cuDeviceGet", (int *ret, int number))                                           \
	X(device_at, "cuDeviceGetByPCIBusId", (int *ret, const char *bus))                         \
	X(retain, "cuDevicePrimaryCtxRetain", (handle * ret, int device))                          \
	X(release, "cuDevicePrimaryCtxRelease_v2", (int device))                                   \
	X(push, "cuCtxPushCurrent_v2", (handle context))                                           \
	X(pop, "cuCtxPopCurrent_v2", (handle * ret))                                               \
	X(stream, "cuStreamCreate", (handle * ret, unsigned int flags))                            \
	X(stream_done, "cuStreamDestroy_v2", (handle stream))                                      \
	X(event, "cuEventCreate", (handle * ret, unsigned int flags))                              \
	X(event_done, "cuEventDestroy_v2", (handle event))                                         \
	X(event_record, "cuEventRecord", (handle event, handle stream))                            \
	X(event_wait, "cuEventSynchronize", (handle event))                                        \
	X(alloc, "cuMemAlloc_v2", (uint64_t * ret, size_t bytes))                                  \
	X(alloc_done, "cuMemFree_v2", (uint64_t memory))                                           \
	X(pinned, "cuMemHostAlloc", (void **ret, size_t bytes, unsigned int flags))                \
	X(pinned_done, "cuMemFreeHost", (void *memory))                                            \
	X(to_host, "cuMemcpyDtoHAsync_v2", (void *to, uint64_t from, size_t bytes, handle stream))

#define STREAM_NON_BLOCKING 1
#define EVENT_WAITS_ASLEEP  3 /* blocking, without times */
#define OUT_OF_MEMORY	    2

/* Planes of a picture; of interleaved pixels the first one alone. */
struct image {
	uint64_t plane[4];
	size_t pitch[4];
};

#define JPEG_CALLS(X)                                                                              \
	X(property, "nvjpegGetProperty", (int which, int *ret))                                    \
	X(create, "nvjpegCreateEx",                                                                \
		(int backend, const void *device_memory, const void *pinned_memory,                \
			unsigned int flags, handle *ret))                                          \
	X(destroy, "nvjpegDestroy", (handle jpeg))                                                 \
	X(state, "nvjpegJpegStateCreate", (handle jpeg, handle * ret))                             \
	X(state_done, "nvjpegJpegStateDestroy", (handle state))                                    \
	X(header, "nvjpegJpegStreamCreate", (handle jpeg, handle * ret))                           \
	X(header_done, "nvjpegJpegStreamDestroy", (handle header))                                 \
	X(header_parse, "nvjpegJpegStreamParseHeader",                                             \
		(handle jpeg, const unsigned char *bytes, size_t n, handle header))                \
	X(header_size, "nvjpegJpegStreamGetFrameDimensions",                                       \
		(handle header, unsigned int *width, unsigned int *height))                        \
	X(header_components, "nvjpegJpegStreamGetComponentsNum",                                   \
		(handle header, unsigned int *ret))                                                \
	X(batch_fits, "nvjpegDecodeBatchedSupported",                                              \
		(handle jpeg, handle header, int *ret_0_if_so))                                    \
	X(batch_begin, "nvjpegDecodeBatchedInitialize",                                            \
		(handle jpeg, handle state, int size, int threads, int format))                    \
	X(batch_decode, "nvjpegDecodeBatched",                                                     \
		(handle jpeg, handle state, const unsigned char *const *bytes, const size_t *n,    \
			struct image *to, handle stream))                                          \
	X(decode, "nvjpegDecode",                                                                  \
		(handle jpeg, handle state, const unsigned char *bytes, size_t n, int format,      \
			struct image *to, handle stream))

#define BACKEND_DEFAULT	 0
#define BACKEND_HARDWARE 3
#define FORMAT_RGBI	 5 /* interleaved red, green, blue */
/* damage is an error; chroma is interpolated, as libjpeg does by default */
#define FLAGS (1U << 2 | 1U << 5)

/* status */
#define INVALID_PARAMETER  2
#define BAD_JPEG	   3
#define JPEG_NOT_SUPPORTED 4
#define ALLOCATOR_FAILURE  5
#define EXECUTION_FAILED   6
#define INTERNAL_ERROR	   8
#define NOT_IMPLEMENTED	   9
#define INCOMPLETE_JPEG	   10

#define IN_A_ROW_MOST 8 /* pictures at which the library fails before it is given up */

struct calls {
#define X(member, name, arguments) int(*member) arguments;
	DRIVER_CALLS(X)
	JPEG_CALLS(X)
#undef X
};

#define X(member, name, arguments) {name, offsetof(struct calls, member)},
static const struct jm_symbol driver_symbols[] = {DRIVER_CALLS(X)};
static const struct jm_symbol jpeg_symbols[] = {JPEG_CALLS(X)};
#undef X

static const struct jm_library driver = {
	.title = "NVIDIA's driver",
	.variable = "JM_CUDA_LIB",
	.names = {"libcuda.so.1"},
	.symbols = driver_symbols,
	.n_symbols = sizeof(driver_symbols) / sizeof(*driver_symbols),
	.mend = "decode pictures on the host, or install the driver",
};

static const struct jm_library library = {
	.title = "nvJPEG",
	.variable = "JM_NVJPEG_LIB",
	.names = {"libnvjpeg.so.13", "libnvjpeg.so.12", "/usr/local/cuda/lib64/libnvjpeg.so.13",
		"/usr/local/cuda/lib64/libnvjpeg.so.12"},
	.symbols = jpeg_symbols,
	.n_symbols = sizeof(jpeg_symbols) / sizeof(*jpeg_symbols),
	.mend = "install the CUDA toolkit's library nvjpeg (or the Python package nvidia-nvjpeg), "
		"add its folder to LD_LIBRARY_PATH or name the file in JM_NVJPEG_LIB",
};

/* ---- the library on a GPU -------------------------------------------------------------------- */

struct jm_nvjpeg {
	struct calls call;
	int device;
	handle context;
	handle jpeg[JM_NVJPEG_WAYS]; /* NULL: the GPU has no engine */
	char name[48];
};

static int failed(const char *what, int status, struct jm_err *err)
{
	return jm_err_set(err, JM_EGONE,
		"%s of nvJPEG failed with status %d; decode pictures on the host.", what, status);
}

/* Of a call of the driver. */
static int check(int status, const char *what, struct jm_err *err)
{
	if (!status)
		return 0;
	if (status == OUT_OF_MEMORY)
		return jm_err_set(err, JM_ENOMEM,
			"The GPU has no memory left to decode pictures; leave it some with a "
			"smaller --batch, or decode on the host.");
	return jm_err_set(err, JM_EGONE,
		"%s for nvJPEG failed with error %d of the driver; decode pictures on the host.",
		what, status);
}

static int create(struct jm_nvjpeg *j, struct jm_err *err)
{
	int part[3] = {0}, status;

	for (int i = 0; i < 3; i++)
		j->call.property(i, &part[i]);
	snprintf(j->name, sizeof(j->name), "nvJPEG %d.%d.%d", part[0], part[1], part[2]);
	if (j->call.create(BACKEND_HARDWARE, NULL, NULL, FLAGS, &j->jpeg[JM_NVJPEG_ENGINE]))
		j->jpeg[JM_NVJPEG_ENGINE] = NULL;
	status = j->call.create(BACKEND_DEFAULT, NULL, NULL, FLAGS, &j->jpeg[JM_NVJPEG_CUDA]);
	if (!status)
		return 0;
	j->jpeg[JM_NVJPEG_CUDA] = NULL;
	return jm_err_set(err, JM_EVERSION,
		"%s cannot be started with interpolation of colours (status %d); it may be too old "
		"or too new for the driver: %s.",
		j->name, status, library.mend);
}

static int open_gpu(struct jm_nvjpeg *j, const char *bus, struct jm_err *err)
{
	int code = check(j->call.init(0), "The start of the driver", err);

	if (!code)
		code = check(
			bus ? j->call.device_at(&j->device, bus) : j->call.device(&j->device, 0),
			"Finding the GPU", err);
	if (!code)
		code = check(
			j->call.retain(&j->context, j->device), "Taking the GPU's context", err);
	if (code)
		j->context = NULL;
	return code;
}

int jm_nvjpeg_open(const char *bus, struct jm_nvjpeg **ret, struct jm_err *err)
{
	struct jm_nvjpeg *j = calloc(1, sizeof(*j));
	handle ignored;
	int code;

	if (!j)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for nvJPEG.");
	code = jm_library_open(&library, &j->call, err);
	if (!code)
		code = jm_library_open(&driver, &j->call, err);
	if (!code)
		code = open_gpu(j, bus, err);
	if (!code) {
		j->call.push(j->context);
		code = create(j, err);
		j->call.pop(&ignored);
	}
	if (code)
		jm_nvjpeg_close(j);
	else
		*ret = j;
	return code;
}

void jm_nvjpeg_close(struct jm_nvjpeg *j)
{
	handle ignored;

	if (j && j->context) {
		j->call.push(j->context);
		for (int i = 0; i < JM_NVJPEG_WAYS; i++)
			if (j->jpeg[i])
				j->call.destroy(j->jpeg[i]);
		j->call.pop(&ignored);
		j->call.release(j->device);
	}
	free(j);
}

const char *jm_nvjpeg_name(const struct jm_nvjpeg *j)
{
	return j->name;
}

/* ---- a decoder ------------------------------------------------------------------------------- */

struct jm_nvjpeg_decoder {
	const struct jm_nvjpeg *of;
	handle stream, event, header;
	handle state[JM_NVJPEG_WAYS];
	unsigned int width, height; /* of the picture whose header was read */
	uint64_t pixels;	    /* of the GPU, for a whole picture */
	unsigned char *rows;	    /* of the host, page-locked */
	size_t pixels_size, rows_size;
	int failed_in_a_row; /* pictures */
	int64_t engine_failed;
};

static void batch_begin(struct jm_nvjpeg_decoder *d)
{
	d->of->call.batch_begin(
		d->of->jpeg[JM_NVJPEG_ENGINE], d->state[JM_NVJPEG_ENGINE], 1, 1, FORMAT_RGBI);
}

static void drop_states(struct jm_nvjpeg_decoder *d)
{
	for (int i = 0; i < JM_NVJPEG_WAYS; i++) {
		if (d->state[i])
			d->of->call.state_done(d->state[i]);
		d->state[i] = NULL;
	}
}

static int make_states(struct jm_nvjpeg_decoder *d, struct jm_err *err)
{
	const struct jm_nvjpeg *j = d->of;
	int status = 0;

	for (int i = 0; i < JM_NVJPEG_WAYS && !status; i++)
		if (j->jpeg[i])
			status = j->call.state(j->jpeg[i], &d->state[i]);
	if (status)
		return failed("Making a decoder", status, err);
	if (j->jpeg[JM_NVJPEG_ENGINE])
		batch_begin(d);
	return 0;
}

int jm_nvjpeg_decoder_open(struct jm_nvjpeg *j, struct jm_nvjpeg_decoder **ret, struct jm_err *err)
{
	struct jm_nvjpeg_decoder *d = calloc(1, sizeof(*d));
	int code, status;

	if (!d)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a decoder of nvJPEG.");
	d->of = j;
	j->call.push(j->context);
	code = check(j->call.stream(&d->stream, STREAM_NON_BLOCKING), "Making a stream", err);
	if (!code)
		code = check(j->call.event(&d->event, EVENT_WAITS_ASLEEP), "Making an event", err);
	status = code ? 0 : j->call.header(j->jpeg[JM_NVJPEG_CUDA], &d->header);
	if (status)
		code = failed("Making a reader of headers", status, err);
	if (!code)
		code = make_states(d, err);
	if (code)
		jm_nvjpeg_decoder_close(d);
	else
		*ret = d;
	return code;
}

void jm_nvjpeg_decoder_close(struct jm_nvjpeg_decoder *d)
{
	const struct calls *c = d ? &d->of->call : NULL;
	handle ignored;

	if (!d)
		return;
	drop_states(d);
	if (d->header)
		c->header_done(d->header);
	if (d->pixels)
		c->alloc_done(d->pixels);
	if (d->rows)
		c->pinned_done(d->rows);
	if (d->event)
		c->event_done(d->event);
	if (d->stream)
		c->stream_done(d->stream);
	c->pop(&ignored);
	free(d);
}

/* ---- a picture ------------------------------------------------------------------------------- */

int jm_nvjpeg_read_header(struct jm_nvjpeg_decoder *d, const unsigned char *bytes, size_t n,
	int *ret_width, int *ret_height)
{
	const struct jm_nvjpeg *j = d->of;
	unsigned int components = 0;

	if (j->call.header_parse(j->jpeg[JM_NVJPEG_CUDA], bytes, n, d->header) ||
		j->call.header_components(d->header, &components) ||
		j->call.header_size(d->header, &d->width, &d->height) ||
		(components != 1 && components != 3) || d->width > INT32_MAX ||
		d->height > INT32_MAX)
		return JM_ENOSUP;
	*ret_width = (int)d->width;
	*ret_height = (int)d->height;
	return 0;
}

/* Room on the GPU for the picture, and on the host for the rows; both are kept. */
static int make_room(struct jm_nvjpeg_decoder *d, size_t rows, struct jm_err *err)
{
	const struct calls *c = &d->of->call;
	size_t whole = 3 * (size_t)d->width * d->height, part = 3 * (size_t)d->width * rows;
	void *pinned = NULL;
	int code = 0;

	if (d->pixels_size < whole) {
		if (d->pixels)
			c->alloc_done(d->pixels);
		d->pixels = d->pixels_size = 0;
		code = check(c->alloc(&d->pixels, whole), "Memory of the GPU", err);
		d->pixels_size = code ? 0 : whole;
	}
	if (!code && d->rows_size < part) {
		if (d->rows)
			c->pinned_done(d->rows);
		d->rows = NULL;
		code = check(c->pinned(&pinned, part, 0), "Page-locked memory", err);
		d->rows = code ? NULL : pinned;
		d->rows_size = code ? 0 : part;
	}
	return code;
}

/* The library's status; *ret_way: who decoded. What the engine does not decode after all goes to
 * the multiprocessors. */
static int queue_decoding(struct jm_nvjpeg_decoder *d, const unsigned char *bytes, size_t n,
	enum jm_nvjpeg_way *ret_way)
{
	const struct jm_nvjpeg *j = d->of;
	handle engine = j->jpeg[JM_NVJPEG_ENGINE];
	struct image to = {.plane = {d->pixels}, .pitch = {3 * (size_t)d->width}};
	int unfit = 1;

	*ret_way = JM_NVJPEG_ENGINE;
	if (engine && !j->call.batch_fits(engine, d->header, &unfit) && !unfit) {
		if (!j->call.batch_decode(
			    engine, d->state[JM_NVJPEG_ENGINE], &bytes, &n, &to, d->stream))
			return 0;
		batch_begin(d);
		d->engine_failed++;
	}
	*ret_way = JM_NVJPEG_CUDA;
	return j->call.decode(j->jpeg[JM_NVJPEG_CUDA], d->state[JM_NVJPEG_CUDA], bytes, n,
		FORMAT_RGBI, &to, d->stream);
}

/* Copies the rows and waits for them. */
static int fetch(struct jm_nvjpeg_decoder *d, int top, int rows, struct jm_err *err)
{
	const struct calls *c = &d->of->call;
	size_t row = 3 * (size_t)d->width;
	int status =
		c->to_host(d->rows, d->pixels + row * (size_t)top, row * (size_t)rows, d->stream);

	if (!status)
		status = c->event_record(d->event, d->stream);
	if (!status)
		status = c->event_wait(d->event);
	return check(status, "Decoding a picture", err);
}

/* Of a picture at which the library, but not the GPU failed: the host may be able to read it. */
static int leave_to_host(struct jm_nvjpeg_decoder *d, int status, struct jm_err *err)
{
	int code = fetch(d, 0, 1, err);

	if (code)
		return code;
	if (++d->failed_in_a_row >= IN_A_ROW_MOST)
		return jm_err_set(err, JM_EGONE,
			"nvJPEG failed at %d pictures in a row, at the last one with status %d; "
			"decode pictures on the host.",
			IN_A_ROW_MOST, status);
	drop_states(d);
	code = make_states(d, err);
	return code ? code : JM_ENOSUP;
}

int jm_nvjpeg_decode(struct jm_nvjpeg_decoder *d, const unsigned char *bytes, size_t n, int top,
	int rows, unsigned char **ret, enum jm_nvjpeg_way *ret_way, struct jm_err *err)
{
	int code = make_room(d, (size_t)rows, err), status;

	if (code)
		return code;
	status = queue_decoding(d, bytes, n, ret_way);
	if (status == BAD_JPEG || status == JPEG_NOT_SUPPORTED || status == NOT_IMPLEMENTED ||
		status == INCOMPLETE_JPEG)
		return JM_ENOSUP;
	if (status == ALLOCATOR_FAILURE)
		return check(OUT_OF_MEMORY, NULL, err);
	if (status == INVALID_PARAMETER || status == EXECUTION_FAILED || status == INTERNAL_ERROR)
		return leave_to_host(d, status, err);
	if (status)
		return failed("Decoding a picture", status, err);
	d->failed_in_a_row = 0;
	code = fetch(d, top, rows, err);
	*ret = d->rows;
	return code;
}

int64_t jm_nvjpeg_engine_failed(const struct jm_nvjpeg_decoder *d)
{
	return d->engine_failed;
}
