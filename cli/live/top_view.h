/* SPDX-License-Identifier: Apache-2.0 */
/* What `top` shows, as lines of text: the sums, a row per device, the work and the processes that
 * run. */
#ifndef JM_TOP_VIEW_H
#define JM_TOP_VIEW_H

#include "top_model.h"

/* Lines of at most `width` columns, each ended by a newline, for the caller to free; NULL without
 * memory. Title lines begin with JM_TOP_TITLE (top_table.h). */
char *jm_top_text(const struct jm_top_view *view, int width);
/* The explanation of columns and keys in the same form. */
char *jm_top_help_text(int width);

#endif
