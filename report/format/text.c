/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and lines of text, independent of reports. */
#include "text.h"
#include "base/printable.h"
#include "base/text/json.h"
#include "meter/meter.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_PLAIN   4    /* of a value without an interval */
#define LEAD_OF_TWO    35   /* a half width that begins with less has two digits, else one */
#define NOISE	       1e-6 /* relative; a half width below it would show as 0 */
#define PLACES_AT_MOST 12
#define LARGE	       1e12
#define DIGITS	       "0123456789"
#define DIGITS_APART   5
#define DIGITS_AT_MOST 4

void jm_text_format(char *out, size_t size, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(out, size, format, ap);
	va_end(ap);
	if (n >= (int)size)
		jm_text_shorten(out, size);
	for (char *c = strpbrk(out, "\n\r\t"); c; c = strpbrk(c, "\n\r\t"))
		*c = ' ';
	jm_text_tame(out);
}

void jm_text_append(char *out, size_t size, const char *between, const char *what)
{
	size_t used = strlen(out);

	if (!*what)
		return;
	if (size - used > 4)
		jm_text_format(out + used, size - used, "%s%s", used ? between : "", what);
	else
		jm_text_shorten(out, used + 1);
}

void jm_text_grade(const char *grade, const char *origin, char *out, size_t size)
{
	if (!strcmp(grade, "none"))
		jm_text_format(out, size, "none: %s%s", *origin ? origin : "no energy is known",
			*origin ? " only" : "");
	else
		jm_text_format(out, size, "%s (A is the best grade, D the worst)", grade);
}

void jm_text_item(const char *from, const char *item, char *out, size_t size)
{
	size_t used = 0;

	out[0] = '\0';
	for (; *from && used + 1 < size; from++) {
		if (*from == '@') {
			used += (size_t)snprintf(out + used, size - used, "%s", item);
		} else {
			out[used++] = *from;
			out[used] = '\0';
		}
	}
}

int jm_text_width(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xC0) != 0x80;
	return width;
}

/* Length of the word at `text` in bytes, and its columns. "5 %" is one word. */
static size_t word_length(const char *text, int *ret_width)
{
	size_t n = strcspn(text, " \n");

	if (n && !strncmp(text + n, " %", 2))
		n += 2 + strcspn(text + n + 2, " \n");
	*ret_width = 0;
	for (size_t i = 0; i < n; i++)
		*ret_width += ((unsigned char)text[i] & 0xC0) != 0x80;
	return n;
}

void jm_text_wrap(FILE *out, const char *text, int indent, int hang, int width)
{
	fprintf(out, "%*s", indent, "");
	jm_text_wrap_on(out, text, indent, hang, width);
}

static void wrap(FILE *out, const char *text, int column, int hang, int width)
{
	int used = column, start = column, w;

	while (*text) {
		size_t n = word_length(text, &w);

		if (n && used > start && used + 1 + w > width) {
			start = hang;
			used = fprintf(out, "\n%*s", hang, "") - 1;
		} else if (used > start) {
			used += fprintf(out, " ");
		}
		fwrite(text, 1, n, out);
		used += w;
		text += n;
		text += *text != '\0';
	}
	fputc('\n', out);
}

#define LEAST_TEXT 20 /* columns of the lines behind the first, where the terminal is narrow */
#define LEAST_HANG 8

/* In one write where memory is there for it: stderr has no buffer, and would be written word by
 * word. */
void jm_text_wrap_on(FILE *out, const char *text, int column, int hang, int width)
{
	char *lines = NULL;
	size_t n = 0;
	FILE *buffer = open_memstream(&lines, &n);
	int most = width - LEAST_TEXT > LEAST_HANG ? width - LEAST_TEXT : LEAST_HANG;

	hang = hang < most ? hang : most;
	wrap(buffer ? buffer : out, text, column, hang, width);
	if (buffer && !fclose(buffer)) {
		jm_text_tame_lines(lines); /* what others wrote controls no terminal */
		fputs(lines, out);
	}
	free(lines);
}

void jm_text_title(FILE *out, const char *title, bool bold, int width)
{
	fputs(bold ? "\033[1m" : "", out);
	jm_text_wrap(out, title, 0, 2, width);
	fputs(bold ? "\033[0m" : "", out);
}

void jm_text_entry(FILE *out, const char *name, const char *text, int indent, int column, int width)
{
	int used = indent + jm_text_width(name);

	fprintf(out, "%*s%s", indent, "", name);
	if (used >= column) {
		fputc('\n', out);
		used = 0;
	}
	fprintf(out, "%*s", column - used, "");
	jm_text_wrap_on(out, text, column, column, width);
}

/* Decimal place of that significant digit of a value that is not 0; negative for tens. */
static int place_of_digit(double value, int digit)
{
	return digit - 1 - (int)floor(log10(fabs(value)));
}

/* Decimals that show `digits` significant digits of the value; 0 for large ones. */
static int decimals_for(double value, int digits)
{
	int places;

	if (!(fabs(value) > 0) || !isfinite(value))
		return 0;
	places = place_of_digit(value, digits);
	return places < 0 ? 0 : places;
}

/* Decimals of the half width's last digit that counts, negative for tens: two digits below 35, else
 * one. */
static int last_place(double half_width)
{
	int exponent = (int)floor(log10(half_width));
	double lead = half_width / pow(10, exponent - 1);

	return lead < LEAD_OF_TWO ? 1 - exponent : -exponent;
}

static double round_to(double value, int places)
{
	double unit = pow(10, -places);

	return round(value / unit) * unit;
}

/* The digits at `c`, part of a longer text from `from` on: how many of an integer part, 0 of
 * decimals and names ("H100"). */
static size_t integer_digits(const char *from, const char *c)
{
	if (c > from && (c[-1] == '.' || isalnum((unsigned char)c[-1])))
		return 0;
	return strspn(c, DIGITS);
}

static void group_digits(char *text, size_t size, size_t least)
{
	char from[200], *to = text;
	size_t n;

	snprintf(from, sizeof(from), "%s", text);
	for (const char *c = from; *c; c += n) {
		bool grouped = integer_digits(from, c) >= least;

		n = strspn(c, DIGITS);
		n = n ? n : 1;
		for (size_t i = 0; i < n && (size_t)(to - text) + 2 < size; i++) {
			if (i && grouped && (n - i) % 3 == 0)
				*to++ = ',';
			*to++ = c[i];
		}
	}
	*to = '\0';
}

void jm_text_apart(char *text, size_t size)
{
	size_t most = 0;

	for (const char *c = text; *c; c++) {
		size_t n = integer_digits(text, c);

		most = n > most ? n : most;
	}
	if (most >= DIGITS_APART)
		jm_text_apart_all(text, size);
}

void jm_text_apart_all(char *text, size_t size)
{
	group_digits(text, size, DIGITS_APART - 1);
}

void jm_text_together(char *text)
{
	char *to = text;
	bool digit = false;

	for (const char *c = text; *c; c++) {
		if (*c == ',' && digit && strspn(c + 1, DIGITS) == 3)
			continue;
		digit = isdigit((unsigned char)*c);
		*to++ = *c;
	}
	*to = '\0';
}

bool jm_text_is_apart(const char *text)
{
	for (const char *c = strchr(text, ','); c; c = strchr(c + 1, ','))
		if (c > text && isdigit((unsigned char)c[-1]) && strspn(c + 1, DIGITS) == 3)
			return true;
	return false;
}

void jm_text_estimate(double mean, double half_width, char *out, size_t size)
{
	jm_text_estimate_to(PLACES_AT_MOST + DIGITS_AT_MOST, mean, half_width, out, size);
}

static bool has_doubt(double mean, double half_width)
{
	return half_width > NOISE * fabs(mean) && half_width < LARGE;
}

/* Numbers that are not written with decimals at all. */
static bool is_scientific(double mean)
{
	return fabs(mean) >= LARGE ||
	       decimals_for(mean, DIGITS_AT_MOST) > PLACES_AT_MOST + DIGITS_AT_MOST;
}

int jm_text_places(int at_most, double mean, double half_width)
{
	int places, most = decimals_for(mean, DIGITS_AT_MOST);

	if (!isfinite(mean) || is_scientific(mean) || !has_doubt(mean, half_width))
		return JM_NO_PLACES;
	places = last_place(half_width);
	if (fabs(mean) > 0 && places > most)
		places = most;
	if (half_width > fabs(mean) && fabs(mean) > 0 && places < place_of_digit(mean, 2))
		places = place_of_digit(mean, 2); /* or nothing of the mean would be left */
	return places < at_most ? places : at_most;
}

/* Without a minus before a zero. */
static double shown_as(double value, int places)
{
	double rounded = round_to(value, places);

	return rounded == 0 ? 0 : rounded;
}

void jm_text_estimate_at(int places, double mean, double half_width, char *out, size_t size)
{
	int decimals = places > 0 ? places : 0;
	double shown = round_to(half_width, places);

	if (!isfinite(mean)) {
		snprintf(out, size, "-");
		return;
	}
	if (!has_doubt(mean, half_width)) {
		snprintf(out, size, "%.*f", decimals, shown_as(mean, decimals));
	} else {
		if (!(shown > 0))
			shown = pow(10, -places);
		snprintf(out, size, "%.*f ± %.*f", decimals, shown_as(mean, places), decimals,
			shown);
	}
	jm_text_apart(out, size);
}

void jm_text_estimate_to(int at_most, double mean, double half_width, char *out, size_t size)
{
	int places = jm_text_places(at_most, mean, half_width);

	if (!isfinite(mean)) {
		snprintf(out, size, "-");
		return;
	}
	if (is_scientific(mean)) {
		snprintf(out, size, "%.4g", mean);
		return;
	}
	if (places == JM_NO_PLACES) {
		places = mean == 0 ? 1 : decimals_for(mean, DIGITS_PLAIN);
		places = places < at_most ? places : at_most;
	}
	jm_text_estimate_at(places, mean, half_width, out, size);
}

const char *jm_text_plural(const char *unit)
{
	size_t n = strlen(unit);

	return n && unit[n - 1] >= 'A' && unit[n - 1] <= 'Z' ? "" : "s";
}

static bool takes_prefix(const char *unit, double value)
{
	return (*unit == 'J' || !strncmp(unit, "Wh", 2)) && fabs(value) > 0;
}

/* Longer times are in seconds. */
static bool is_short_time(const char *unit, double value)
{
	return *unit == 's' && (!unit[1] || unit[1] == '/') && fabs(value) > 0 && fabs(value) < 1;
}

double jm_text_prefix(const char *unit, double value, const char **ret_prefix)
{
	static const struct {
		const char *prefix;
		double factor;
	} rows[] = {{"M", 1e6}, {"k", 1e3}, {"", 1}, {"m", 1e-3}, {"µ", 1e-6}, {"n", 1e-9},
		{"p", 1e-12}, {"f", 1e-15}};
	size_t n = sizeof(rows) / sizeof(rows[0]);

	*ret_prefix = "";
	if (!takes_prefix(unit, value) && !is_short_time(unit, value))
		return 1;
	for (size_t i = 0; i < n; i++)
		if (fabs(value) >= rows[i].factor || i + 1 == n) {
			*ret_prefix = rows[i].prefix;
			return rows[i].factor;
		}
	return 1;
}

/* The prefix that leaves one to five digits before the point; a smaller value keeps the smallest
 * prefix. */
static double plain_prefix(const char *unit, double value, const char **ret_prefix)
{
	static const struct {
		const char *prefix;
		double factor, from;
	} rows[] = {{"G", 1e9, 1e11}, {"M", 1e6, 1e8}, {"k", 1e3, 1e5}, {"", 1, 0.1},
		{"m", 1e-3, 1e-4}, {"µ", 1e-6, 0}};
	size_t i = 0;

	*ret_prefix = "";
	if (!takes_prefix(unit, value))
		return 1;
	while (!(fabs(value) >= rows[i].from))
		i++;
	*ret_prefix = rows[i].prefix;
	return rows[i].factor;
}

void jm_text_quantity(double value, double error, const char *unit, char *out, size_t size)
{
	const char *prefix;
	double factor = plain_prefix(unit, value, &prefix), bound = error / factor;
	int places;

	value /= factor;
	if (isnan(value)) {
		snprintf(out, size, "unknown");
	} else if (!(bound > NOISE * fabs(value)) || !isfinite(bound)) {
		places = decimals_for(value, DIGITS_PLAIN);
		snprintf(out, size, "%.*f%s%s%s", places < PLACES_AT_MOST ? places : PLACES_AT_MOST,
			value, *unit ? " " : "", prefix, unit);
	} else {
		places = decimals_for(bound, 2);
		if (places > decimals_for(value, DIGITS_AT_MOST))
			places = decimals_for(value, DIGITS_AT_MOST);
		snprintf(out, size, "%.*f %s%s ± %.*f %s%s", places, value, prefix, unit, places,
			fmax(bound, pow(10, -places)), prefix, unit);
	}
	jm_text_apart(out, size);
}
