/* SPDX-License-Identifier: Apache-2.0 */
#include "hdf5_rows.h"
#include "hdf5_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* H5F_ACC_RDONLY, whose macro calls functions of the library by their names */
#define READ 0x0000u

struct jm_hdf5_file {
	struct jm_hdf5_calls call;
	char *path;
	hid_t file;
};

/* of all files: libhdf5 has state of its own */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int jm_hdf5_file_open(const char *path, struct jm_hdf5_file **ret, struct jm_err *err)
{
	struct jm_hdf5_file *f = calloc(1, sizeof(*f));
	int code;

	if (f)
		f->path = strdup(path);
	if (!f || !f->path) {
		free(f);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", path);
	}
	f->file = -1;
	code = jm_hdf5_load(&f->call, err);
	if (!code)
		f->file = f->call.H5Fopen(path, READ, H5P_DEFAULT);
	if (!code && f->file < 0)
		code = jm_err_set(err, JM_EFORMAT,
			"%s cannot be read as HDF5: it is no such file, is cut, or is being "
			"written; check it with h5ls.",
			path);
	if (code)
		jm_hdf5_file_close(f);
	else
		*ret = f;
	return code;
}

void jm_hdf5_file_close(struct jm_hdf5_file *f)
{
	if (!f)
		return;
	if (f->file >= 0)
		f->call.H5Fclose(f->file);
	free(f->path);
	free(f);
}

/* ---- arrays ---- */

static bool is_real(const struct jm_hdf5_calls *c, hid_t array)
{
	hid_t type = c->H5Dget_type(array);
	bool real = type >= 0 && c->H5Tget_class(type) == H5T_FLOAT;

	if (type >= 0)
		c->H5Tclose(type);
	return real;
}

/* False: it has other numbers of dimensions. */
static bool take_size(const struct jm_hdf5_calls *c, hid_t array, struct jm_hdf5_array *ret)
{
	hsize_t dim[JM_HDF5_DIMS] = {0};
	hid_t space = c->H5Dget_space(array);
	int rank = space < 0 ? 0 : c->H5Sget_simple_extent_ndims(space);
	bool fits = rank >= 1 && rank <= JM_HDF5_DIMS;

	if (fits)
		c->H5Sget_simple_extent_dims(space, dim, NULL);
	for (int a = 0; a < JM_HDF5_DIMS; a++) {
		ret->dim[a] = (int64_t)dim[a];
		fits = fits && ret->dim[a] >= 0;
	}
	ret->rank = rank;
	if (space >= 0)
		c->H5Sclose(space);
	return fits;
}

int jm_hdf5_array_open(
	struct jm_hdf5_file *f, const char *name, struct jm_hdf5_array *ret, struct jm_err *err)
{
	const struct jm_hdf5_calls *c = &f->call;
	struct jm_hdf5_array a = {.id = -1};
	bool there = c->H5Lexists(f->file, name, H5P_DEFAULT) > 0;

	if (!there)
		return jm_err_set(err, JM_EFORMAT,
			"%s has no array '%s'; write samples and what follows from them as "
			"'inputs' and 'outputs'.",
			f->path, name);
	a.id = c->H5Dopen2(f->file, name, H5P_DEFAULT);
	if (a.id < 0 || !is_real(c, a.id) || !take_size(c, a.id, &a)) {
		if (a.id >= 0)
			c->H5Dclose(a.id);
		return jm_err_set(err, JM_EFORMAT,
			"'%s' of %s is no array of floating-point numbers with 1 to %d "
			"dimensions; convert it.",
			name, f->path, JM_HDF5_DIMS);
	}
	*ret = a;
	return 0;
}

void jm_hdf5_array_close(struct jm_hdf5_file *f, const struct jm_hdf5_array *a)
{
	f->call.H5Dclose(a->id);
}

/* Called with the lock. */
static bool read_row(
	const struct jm_hdf5_calls *c, const struct jm_hdf5_array *a, int64_t row, float *to)
{
	hsize_t start[JM_HDF5_DIMS] = {(hsize_t)row}, count[JM_HDF5_DIMS] = {1};
	hid_t space, memory;
	bool done;

	for (int i = 1; i < a->rank; i++)
		count[i] = (hsize_t)a->dim[i];
	/* each thread has its own */
	c->H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	space = c->H5Dget_space(a->id);
	memory = c->H5Screate_simple(a->rank, count, NULL);
	done = space >= 0 && memory >= 0 &&
	       c->H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
	       c->H5Dread(a->id, *c->H5T_NATIVE_FLOAT_g, memory, space, H5P_DEFAULT, to) >= 0;
	if (space >= 0)
		c->H5Sclose(space);
	if (memory >= 0)
		c->H5Sclose(memory);
	return done;
}

int jm_hdf5_row_read(struct jm_hdf5_file *f, const struct jm_hdf5_array *a, int64_t row, float *to,
	struct jm_err *err)
{
	bool done;

	pthread_mutex_lock(&lock);
	done = read_row(&f->call, a, row, to);
	pthread_mutex_unlock(&lock);
	return done ? 0
		    : jm_err_set(err, JM_EIO,
			      "Sample %lld of %s cannot be read: the file is damaged, or was "
			      "changed "
			      "while it was read.",
			      (long long)row, f->path);
}
