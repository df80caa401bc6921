/* SPDX-License-Identifier: Apache-2.0 */
#include "compare_draw.h"

#include <math.h>
#include <string.h>

#define NAME  10 /* columns before the scale */
#define LEAST 41 /* columns of the scale */
#define MOST  81

/* Percent. */
static double low_of(const struct jm_compare_line *l)
{
	return 100 * (l->c.low - 1);
}

static double high_of(const struct jm_compare_line *l)
{
	return 100 * (l->c.high - 1);
}

static bool is_drawn(const struct jm_compare_line *l)
{
	return !l->hard && isfinite(l->c.low) && isfinite(l->c.high);
}

/* The end of a scale that has 0 in the middle: 1, 2 or 5 times a power of ten; 0 = nothing is
 * drawn. */
static double end_of_scale(const struct jm_compare_row *row)
{
	static const double steps[] = {1, 2, 5, 10};
	double most = 0, power;

	for (int i = 0; i < JM_COMPARED_COUNT; i++)
		if (is_drawn(&row->line[i]))
			most = fmax(most,
				fmax(fabs(low_of(&row->line[i])), fabs(high_of(&row->line[i]))));
	if (!(most > 0))
		return 0;
	power = pow(10, floor(log10(most)));
	for (int i = 0; i < 4; i++)
		if (most <= steps[i] * power)
			return steps[i] * power;
	return 10 * power;
}

static int column_of(double percent, double end, int columns)
{
	return (int)lround((percent / end + 1) / 2 * (columns - 1));
}

static void put_scale(double end, int columns, FILE *out)
{
	char left[24], right[24];

	snprintf(left, sizeof(left), "-%g %%", end);
	snprintf(right, sizeof(right), "+%g %%", end);
	fprintf(out, "  %-*s%-*s0%*s\n", NAME, "B - A", (columns - 1) / 2, left, (columns - 1) / 2,
		right);
}

static void put_bar(
	const struct jm_compare_line *l, const char *name, double end, int columns, FILE *out)
{
	int low = column_of(low_of(l), end, columns), high = column_of(high_of(l), end, columns),
	    at = column_of(100 * (l->c.ratio - 1), end, columns), last = (columns - 1) / 2;

	if (high > last)
		last = high;
	fprintf(out, "  %-*s", NAME, name);
	for (int i = 0; i <= last; i++)
		fputs(i == at			 ? "●"
			: i == low		 ? "├"
			: i == high		 ? "┤"
			: i > low && i < high	 ? "─"
			: i == (columns - 1) / 2 ? "│"
						 : " ",
			out);
	fputc('\n', out);
}

void jm_compare_draw(const struct jm_compare_row *row, int width, FILE *out)
{
	double end = end_of_scale(row);
	int columns = width - NAME - 2 > MOST ? MOST : width - NAME - 2;

	columns -= !(columns % 2); /* 0 has a column */
	if (!(end > 0) || columns < LEAST)
		return;
	put_scale(end, columns, out);
	for (int i = 0; i < JM_COMPARED_COUNT; i++)
		if (is_drawn(&row->line[i]))
			put_bar(&row->line[i], jm_compared_names[i], end, columns, out);
}
