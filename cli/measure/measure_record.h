/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a measured command. */
#ifndef JM_MEASURE_RECORD_H
#define JM_MEASURE_RECORD_H

#include "measure_options.h"

/* Of the phase that the outcome names; NULL with an error. One without provenance is returned with
 * an error, too. */
json_t *jm_measure_record(const struct measurement *m, struct jm_err *err);
/* The words of a command; one that is not UTF-8 is null. */
json_t *jm_measure_command_json(char *const *command);

#endif
