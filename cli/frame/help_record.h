/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a record, printed; the exit status is returned. */
#ifndef JM_HELP_RECORD_H
#define JM_HELP_RECORD_H

#include <stdio.h>

int jm_help_schema(FILE *out);
int jm_help_keys(FILE *out);

#endif
