/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns as HDF5 in the "fixed" format of pandas, as python3-tables writes it. A DataFrame is a
 * group with
 *	axis0		names of the columns	axis1		the index, whole numbers from 0
 *	block0_items	names again		block0_values	[rows][columns], f64
 * and a Series one with "index" (names) and "values".
 */
#include "data_frame.h"
#include "vendor/hdf5_file.h"

#include <stdlib.h>

static void put_texts(
	struct jm_hdf5 *h, hid_t of, const char *const (*row)[2], size_t n, const char *version)
{
	for (size_t i = 0; i < n; i++)
		jm_hdf5_text(h, of, row[i][0], row[i][1]);
	jm_hdf5_text(h, of, "TITLE", "");
	jm_hdf5_text(h, of, "VERSION", version);
}

/* kind: of an index; NULL = none. */
static void end_array(struct jm_hdf5 *h, hid_t data, const char *kind)
{
	static const char *const row[][2] = {{"CLASS", "ARRAY"}, {"FLAVOR", "numpy"}};

	put_texts(h, data, row, 2, "2.4");
	jm_hdf5_yes(h, data, "transposed");
	if (kind) {
		jm_hdf5_text(h, data, "kind", kind);
		jm_hdf5_bytes(h, data, "name", "N."); /* None, as Python pickles it */
	}
	jm_hdf5_data_done(h, data);
}

static void put_names(struct jm_hdf5 *h, hid_t group, const char *name, const struct jm_columns *c)
{
	end_array(h, jm_hdf5_texts(h, group, name, (size_t)c->n, c->name), "string");
}

static void put_index(struct jm_hdf5 *h, hid_t group, int rows)
{
	int64_t *index = calloc((size_t)rows + 1, sizeof(*index));

	h->failed = h->failed || !index;
	for (int i = 0; index && i < rows; i++)
		index[i] = i;
	end_array(h, jm_hdf5_integers(h, group, "axis1", (size_t)rows, index), "integer");
	free(index);
}

static void put_series(struct jm_hdf5 *h, hid_t group, const struct jm_columns *c)
{
	static const char *const row[][2] = {{"CLASS", "GROUP"}, {"pandas_type", "series"},
		{"pandas_version", "0.15.2"}, {"encoding", "UTF-8"}, {"errors", "strict"},
		{"index_variety", "regular"}};

	put_texts(h, group, row, sizeof(row) / sizeof(row[0]), "1.0");
	jm_hdf5_bytes(h, group, "name", "N.");
	put_names(h, group, "index", c);
	end_array(h, jm_hdf5_doubles(h, group, "values", (size_t)c->n, 0, c->value), NULL);
}

static void put_table(struct jm_hdf5 *h, hid_t group, const struct jm_columns *c)
{
	static const char *const row[][2] = {{"CLASS", "GROUP"}, {"pandas_type", "frame"},
		{"pandas_version", "0.15.2"}, {"encoding", "UTF-8"}, {"errors", "strict"},
		{"axis0_variety", "regular"}, {"axis1_variety", "regular"},
		{"block0_items_variety", "regular"}};

	put_texts(h, group, row, sizeof(row) / sizeof(row[0]), "1.0");
	jm_hdf5_number(h, group, "ndim", 2);
	jm_hdf5_number(h, group, "nblocks", 1);
	put_names(h, group, "axis0", c);
	put_index(h, group, c->rows);
	put_names(h, group, "block0_items", c);
	end_array(h,
		jm_hdf5_doubles(h, group, "block0_values", (size_t)c->rows, (size_t)c->n, c->value),
		NULL);
}

static void put_file(struct jm_hdf5 *h, const struct jm_columns *c, const char *key)
{
	static const char *const row[][2] = {
		{"CLASS", "GROUP"}, {"PYTABLES_FORMAT_VERSION", "2.1"}};
	hid_t root = h->file, group;

	put_texts(h, root, row, 2, "1.0");
	group = jm_hdf5_group(h, root, key);
	(c->series ? put_series : put_table)(h, group, c);
	jm_hdf5_group_done(h, group);
}

int jm_columns_try_hdf5(struct jm_err *err)
{
	struct jm_hdf5 h;
	int rc = jm_hdf5_open(&h, err);

	jm_hdf5_close(&h);
	return rc;
}

int jm_columns_write_hdf5(
	const struct jm_columns *c, const char *key, const char *path, struct jm_err *err)
{
	struct jm_hdf5 h;
	int rc = jm_hdf5_open(&h, err);

	if (!rc) {
		put_file(&h, c, key);
		rc = jm_hdf5_write(&h, path, err);
	}
	jm_hdf5_close(&h);
	return rc;
}
