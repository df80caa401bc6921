/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of safetensors files, as the headers of these files describe them. */
#ifndef JM_SAFETENSORS_HEADER_H
#define JM_SAFETENSORS_HEADER_H

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
	char *names;	/* of a part, with the name of its folder in front; NULL = there are none */
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
 * The header of a file of file_bytes: n bytes after the length. Appends its tensors, whose names
 * live as long as
 * *ret_header. name: for the error.
 */
int jm_safetensors_header(const char *name, const char *json, size_t n, uint64_t file_bytes,
	struct jm_safetensors *s, json_t **ret_header, struct jm_err *err);
/* A text of "__metadata__" of the first file; NULL = there is none of this key. */
const char *jm_safetensors_note(const struct jm_safetensors *s, const char *key);

#endif
