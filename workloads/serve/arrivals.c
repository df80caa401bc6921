/* SPDX-License-Identifier: Apache-2.0 */
#include "arrivals.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/csv_fields.h"
#include "engine/graph/rng.h"

#define COLUMNS	    3
#define MOST_TOKENS 1000000
#define MOST_S	    1e8 /* an arrival in nanoseconds, some rounds later, is an int64_t */
#define OF_INPUT    0	/* counters of a request's random numbers; those of its prompt begin at 2 */
#define OF_OUTPUT   1
#define OF_GAP	    UINT64_MAX

/* The number of tokens at the beginning of the text, which moves behind it; 0 = there is none. */
static int tokens_of(const char **text)
{
	char *end;
	long n = isdigit((unsigned char)**text) ? strtol(*text, &end, 10) : 0;

	if (n < 1 || n > MOST_TOKENS)
		return 0;
	*text = end;
	return (int)n;
}

int jm_arrivals_range(const char *text, const char *name, struct range *ret, struct jm_err *err)
{
	const char *rest = text;

	ret->from = ret->to = tokens_of(&rest);
	if (*rest == ':') {
		rest++;
		ret->to = tokens_of(&rest);
	}
	if (ret->from >= 1 && ret->to >= ret->from && !*rest)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--%s is '%s'; give a number of tokens, or the smallest and the largest: 1:1024.",
		name, text);
}

/* ---- a file of lengths ----------------------------------------------------------------------- */

/* The whole text as a number; NAN if it is none. */
static double number_of(const char *text)
{
	char *end;
	double x = strtod(text, &end);

	end += strspn(end, " \t\r\n");
	return end == text || *end ? NAN : x;
}

static bool is_count(double x)
{
	return x >= 1 && x <= MOST_TOKENS && x == floor(x);
}

static bool add_row(struct jm_arrivals *a, struct jm_length row)
{
	struct jm_length *more = a->row;

	if (!(a->n & (a->n - 1))) /* 0 or a power of two: it is full */
		more = realloc(a->row, (a->n ? 2 * (size_t)a->n : 1) * sizeof(*more));
	if (!more)
		return false;
	a->row = more;
	a->row[a->n++] = row;
	return true;
}

static const char *const columns[COLUMNS] = {"input", "output", "arrival_s"};

static int refuse_number(int column, const char *text, struct jm_err *err)
{
	if (column < 2)
		return jm_err_set(err, JM_EFORMAT,
			"has '%.40s' as %s; give a whole number from 1 to %d", text,
			columns[column], MOST_TOKENS);
	return jm_err_set(err, JM_EFORMAT, "has '%.40s' as %s; give a time from 0 to %.0f s", text,
		columns[column], MOST_S);
}

/* Fields of a line that is no heading. */
static int take_row(struct jm_arrivals *a, char *const *field, int n, struct jm_err *err)
{
	double x[COLUMNS] = {0}, before = a->n ? a->row[a->n - 1].at_s : 0;

	if (n != 2 + a->timed)
		return jm_err_set(err, JM_EFORMAT, "has %d field%s; give %s", n, n == 1 ? "" : "s",
			a->timed ? "input,output,arrival_s as in line 1"
				 : "input,output as in line 1");
	for (int i = 0; i < n; i++) {
		x[i] = number_of(field[i]);
		if (i < 2 ? !is_count(x[i]) : !(x[i] >= 0 && x[i] <= MOST_S))
			return refuse_number(i, field[i], err);
	}
	if (x[2] < before)
		return jm_err_set(err, JM_EFORMAT,
			"has '%.40s' as arrival_s, which is before the %g s of the line above it; "
			"put the requests into the order in which they arrive",
			field[2], before);
	if (a->n == INT32_MAX / 2 || !add_row(a, (struct jm_length){(int)x[0], (int)x[1], x[2]}))
		return jm_err_set(err, JM_ENOMEM, "does not fit into memory");
	return 0;
}

static int take_heading(struct jm_arrivals *a, char *const *field, int n, struct jm_err *err)
{
	size_t mark =
		strncmp(field[0], "\xef\xbb\xbf", 3) ? 0 : 3; /* of UTF-8, from a spreadsheet */
	bool good = n == 2 || n == COLUMNS;

	for (int i = 0; i < n && good; i++)
		good = !strcmp(field[i] + (i ? 0 : mark), columns[i]);
	a->timed = n == COLUMNS;
	return good ? 0
		    : jm_err_set(err, JM_EFORMAT, "must be input,output or input,output,arrival_s");
}

static bool is_empty(char *const *field, int n)
{
	return n == 1 && !*field[0];
}

static int read_rows(struct jm_arrivals *a, FILE *f, int *line_number, struct jm_err *err)
{
	char *field[COLUMNS + 1], *line = NULL;
	size_t room = 0;
	int n, code = 0;

	for (*line_number = 1; !code; ++*line_number) {
		n = jm_csv_row(f, &line, &room, field, COLUMNS + 1);
		if (n == 0)
			break;
		if (n < 0)
			code = jm_err_set(err, JM_EFORMAT, "is no line of a table");
		else if (*line_number == 1)
			code = take_heading(a, field, n, err);
		else if (!is_empty(field, n))
			code = take_row(a, field, n, err);
		if (code)
			break;
	}
	free(line);
	return code;
}

/* A step must have room for each of the rows. */
static void find_ranges(struct jm_arrivals *a)
{
	a->input = (struct range){a->row[0].input, a->row[0].input};
	a->output = (struct range){a->row[0].output, a->row[0].output};
	for (int i = 1; i < a->n; i++) {
		const struct jm_length *r = &a->row[i];

		a->input.from = r->input < a->input.from ? r->input : a->input.from;
		a->input.to = r->input > a->input.to ? r->input : a->input.to;
		a->output.from = r->output < a->output.from ? r->output : a->output.from;
		a->output.to = r->output > a->output.to ? r->output : a->output.to;
	}
}

int jm_arrivals_read(struct jm_arrivals *a, const char *path, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int line, code, broken;
	FILE *f = fopen(path, "r");

	if (!f)
		return jm_err_set(err, JM_ENOENT, "The file '%s' of --lengths cannot be read: %s.",
			path, strerror(errno));
	errno = 0;
	code = read_rows(a, f, &line, &why);
	broken = ferror(f) ? errno : 0;
	fclose(f);
	if (broken)
		return jm_err_set(err, JM_EIO, "The file '%s' of --lengths cannot be read: %s.",
			path, strerror(broken));
	if (code)
		return jm_err_set(
			err, code, "Line %d of '%s' (--lengths) %s.", line, path, why.text);
	if (!a->n)
		return jm_err_set(err, JM_EFORMAT,
			"The file '%s' of --lengths has no request; give a line input,output and "
			"one for each request.",
			path);
	find_ranges(a);
	return 0;
}

void jm_arrivals_close(struct jm_arrivals *a)
{
	free(a->row);
}

/* ---- requests -------------------------------------------------------------------------------- */

int jm_arrivals_check(const struct jm_arrivals *a, struct jm_err *err)
{
	bool poisson = a->kind == ARRIVE_POISSON;

	if (poisson == isnan(a->rate))
		return jm_err_set(err, JM_EUSAGE,
			poisson ? "--arrival poisson needs the number of requests per second; give "
				  "--rate."
				: "--rate is of --arrival poisson alone; give both or omit "
				  "--rate.");
	if (a->kind == ARRIVE_FILE && !a->timed)
		return jm_err_set(err, JM_EUSAGE,
			"--arrival file needs --lengths with a third column, arrival_s.");
	if (a->kind == ARRIVE_FILE && a->row[a->n - 1].at_s <= 0)
		return jm_err_set(err, JM_EUSAGE,
			"All requests of --lengths arrive at 0 s; use --arrival all, or give later "
			"times.");
	return 0;
}

static int draw(const struct jm_arrivals *a, const struct range *r, int number, uint64_t what)
{
	uint64_t bits = jm_rng(jm_rng(a->seed, (uint64_t)number), what);

	return r->from + (int)(bits % (uint64_t)(r->to - r->from + 1));
}

void jm_arrivals_length(const struct jm_arrivals *a, int number, int *ret_input, int *ret_output)
{
	if (a->n) {
		*ret_input = a->row[number % a->n].input;
		*ret_output = a->row[number % a->n].output;
		return;
	}
	*ret_input = draw(a, &a->input, number, OF_INPUT);
	*ret_output = draw(a, &a->output, number, OF_OUTPUT);
}

bool jm_arrivals_timed(const struct jm_arrivals *a)
{
	return a->kind == ARRIVE_POISSON || a->kind == ARRIVE_FILE;
}

void jm_arrivals_restart(struct jm_arrivals *a, double rate)
{
	a->rate = rate;
	a->next = 0;
	a->at_s = 0;
}

void jm_arrivals_plan(struct jm_arrivals *a)
{
	uint64_t bits = jm_rng(jm_rng(a->seed, (uint64_t)a->next), OF_GAP);

	if (a->kind == ARRIVE_POISSON) /* 53 bits: from 0 to below 1 */
		a->at_s -= log1p(-(double)(bits >> 11) * 0x1p-53) / a->rate;
	else if (a->kind == ARRIVE_FILE)
		a->at_s = a->row[a->n - 1].at_s * (a->next / a->n) + a->row[a->next % a->n].at_s;
}
