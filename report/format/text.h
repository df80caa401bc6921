/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people: lines of a given width, numbers with as many digits as their interval
 * supports. */
#ifndef JM_REPORT_TEXT_H
#define JM_REPORT_TEXT_H

#include <stdbool.h>
#include <stdio.h>

/* As snprintf, for what others wrote: one line of printable text, "..." where it did not fit. */
void jm_text_format(char *out, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Appends the text, after `between` if `out` is not empty. */
void jm_text_append(char *out, size_t size, const char *between, const char *what);
/* "C (A is the best grade, D the worst)"; without a grade "none: estimated only", by the origin (""
 * = no energy). */
void jm_text_grade(const char *grade, const char *origin, char *out, size_t size);
/* Copies with every @ replaced by the item. */
void jm_text_item(const char *from, const char *item, char *out, size_t size);
/* Columns a text takes on a terminal: code points, all of width one here. */
int jm_text_width(const char *text);
/* Prints the words in lines of at most `width` columns: the first indented by `indent`, the
 * others by `hang`. A longer word gets its own line. */
void jm_text_wrap(FILE *out, const char *text, int indent, int hang, int width);
/* The same on a line of which `column` columns are written already. */
void jm_text_wrap_on(FILE *out, const char *text, int column, int hang, int width);
/* Prints the heading of a table, bold on a terminal. */
void jm_text_title(FILE *out, const char *title, bool bold, int width);
/* Prints a name indented by `indent` and its text from `column` on, on the next line if the name is
 * too long. */
void jm_text_entry(
	FILE *out, const char *name, const char *text, int indent, int column, int width);
/*
 * "2620 ± 120": the first one or two digits of the half width decide which digits of the mean are
 * shown, without decimals beyond its fourth; a half width that rounds to 0 is shown as one of the
 * last place. Four digits where there is no interval; "-" for unknown.
 */
void jm_text_estimate(double mean, double half_width, char *out, size_t size);
/*
 * A comma groups the thousands of numbers from 10,000 on, and from 1,000 on in a text that has such
 * a number: "121,100 ± 1,300", "1300". For people; files for programs (CSV, JSON, metrics) have no
 * commas in numbers.
 */
void jm_text_apart(char *text, size_t size);
/* The same from 1,000 on: of a cell in a column that has larger numbers. */
void jm_text_apart_all(char *text, size_t size);
/* Removes these commas, for a text that a program may read. */
void jm_text_together(char *text);
/* Has the text a number whose thousands are grouped? */
bool jm_text_is_apart(const char *text);
/* With that many decimals at most. */
void jm_text_estimate_to(int at_most, double mean, double half_width, char *out, size_t size);
/* The decimals that the above shows, negative for tens; JM_NO_PLACES: there is no half width. */
#define JM_NO_PLACES (-1000)
int jm_text_places(int at_most, double mean, double half_width);
/* With exactly that many, as of a column whose smallest half width decides. */
void jm_text_estimate_at(int places, double mean, double half_width, char *out, size_t size);
/* "1054 J ± 53 J", "16.12 mJ": both in the unit that fits the value; without a bound (NAN) four
 * digits. */
void jm_text_quantity(double value, double error, const char *unit, char *out, size_t size);
/* What follows the unit of several items: "s" of images, nothing of GB. */
const char *jm_text_plural(const char *unit);
/* A prefix for values of this size in a unit that takes one (J, Wh, s below 1 s): "m" and 1e-3. */
double jm_text_prefix(const char *unit, double value, const char **ret_prefix);
#endif
