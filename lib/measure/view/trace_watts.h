/* SPDX-License-Identifier: Apache-2.0 */
/* watts.csv of a recorded trace; trace_csv.h describes it. */
#ifndef JM_TRACE_WATTS_H
#define JM_TRACE_WATTS_H

#include <stdio.h>

#include "measure/session/session.h"

/* After jm_session_stop. */
int jm__csv_put_watts(struct jm_session *s, FILE *f, struct jm_err *err);

#endif
