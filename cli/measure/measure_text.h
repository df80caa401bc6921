/* SPDX-License-Identifier: Apache-2.0 */
/* Where and how the text of a measurement is printed, and a line of its headline. */
#ifndef JM_MEASURE_TEXT_H
#define JM_MEASURE_TEXT_H

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
	/* the rate of items is of the stretch between marks, not of the whole command */
	bool marked;
};

/* "  Energy   1054 J ..." */
void jm_measure_line(const struct jm_measure_text *t, const char *label, const char *text);

#endif
