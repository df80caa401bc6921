/* SPDX-License-Identifier: Apache-2.0 */
#include "measure_text.h"

#include "report/format/text.h"

#include <string.h>

#define LABELS 9 /* columns of "Energy" with the blanks around it */

void jm_measure_line(const struct jm_measure_text *t, const char *label, const char *text)
{
	int label_width = t->width < 40 ? (int)strlen(label) + 1 : LABELS;

	fprintf(t->out, "  %-*s", label_width, label);
	jm_text_wrap_on(t->out, text, 2 + label_width, t->width < 40 ? 4 : 2 + LABELS, t->width);
}
