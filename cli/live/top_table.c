/* SPDX-License-Identifier: Apache-2.0 */
#include "top_table.h"

#include "report/format/text.h"

#include <math.h>
#include <string.h>

struct jm_top_layout jm_top_lay_out(const struct jm_top_column *column, int n, int width, int least,
	int important, int whole, int most)
{
	struct jm_top_layout l = {.column = column, .n = n, .text = width};

	for (int rank = 1; rank <= n; rank++)
		for (int i = 0; i < n; i++) {
			int keep = rank > important ? whole : least;

			if (column[i].rank != rank || l.text - column[i].width < keep)
				continue;
			l.shown[i] = true;
			l.text -= column[i].width;
		}
	if (l.text > most) {
		l.left = l.text - most;
		l.text = most;
	}
	return l;
}

/* Bytes of the first `width` columns of a text that has as many. */
static size_t bytes_of(const char *text, int width)
{
	size_t n = 0;

	for (int used = 0; used < width; used++) {
		n++;
		while (((unsigned char)text[n] & 0xc0) == 0x80)
			n++;
	}
	return n;
}

void jm_top_put_padded(FILE *out, const char *text, int width)
{
	int whole = jm_text_width(text);
	char part[256];
	size_t n;

	if (whole <= width) {
		fprintf(out, "%s%*s", text, width - whole, "");
		return;
	}
	n = bytes_of(text, width);
	if (n >= sizeof(part))
		n = sizeof(part) - 1;
	snprintf(part, sizeof(part), "%.*s", (int)n, text);
	if (strstr(part, " (") && !strchr(part, ')'))
		*strstr(part, " (") = '\0';
	else if (text[n] != ' ' && strrchr(part, ' '))
		*strrchr(part, ' ') = '\0';
	else if (text[n] != ' ' && width > 0)
		snprintf(part + bytes_of(text, width - 1), 2, "+");
	fprintf(out, "%s%*s", part, width - jm_text_width(part), "");
}

void jm_top_put_titles(const struct jm_top_layout *l, const char *text, FILE *out)
{
	fputc(JM_TOP_TITLE, out);
	jm_top_put_padded(out, text, l->text);
	for (int i = 0; i < l->n; i++)
		if (l->shown[i])
			fprintf(out, "%*s", l->column[i].width, l->column[i].title);
}

void jm_top_put_cells(const struct jm_top_layout *l, const void *row, FILE *out)
{
	char text[64];

	for (int i = 0; i < l->n; i++) {
		if (!l->shown[i])
			continue;
		l->column[i].put(row, text, (size_t)l->column[i].width); /* a column stays free */
		fprintf(out, "%*s", l->column[i].width, text);
	}
}

void jm_top_put_number(double value, int decimals, const char *unit, char *out, size_t size)
{
	if (isnan(value))
		snprintf(out, size, "-");
	else
		snprintf(out, size, "%.*f%s", decimals, value, unit);
}

void jm_top_put_bars(FILE *out, const double *value, int n, int width, double top, bool ascii)
{
	static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char *const letters[] = {"_", ".", ":", "-", "=", "+", "*", "#"};

	for (int i = n - width; i < n; i++) {
		double share = i < 0 ? NAN : value[i] / top;
		int step = isnan(share) ? 0 : (int)fmin(fmax(ceil(share * 8) - 1, 0), 7);

		fputs(isnan(share) ? " " : ascii ? letters[step] : bars[step], out);
	}
}
