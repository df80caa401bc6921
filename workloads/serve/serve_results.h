/* SPDX-License-Identifier: Apache-2.0 */
/* What requests took, for the record; the file of answers. */
#ifndef JM_SERVE_RESULTS_H
#define JM_SERVE_RESULTS_H

#include "serve_state.h"

/* Adds "serving" to the record, which must be wanted; after jm_answers_find_window. */
void jm_serve_record(struct serve *s);
/* Tries the file of --answers. Errors: as jm_output_try, or another option names it, too. */
int jm_serve_open_answers(struct serve *s, struct jm_err *err);
/* --answers. Errors: as jm_output_by. */
int jm_serve_write_answers(const struct serve *s, struct jm_err *err);

#endif
