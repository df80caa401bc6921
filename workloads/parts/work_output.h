/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the files that a workload writes. */
#ifndef JM_WORK_OUTPUT_H
#define JM_WORK_OUTPUT_H

#include "run/workload.h"

/*
 * Where this run writes: the path itself if it is the only run of the call, else with the run's
 * name before the ending ("r.csv": "r.1a2b3c4d-2.csv"), so that runs do not overwrite each other's
 * file. A device and "-" keep their name. name: room for PATH_MAX bytes. Errors: as jm_output_try;
 * JM_EUSAGE also for "-" where the run has no standard output.
 */
int jm_work_output(const struct jm_work *work, const char *path, char *name, struct jm_err *err);
/* Refuses a name that is written by one option and read or written by another. Either may be NULL;
 * a device and "-" may be named twice. */
int jm_work_output_apart(const char *name, const char *option, const char *other,
	const char *other_option, struct jm_err *err);

#endif
