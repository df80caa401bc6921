/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of numbers in a file of HDF5, read row by row; a row is what the first index selects. */
#ifndef JM_VENDOR_HDF5_ROWS_H
#define JM_VENDOR_HDF5_ROWS_H

#include <stdint.h>

#include "joulemark.h"

#define JM_HDF5_DIMS 5

struct jm_hdf5_file;

struct jm_hdf5_array {
	int rank; /* 1 to JM_HDF5_DIMS */
	int64_t dim[JM_HDF5_DIMS];
	int64_t id; /* of libhdf5 */
};

/* JM_ENOSUP, JM_ENOENT: libhdf5 is missing; JM_EFORMAT: it is no whole file of HDF5. */
int jm_hdf5_file_open(const char *path, struct jm_hdf5_file **ret, struct jm_err *err);
void jm_hdf5_file_close(struct jm_hdf5_file *f); /* with its arrays; takes NULL */

/* The array of this name. JM_EFORMAT: it is absent, or holds no floating-point numbers of so many
 * dimensions. */
int jm_hdf5_array_open(
	struct jm_hdf5_file *f, const char *name, struct jm_hdf5_array *ret, struct jm_err *err);
void jm_hdf5_array_close(struct jm_hdf5_file *f, const struct jm_hdf5_array *a);
/* A row, rounded to f32. Threads may call it at once, and wait for each other: libhdf5 need not be
 * made for threads. */
int jm_hdf5_row_read(struct jm_hdf5_file *f, const struct jm_hdf5_array *a, int64_t row, float *to,
	struct jm_err *err);

#endif
