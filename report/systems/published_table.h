/* SPDX-License-Identifier: Apache-2.0 */
/* Published figures on a terminal, below the tables of the records. */
#ifndef JM_PUBLISHED_TABLE_H
#define JM_PUBLISHED_TABLE_H

#include "published.h"

/* All of them as tables for a terminal. */
int jm_published_write_table(const struct jm_grouping *g, FILE *out, struct jm_err *err);

#endif
