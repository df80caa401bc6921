/* SPDX-License-Identifier: Apache-2.0 */
/* What requests took, for the record; files of requests and of answers. */
#ifndef JM_SERVE_RESULTS_H
#define JM_SERVE_RESULTS_H

#include "serve.h"

/* Adds "serving" to the record, which must be wanted; after jm_serve_find_window. */
void jm_serve_record(const struct serve *s);
/* Errors: as jm_output_by. */
int jm_serve_write_csv(const struct serve *s, struct jm_err *err);     /* --requests-csv */
int jm_serve_write_answers(const struct serve *s, struct jm_err *err); /* --answers */

#endif
