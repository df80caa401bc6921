/* SPDX-License-Identifier: Apache-2.0 */
/* A measurement as one HDF5 file: every reading, the phases and the record. docs/measuring.md has
 * the layout. */
#ifndef JM_TRACE_HDF5_H
#define JM_TRACE_HDF5_H

#include <jansson.h>

#include "joulemark.h"
#include "trace/trace.h"

/* record: of the same measurement. The file is made in memory, with 16 bytes per reading. */
int jm_trace_write_hdf5(const struct jm_trace *trace, const struct jm_meters *set,
	const json_t *record, const char *path, struct jm_err *err);

#endif
