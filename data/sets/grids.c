/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of HDF5 with fields on a grid and what becomes of them, as CARAML's Fourier neural
 * operators read it: arrays "inputs" and "outputs" of [samples, fields, points of each axis].
 */
#include "data/sets/data_set.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "vendor/hdf5_rows.h"

#define OTHERS	    2	      /* dimensions of an array besides the axes */
#define VALUES_MOST (1 << 28) /* of a sample */

struct grids {
	struct jm_hdf5_file *file;
	struct jm_hdf5_array array[2]; /* inputs, outputs */
	int arrays;		       /* that are open */
};

static bool ends(const char *path, const char *end)
{
	size_t n = strlen(path), m = strlen(end);

	return n > m && !strcasecmp(path + n - m, end);
}

static bool hdf5_fits(const char *path)
{
	struct stat st;

	return (ends(path, ".h5") || ends(path, ".hdf5")) && !stat(path, &st) &&
	       S_ISREG(st.st_mode);
}

static int check_size(const struct jm_data_set *set, const struct grids *g, struct jm_err *err)
{
	const struct jm_hdf5_array *in = &g->array[0], *out = &g->array[1];
	int64_t values = 1;

	if (in->rank != out->rank || memcmp(in->dim, out->dim, sizeof(in->dim)) != 0)
		return jm_err_set(err, JM_EFORMAT,
			"'inputs' and 'outputs' of %s differ in size, and each sample needs both, "
			"with the same fields on the same grid.",
			set->path);
	if (in->rank != OTHERS + 2 && in->rank != OTHERS + 3)
		return jm_err_set(err, JM_EFORMAT,
			"'inputs' of %s has %d dimensions in place of 4 or 5: samples, fields, and "
			"points of two or three axes.",
			set->path, in->rank);
	for (int a = 1; a < in->rank; a++)
		values = in->dim[a] && values <= VALUES_MOST / in->dim[a] ? values * in->dim[a] : 0;
	if (!values)
		return jm_err_set(err, JM_EFORMAT,
			"Samples of %s have no values, or more than %d; write them anew.",
			set->path, VALUES_MOST);
	return 0;
}

static int open_arrays(const struct jm_data_set *set, struct grids *g, struct jm_err *err)
{
	static const char *const name[] = {"inputs", "outputs"};
	int code = jm_hdf5_file_open(set->path, &g->file, err);

	while (!code && g->arrays < 2) {
		code = jm_hdf5_array_open(g->file, name[g->arrays], &g->array[g->arrays], err);
		g->arrays += !code;
	}
	return code ? code : check_size(set, g, err);
}

static int hdf5_open(struct jm_data_set *set, enum jm_part part, struct jm_err *err)
{
	struct grids *g = calloc(1, sizeof(*g));
	int code;

	(void)part;
	set->state = g;
	if (!g)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for data set %s.", set->path);
	set->single = true;
	code = open_arrays(set, g, err);
	if (code)
		return code;
	set->n = g->array->dim[0];
	set->channels = g->array->dim[1];
	set->axes = g->array->rank - OTHERS;
	for (int a = 0; a < set->axes; a++)
		set->points[a] = g->array->dim[OTHERS + a];
	return 0;
}

static int hdf5_values(const struct jm_data_set *set, int64_t i, enum jm_data_type which, float *to,
	struct jm_err *err)
{
	const struct grids *g = set->state;

	return jm_hdf5_row_read(g->file, &g->array[which == JM_DATA_OUTPUTS], i, to, err);
}

static void hdf5_close(struct jm_data_set *set)
{
	struct grids *g = set->state;

	while (g && g->arrays)
		jm_hdf5_array_close(g->file, &g->array[--g->arrays]);
	if (g)
		jm_hdf5_file_close(g->file);
	free(g);
}

static const struct jm_data_field fields[] = {
	{"inputs", JM_DATA_INPUTS}, {"outputs", JM_DATA_OUTPUTS}, {0}};

const struct jm_data_format jm_data_format_hdf5 = {
	.name = "fields of HDF5",
	.fields = fields,
	.fits = hdf5_fits,
	.open = hdf5_open,
	.values = hdf5_values,
	.close = hdf5_close,
};
