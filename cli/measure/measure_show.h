/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a measurement: headline, meters, phases, grade. */
#ifndef JM_MEASURE_SHOW_H
#define JM_MEASURE_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct jm_measure_text {
	FILE *out;
	int width;
	bool bold;
	bool bounds;  /* also the parts of each uncertainty */
	bool meters;  /* phases per meter */
	bool why;     /* the reasons of the grade */
	bool residue; /* what parts leave of the meters that include them */
	bool marked; /* the rate of items is of the stretch between marks, not of the whole command */
};

void jm_measure_print(const struct jm_measure_text *t, const json_t *record);

/* A line of the headline: "  Energy   1054 J ...". */
void jm_measure_line(const struct jm_measure_text *t, const char *label, const char *text);

#endif
