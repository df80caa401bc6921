/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of `joulemark jpwr`: sensors become columns, the trace becomes rows, both become
 * files. */
#ifndef JM_JPWR_TABLES_H
#define JM_JPWR_TABLES_H

#include "cli/frame/cli.h"
#include "measure/command/launch.h"
#include "measure/session/power_rows.h"
#include "report/text/data_frame.h"

#include <limits.h>

#define JM_JPWR_METHODS 4

struct jm_jpwr_method {
	const char *name;
	const char *source; /* of joulemark */
	enum jm_scope scope;
	bool any_scope;
	const char *what; /* that it measures */
	bool counters;	  /* jpwr has a table of its counters */
};

extern const struct jm_jpwr_method jm_jpwr_methods[JM_JPWR_METHODS];

struct jm_jpwr_column {
	int meter, signal;
	const struct jm_jpwr_method *method;
	char name[96];
	struct jm_energy energy;
	int missing; /* intervals without a reading */
	bool summed; /* the energy is the sum of its rows, because that of the sensor is unknown */
};

struct jm_jpwr {
	struct jm_cli *cli;
	bool chosen[JM_JPWR_METHODS];
	int order[JM_JPWR_METHODS], n_chosen;
	char *const *methods, *const *ranks; /* as given; NULL = none */
	bool use_mpi, ignore_errors;
	int64_t interval_ms;
	bool hdf5;
	const char *type, *given_suffix; /* of the files; given_suffix: NULL = none */
	const char *folder;		 /* NULL = no files */
	char suffix[201];
	struct jm_session *session;
	struct jm_outcome outcome;
	int64_t wall_offset; /* wall time minus the clock, ns */
	struct jm_jpwr_column *column;
	int n_columns;
	struct jm_power_rows rows;
};

/* After the session was opened: the sensors that become columns. */
int jm_jpwr_choose_columns(struct jm_jpwr *j);
/* "DIR/power.SUFFIX.csv" */
int jm_jpwr_path(struct jm_jpwr *j, const char *table, char out[PATH_MAX]);
/* After the command: prints the tables and writes the files. */
int jm_jpwr_write_tables(struct jm_jpwr *j);
/* Reports the bounds, and what has no reading: JM_EIO for a sensor whose energy is unknown, else
 * warnings. */
int jm_jpwr_judge(struct jm_jpwr *j);

#endif
