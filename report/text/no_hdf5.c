/* SPDX-License-Identifier: Apache-2.0 */
/* In place of data_frame_hdf5.c and trace_hdf5.c where the headers of libhdf5 were missing. */
#include "data_frame.h"
#include "trace_hdf5.h"

int jm_columns_try_hdf5(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"This joulemark was built without the headers of libhdf5 and cannot write HDF5; "
		"write CSV, or build it again with Debian's libhdf5-dev installed.");
}

int jm_columns_write_hdf5(
	const struct jm_columns *c, const char *key, const char *path, struct jm_err *err)
{
	(void)c;
	(void)key;
	(void)path;
	return jm_columns_try_hdf5(err);
}

int jm_trace_write_hdf5(const struct jm_trace *trace, const struct jm_meters *set,
	const json_t *record, const char *path, struct jm_err *err)
{
	(void)trace;
	(void)set;
	(void)record;
	(void)path;
	return jm_columns_try_hdf5(err);
}
