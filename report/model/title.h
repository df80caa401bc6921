/* SPDX-License-Identifier: Apache-2.0 */
/* The name of the work of a series, and what distinguishes series of one name. */
#ifndef JM_REPORT_TITLE_H
#define JM_REPORT_TITLE_H

#include "series.h"

/* Sets title, the name of the work, and item. */
void jm_group_title(const struct jm_grouping *g, struct jm_group_series *s);
/*
 * Sets the labels of the points: "32"; with several axes "batch 32, ranks 2". Without knobs, what
 * is the same in all points of the series is left out.
 */
void jm_group_label(struct jm_grouping *g, const struct jm_group_series *s);
/* "train resnet50", the words of a command, or "" where the record names neither. */
void jm_group_work(const json_t *record, bool with_subject, char *out, size_t size);
/* Adds to the titles what distinguishes series of one name. -1: no memory. */
int jm_group_tell_apart(struct jm_grouping *g);

#endif
