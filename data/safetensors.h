/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors by name in files of the format safetensors (github.com/huggingface/safetensors, README: Format): u64
 * little-endian n, n bytes of JSON {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}, then the bytes
 * of all tensors, row by row, without gap or overlap to the end of the file. One file, or a folder as Hugging Face lays it
 * out: model.safetensors, or model.safetensors.index.json that names the shard of each tensor.
 */
#ifndef JM_SAFETENSORS_H
#define JM_SAFETENSORS_H

#include <jansson.h>

#include "joulemark.h"

/* X(name, bytes of an element) */
#define JM_SAFETENSOR_TYPES(X)                                                                     \
	X(F64, 8)                                                                                  \
	X(I64, 8)                                                                                  \
	X(U64, 8)                                                                                  \
	X(F32, 4)                                                                                  \
	X(I32, 4)                                                                                  \
	X(U32, 4)                                                                                  \
	X(F16, 2)                                                                                  \
	X(BF16, 2)                                                                                 \
	X(I16, 2)                                                                                  \
	X(U16, 2)                                                                                  \
	X(F8_E4M3, 1)                                                                              \
	X(F8_E5M2, 1)                                                                              \
	X(I8, 1)                                                                                   \
	X(U8, 1)                                                                                   \
	X(BOOL, 1)

enum jm_safetensor_type {
#define X(name, bytes) JM_SAFETENSOR_##name,
	JM_SAFETENSOR_TYPES(X)
#undef X
		JM_SAFETENSOR_TYPE_COUNT
};

#define JM_SAFETENSOR_DIMS 8

struct jm_safetensor {
	const char *name;
	enum jm_safetensor_type type;
	int rank; /* 0 = one number */
	int64_t dim[JM_SAFETENSOR_DIMS];
	uint64_t bytes;
	/* when it was read: the file of jm_safetensors.file, and the first byte in it */
	int file;
	uint64_t at;
};

struct jm_safetensors_file {
	char *path;
	int fd;
	uint64_t bytes;
	json_t *header; /* has the names */
};

/* Zeroed = nothing is open. */
struct jm_safetensors {
	char *path;		      /* as it was opened, for errors */
	struct jm_safetensor *tensor; /* in the order of their names */
	int n;
	struct jm_safetensors_file *file;
	int n_files;
};

const char *jm_safetensor_type_name(enum jm_safetensor_type type); /* "BF16" */
size_t jm_safetensor_type_bytes(enum jm_safetensor_type type);
/* The number of elements. */
int64_t jm_safetensor_count(const struct jm_safetensor *t);
/* "[64, 3, 7, 7]"; returns ret. */
const char *jm_safetensor_shape(const struct jm_safetensor *t, char *ret, size_t size);

/*
 * Opens the file, or the folder with all its shards, and checks every header; nothing else is read. Trusts nothing.
 * JM_ENOENT, JM_EPERM, JM_EFORMAT: the error names the file and what is wrong with it. To be closed in any case of success.
 */
int jm_safetensors_open(const char *path, struct jm_safetensors *ret, struct jm_err *err);
void jm_safetensors_close(struct jm_safetensors *s); /* a zeroed one is allowed */

/* NULL = there is no tensor of this name. */
const struct jm_safetensor *jm_safetensors_find(const struct jm_safetensors *s, const char *name);
/* A text of "__metadata__" of the first file; NULL = there is none of this key. */
const char *jm_safetensors_note(const struct jm_safetensors *s, const char *key);
/*
 * Bytes from .. from + n - 1 of the tensor; they must exist. Several threads may read at once. JM_EFORMAT: the file became
 * shorter since it was opened.
 */
int jm_safetensors_read(const struct jm_safetensors *s, const struct jm_safetensor *t,
	uint64_t from, void *to, size_t n, struct jm_err *err);

/*
 * The header of a file of file_bytes: n bytes after the length. Appends its tensors, whose names live as long as
 * *ret_header. name: for the error.
 */
int jm_safetensors_header(const char *name, const char *json, size_t n, uint64_t file_bytes,
	struct jm_safetensors *s, json_t **ret_header, struct jm_err *err);

/* ---- writing ------------------------------------------------------------------------------------------- */

struct jm_safetensors_sink; /* a file that is being written */

/* Appends to the tensor. JM_EIO: the disk is full, or another error. */
int jm_safetensors_put(
	struct jm_safetensors_sink *sink, const void *from, size_t bytes, struct jm_err *err);

/* Puts all bytes of tensor i. Returns 0 or an error, with which nothing is written. */
typedef int jm_safetensors_fn(
	void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err);
/*
 * Writes n tensors, of which name, type and dims are read here. They are given in the order of the widths of their types,
 * so that each is aligned to its type. notes: an object of texts for "__metadata__", or NULL. The file gets its name at
 * once when all of it is on the disk; until then an old one stays. JM_EUSAGE: a name is given twice, or a type is unknown.
 */
int jm_safetensors_write(const char *path, const struct jm_safetensor *tensor, int n,
	const json_t *notes, jm_safetensors_fn *give, void *arg, struct jm_err *err);
/*
 * The same as the files of a folder, which exists: model.safetensors, or, if that had more than shard_bytes, shards of at most
 * so many bytes (but of one tensor at least) and model.safetensors.index.json. An old index is removed before shards are
 * written and the new one written after them: until then the folder is refused.
 */
int jm_safetensors_write_folder(const char *path, const struct jm_safetensor *tensor, int n,
	uint64_t shard_bytes, const json_t *notes, jm_safetensors_fn *give, void *arg,
	struct jm_err *err);

#endif
