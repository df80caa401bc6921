/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of `top`: one column of text, which takes what is left, and columns that are shown by
 * their rank, as many as the width takes. */
#ifndef JM_TOP_TABLE_H
#define JM_TOP_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#define JM_TOP_COLUMNS 16
#define JM_TOP_TITLE   '\1' /* begins a line that is shown as a title */

struct jm_top_column {
	const char *title;
	int width, rank; /* rank: the lowest are shown first; 0 = never */
	void (*put)(const void *row, char *out, size_t size);
};

struct jm_top_layout {
	const struct jm_top_column *column;
	int n;
	bool shown[JM_TOP_COLUMNS];
	int text, left; /* columns of the text, and those that nothing takes */
};

/* The text keeps at least `least` columns beside columns up to rank `important`, `whole` beside the
 * others, and takes at most `most`. */
struct jm_top_layout jm_top_lay_out(const struct jm_top_column *column, int n, int width, int least,
	int important, int whole, int most);
/* A title line; `text` is the title of the text. */
void jm_top_put_titles(const struct jm_top_layout *l, const char *text, FILE *out);
/* The cells of a row, after its text. */
void jm_top_put_cells(const struct jm_top_layout *l, const void *row, FILE *out);
/* In exactly so many columns. Too long a text loses whole words at its end, or ends in a + where
 * one word is left. */
void jm_top_put_padded(FILE *out, const char *text, int width);
/* "-" for NAN. */
void jm_top_put_number(double value, int decimals, const char *unit, char *out, size_t size);
/* Values of a time line as bars, the newest last, in exactly so many columns: from 0 to `top`, NAN
 * is free. */
void jm_top_put_bars(FILE *out, const double *value, int n, int width, double top, bool ascii);

#endif
