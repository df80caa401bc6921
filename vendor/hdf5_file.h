/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of HDF5, by libhdf5, which is opened when it is needed. A file is made in memory and
 * written at once. The first failure is kept and later calls do nothing, so that only jm_hdf5_write
 * is to be checked.
 */
#ifndef JM_VENDOR_HDF5_FILE_H
#define JM_VENDOR_HDF5_FILE_H

#include "library.h"

#include <stdbool.h>
#include <stdint.h>

#include <hdf5.h>

#define JM_HDF5_CALLS(X)                                                                           \
	X(H5open)                                                                                  \
	X(H5Eset_auto2)                                                                            \
	X(H5Pcreate)                                                                               \
	X(H5Pclose)                                                                                \
	X(H5Pset_fapl_core)                                                                        \
	X(H5Fcreate)                                                                               \
	X(H5Fflush)                                                                                \
	X(H5Fget_file_image)                                                                       \
	X(H5Fclose)                                                                                \
	X(H5Gcreate2)                                                                              \
	X(H5Gclose)                                                                                \
	X(H5Screate)                                                                               \
	X(H5Screate_simple)                                                                        \
	X(H5Sclose)                                                                                \
	X(H5Tcopy)                                                                                 \
	X(H5Tset_size)                                                                             \
	X(H5Tset_cset)                                                                             \
	X(H5Tclose)                                                                                \
	X(H5Acreate2)                                                                              \
	X(H5Awrite)                                                                                \
	X(H5Aclose)                                                                                \
	X(H5Dcreate2)                                                                              \
	X(H5Dwrite)                                                                                \
	X(H5Dclose)                                                                                \
	X(H5Fopen)                                                                                 \
	X(H5Lexists)                                                                               \
	X(H5Dopen2)                                                                                \
	X(H5Dget_type)                                                                             \
	X(H5Dget_space)                                                                            \
	X(H5Dread)                                                                                 \
	X(H5Tget_class)                                                                            \
	X(H5Sget_simple_extent_ndims)                                                              \
	X(H5Sget_simple_extent_dims)                                                               \
	X(H5Sselect_hyperslab)

/* Ids of the library that it fills in when it starts; the macros of its header read them. */
#define JM_HDF5_IDS(X)                                                                             \
	X(H5T_NATIVE_DOUBLE_g)                                                                     \
	X(H5T_NATIVE_FLOAT_g)                                                                      \
	X(H5T_NATIVE_INT64_g)                                                                      \
	X(H5T_NATIVE_B8_g)                                                                         \
	X(H5T_C_S1_g)                                                                              \
	X(H5P_CLS_FILE_ACCESS_ID_g)

struct jm_hdf5_calls {
#define X(name) __typeof__(&name) name;
	JM_HDF5_CALLS(X)
	JM_HDF5_IDS(X)
#undef X
};

struct jm_hdf5 {
	struct jm_hdf5_calls call;
	hid_t file;
	bool failed;
};

/* Loads the library. */
int jm_hdf5_load(struct jm_hdf5_calls *ret, struct jm_err *err);
/* The same, and makes an empty file in memory. */
int jm_hdf5_open(struct jm_hdf5 *h, struct jm_err *err);
hid_t jm_hdf5_group(struct jm_hdf5 *h, hid_t parent, const char *name);
void jm_hdf5_group_done(struct jm_hdf5 *h, hid_t group);

/* Attributes of a group or a dataset. A text is UTF-8; "" is one without a value. */
void jm_hdf5_text(struct jm_hdf5 *h, hid_t of, const char *name, const char *text);
void jm_hdf5_bytes(struct jm_hdf5 *h, hid_t of, const char *name, const char *bytes); /* ASCII */
void jm_hdf5_number(struct jm_hdf5 *h, hid_t of, const char *name, int64_t number);
void jm_hdf5_real(struct jm_hdf5 *h, hid_t of, const char *name, double number);
void jm_hdf5_yes(struct jm_hdf5 *h, hid_t of, const char *name);

/* Datasets, which stay open until jm_hdf5_data_done. columns 0: of one dimension. */
hid_t jm_hdf5_doubles(struct jm_hdf5 *h, hid_t parent, const char *name, size_t rows,
	size_t columns, const double *value);
hid_t jm_hdf5_integers(
	struct jm_hdf5 *h, hid_t parent, const char *name, size_t rows, const int64_t *value);
/* Texts of equal size, without a final NUL where one fills it. */
hid_t jm_hdf5_texts(
	struct jm_hdf5 *h, hid_t parent, const char *name, size_t rows, const char *const *text);
void jm_hdf5_data_done(struct jm_hdf5 *h, hid_t made);

/* All of it to the disk, whole or not at all. */
int jm_hdf5_write(struct jm_hdf5 *h, const char *path, struct jm_err *err);
void jm_hdf5_close(struct jm_hdf5 *h);

#endif
