/* SPDX-License-Identifier: Apache-2.0 */
/* Named columns of numbers as pandas writes and prints a DataFrame, and named numbers as it does a
 * Series. */
#ifndef JM_DATA_FRAME_H
#define JM_DATA_FRAME_H

#include <stdio.h>

#include "joulemark.h"

struct jm_columns {
	const char *const *name;
	int n, rows;
	const double *value; /* `rows` rows of n; NAN = no value */
	bool series;	     /* one row only, whose names are its index */
};

/* As DataFrame.to_csv, Series.to_csv: each number with the digits that give it back. */
bool jm_columns_write_csv(const struct jm_columns *c, FILE *out);
/* As print(): of more than 60 rows the first and last five. */
void jm_columns_print(const struct jm_columns *c, FILE *out);
/* Is there a libhdf5? */
int jm_columns_try_hdf5(struct jm_err *err);
/* As DataFrame.to_hdf(path, key=key, mode="w"), which pandas.read_hdf reads. */
int jm_columns_write_hdf5(
	const struct jm_columns *c, const char *key, const char *path, struct jm_err *err);

#endif
