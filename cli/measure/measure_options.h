/* SPDX-License-Identifier: Apache-2.0 */
/* One call of `measure`, and its options. */
#ifndef JM_MEASURE_OPTIONS_H
#define JM_MEASURE_OPTIONS_H

#include "cli/frame/cli.h"
#include "measure/command/launch.h"
#include "measure/command/processor_share.h"
#include "items_url.h"
#include "measure_attach.h"
#include "measure_figures.h"
#include "measure_repeat.h"
#include "measure_settings.h"
#include "measure_show.h"
#include "measure_store.h"
#include "meter/source_list.h"
#include "tune_run.h"

struct measurement {
	struct jm_cli *cli;
	char *const *command; /* NULL = what is measured runs already */
	const char *json, *csv, *metrics, *hdf5, *store_path; /* NULL = not written */
	const char *job;				      /* NULL = by Slurm */
	struct jm_item_options items;
	const char *phase_regex, *phase_at; /* see launch.h; NULL = not given */
	struct jm_measure_text text;
	int64_t interval_ns; /* 0 = by the sensors */
	const char *device;  /* NULL = not given */
	char *const *source_texts;
	struct jm_source_list sources;
	struct jm_session *session;
	struct jm_measure_store store;
	struct jm_measure_attach attach;
	struct jm_measure_repeat repeat;
	struct jm_items_url items_url;
	struct jm_measure_settings settings;
	struct jm_measure_figures figures;
	bool repeats;
	bool of_run; /* this is one of several runs, for a record of its own */
	int stored;  /* of the runs, from the first on: their records are in the store */
	struct jm_outcome outcome;
	struct jm_own_share own; /* of all counted runs of the command */
	int64_t started_wall;
	int lost;		  /* the error that ended the trace */
	struct jm_tune_run *tune; /* that tunes meanwhile; NULL = none */
};

/* Bound to a struct measurement. */
extern const struct jm_option jm_measure_options[];
extern const struct jm_former jm_measure_former[];

/* Without their fields. */
#define JM_INTERVAL_ROW                                                                            \
	.name = "interval", .unit = "s", .min = 0.0001, .max = 3600, .argument = "TIME",           \
	.help = "time between readings, such as 100ms; without it half the refresh period "        \
		"of the sensors"
#define JM_METERS_ROW .name = "meters", .heading = "Text", .help = "print the phases of each meter"

#endif
