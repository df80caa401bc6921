/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of kernels as tables, from the summary's object "signatures". */
#ifndef JM_SIGNATURE_TEXT_H
#define JM_SIGNATURE_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "report/format/grid.h"
#include "report/model/grouping.h"

extern const char jm_signature_correlated[];

/* Are there two kernels or more? Texts show no single one. */
bool jm_signature_compares(const json_t *signatures);
/* Title, caption and tables for a terminal, of two kernels and more. */
void jm_signature_print(const struct jm_grouping *g, FILE *out);
/* What stands below the titles: the caption, and which figures are simulated. */
void jm_signature_text(const json_t *signatures, char *out, size_t size);
/* One row per kernel; columns of which nothing is known are absent. */
int jm_signature_rows(const json_t *signatures, struct jm_grid *ret, struct jm_err *err);
/* One row per setting and kind of intensity. JM_ENOENT: there are none. */
int jm_signature_correlations(const json_t *signatures, struct jm_grid *ret, struct jm_err *err);

#endif
