/* SPDX-License-Identifier: Apache-2.0 */
#include "hdf5_file.h"
#include "base/files/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE ((hid_t)-1)
/* H5F_ACC_TRUNC, whose macro calls functions of the library by their names */
#define REPLACE 0x0002u
#define CHUNK	((size_t)1 << 20) /* by which the file in memory grows */

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct jm_hdf5_calls, name)},
	JM_HDF5_CALLS(X) JM_HDF5_IDS(X)
#undef X
};

static const struct jm_library library = {
	.title = "libhdf5",
	.variable = "JM_HDF5_LIB",
	.names = {"libhdf5_serial.so.103", "libhdf5.so.103", "libhdf5_serial.so", "libhdf5.so"},
	.mend = "install libhdf5 (Debian: libhdf5-103-1) or name the file in JM_HDF5_LIB",
	.symbols = symbols,
	.n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

static void check(struct jm_hdf5 *h, bool ok)
{
	h->failed = h->failed || !ok;
}

int jm_hdf5_load(struct jm_hdf5_calls *ret, struct jm_err *err)
{
	int rc = jm_library_open(&library, ret, err);

	if (rc)
		return rc;
	if (ret->H5open() < 0)
		return jm_err_set(err, JM_ENOSUP, "libhdf5 could not be initialised.");
	/* it would print a trace of its functions */
	ret->H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	return 0;
}

int jm_hdf5_open(struct jm_hdf5 *h, struct jm_err *err)
{
	struct jm_hdf5_calls *c = &h->call;
	hid_t access;
	int rc;

	*h = (struct jm_hdf5){.file = NONE};
	rc = jm_hdf5_load(c, err);
	if (rc)
		return rc;
	access = c->H5Pcreate(*c->H5P_CLS_FILE_ACCESS_ID_g);
	check(h, access >= 0 && c->H5Pset_fapl_core(access, CHUNK, 0) >= 0);
	if (!h->failed)
		h->file = c->H5Fcreate("joulemark.h5", REPLACE, H5P_DEFAULT, access);
	check(h, h->file >= 0);
	if (access >= 0)
		c->H5Pclose(access);
	return h->failed ? jm_err_set(err, JM_ENOMEM, "libhdf5 could not make a file in memory.")
			 : 0;
}

hid_t jm_hdf5_group(struct jm_hdf5 *h, hid_t parent, const char *name)
{
	hid_t group =
		h->failed ? NONE
			  : h->call.H5Gcreate2(parent, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

	check(h, group >= 0);
	return group;
}

void jm_hdf5_group_done(struct jm_hdf5 *h, hid_t group)
{
	if (group >= 0)
		h->call.H5Gclose(group);
}

/* ---- attributes ---- */

/* Takes the space. */
static void attribute(
	struct jm_hdf5 *h, hid_t of, const char *name, hid_t type, hid_t space, const void *value)
{
	hid_t made = NONE;

	if (!h->failed && space >= 0)
		made = h->call.H5Acreate2(of, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	check(h, made >= 0 && (!value || h->call.H5Awrite(made, type, value) >= 0));
	if (made >= 0)
		h->call.H5Aclose(made);
	if (space >= 0)
		h->call.H5Sclose(space);
}

static hid_t text_type(struct jm_hdf5 *h, size_t size, bool utf8)
{
	hid_t type = h->failed ? NONE : h->call.H5Tcopy(*h->call.H5T_C_S1_g);

	check(h, type >= 0 && h->call.H5Tset_size(type, size ? size : 1) >= 0 &&
			 (!utf8 || h->call.H5Tset_cset(type, H5T_CSET_UTF8) >= 0));
	return type;
}

static void type_done(struct jm_hdf5 *h, hid_t type)
{
	if (type >= 0)
		h->call.H5Tclose(type);
}

static void put_text(struct jm_hdf5 *h, hid_t of, const char *name, const char *text, bool utf8)
{
	hid_t type = text_type(h, strlen(text), utf8);

	if (!h->failed)
		attribute(h, of, name, type, h->call.H5Screate(*text ? H5S_SCALAR : H5S_NULL),
			*text ? text : NULL);
	type_done(h, type);
}

void jm_hdf5_text(struct jm_hdf5 *h, hid_t of, const char *name, const char *text)
{
	put_text(h, of, name, text, true);
}

void jm_hdf5_bytes(struct jm_hdf5 *h, hid_t of, const char *name, const char *bytes)
{
	put_text(h, of, name, bytes, false);
}

void jm_hdf5_number(struct jm_hdf5 *h, hid_t of, const char *name, int64_t number)
{
	if (!h->failed)
		attribute(h, of, name, *h->call.H5T_NATIVE_INT64_g, h->call.H5Screate(H5S_SCALAR),
			&number);
}

void jm_hdf5_real(struct jm_hdf5 *h, hid_t of, const char *name, double number)
{
	if (!h->failed)
		attribute(h, of, name, *h->call.H5T_NATIVE_DOUBLE_g, h->call.H5Screate(H5S_SCALAR),
			&number);
}

void jm_hdf5_yes(struct jm_hdf5 *h, hid_t of, const char *name)
{
	const unsigned char yes = 1;

	if (!h->failed)
		attribute(
			h, of, name, *h->call.H5T_NATIVE_B8_g, h->call.H5Screate(H5S_SCALAR), &yes);
}

/* ---- datasets ---- */

static hid_t data(struct jm_hdf5 *h, hid_t parent, const char *name, size_t rows, size_t columns,
	hid_t type, const void *value)
{
	const hsize_t size[] = {rows, columns};
	hid_t space = h->failed ? NONE : h->call.H5Screate_simple(columns ? 2 : 1, size, NULL);
	hid_t made = NONE;

	check(h, space >= 0);
	if (!h->failed)
		made = h->call.H5Dcreate2(
			parent, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	check(h, made >= 0 &&
			 h->call.H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0);
	if (space >= 0)
		h->call.H5Sclose(space);
	return made;
}

hid_t jm_hdf5_doubles(struct jm_hdf5 *h, hid_t parent, const char *name, size_t rows,
	size_t columns, const double *value)
{
	return data(h, parent, name, rows, columns, *h->call.H5T_NATIVE_DOUBLE_g, value);
}

hid_t jm_hdf5_integers(
	struct jm_hdf5 *h, hid_t parent, const char *name, size_t rows, const int64_t *value)
{
	return data(h, parent, name, rows, 0, *h->call.H5T_NATIVE_INT64_g, value);
}

hid_t jm_hdf5_texts(
	struct jm_hdf5 *h, hid_t parent, const char *name, size_t rows, const char *const *text)
{
	size_t most = 1;
	hid_t type, made;
	char *all;

	for (size_t i = 0; i < rows; i++)
		most = strlen(text[i]) > most ? strlen(text[i]) : most;
	all = calloc(rows + 1, most);
	check(h, all != NULL);
	for (size_t i = 0; all && i < rows; i++)
		memcpy(all + i * most, text[i], strlen(text[i]));
	type = text_type(h, most, false);
	made = data(h, parent, name, rows, 0, type, all);
	type_done(h, type);
	free(all);
	return made;
}

void jm_hdf5_data_done(struct jm_hdf5 *h, hid_t made)
{
	if (made >= 0)
		h->call.H5Dclose(made);
}

/* ---- the file ---- */

struct image {
	void *bytes;
	size_t n;
};

static bool put_image(const void *what, FILE *out)
{
	const struct image *image = what;

	return fwrite(image->bytes, 1, image->n, out) == image->n;
}

static int take_image(struct jm_hdf5 *h, struct image *image, struct jm_err *err)
{
	ssize_t n = -1;

	check(h, !h->failed && h->call.H5Fflush(h->file, H5F_SCOPE_GLOBAL) >= 0);
	if (!h->failed)
		n = h->call.H5Fget_file_image(h->file, NULL, 0);
	image->n = n > 0 ? (size_t)n : 0;
	image->bytes = n > 0 ? malloc(image->n) : NULL;
	check(h, image->bytes && h->call.H5Fget_file_image(h->file, image->bytes, image->n) == n);
	if (!h->failed)
		return 0;
	return jm_err_set(err, JM_ENOMEM,
		"libhdf5 could not write the tables, probably because memory ran out.");
}

int jm_hdf5_write(struct jm_hdf5 *h, const char *path, struct jm_err *err)
{
	struct image image = {0};
	int rc = take_image(h, &image, err);

	if (!rc)
		rc = jm_output_by(path, put_image, &image, err);
	free(image.bytes);
	return rc;
}

void jm_hdf5_close(struct jm_hdf5 *h)
{
	if (h->file >= 0)
		h->call.H5Fclose(h->file);
	h->file = NONE;
}
