/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and ranges of values. */
#include "value_list.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits, a sign, a point, an exponent: strtod would also take words and hexadecimals. */
static const char *read_number(const char *s, double *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s) && *s != '-' && *s != '.')
		return NULL;
	*ret = strtod(s, &end);
	if (end == s || strspn(s, "+-.0123456789eE") < (size_t)(end - s) || !isfinite(*ret))
		return NULL;
	return end;
}

static const char *skip_unit(const char *s)
{
	while (isalpha((unsigned char)*s))
		s++;
	return s;
}

/* "16:64+16": the first two numbers may carry the unit as well. */
static bool read_range(const char *text, struct jm_value_range *r)
{
	const char *s = read_number(text, &r->first);

	if (!s || *(s = skip_unit(s)) != ':')
		return false;
	s = read_number(s + 1, &r->last);
	if (!s || (*(s = skip_unit(s)) != '+' && *s != '*'))
		return false;
	r->factor = *s == '*';
	r->unit = read_number(s + 1, &r->step);
	return r->unit && !*skip_unit(r->unit);
}

static double count(const struct jm_value_range *r)
{
	if (r->factor)
		return floor(log(r->last / r->first) / log(r->step) + 1e-9) + 1;
	return floor((r->last - r->first) / r->step + 1e-9) + 1;
}

int jm_value_range(const char *text, struct jm_value_range *ret, struct jm_err *err)
{
	struct jm_value_range r;
	double n;

	if (!read_range(text, &r))
		return 1;
	if (r.last < r.first || (r.factor ? !(r.step > 1) || !(r.first > 0) : !(r.step > 0)))
		return jm_err_set(err, JM_EUSAGE,
			"The range '%.80s' must go up, in steps above 0 (16:64+16) or by a factor "
			"above 1 (16:4096*2).",
			text);
	n = count(&r);
	if (!(n <= JM_VALUES_MOST))
		return jm_err_set(err, JM_ERANGE,
			"The range '%.80s' is more than %d values; take a larger step.", text,
			JM_VALUES_MOST);
	r.n = (int)n;
	*ret = r;
	return 0;
}

void jm_value_of_range(const struct jm_value_range *r, int i, char *out, size_t size)
{
	double value = r->factor ? r->first * pow(r->step, i) : r->first + i * r->step;

	snprintf(out, size, "%.12g%s", value, r->unit);
}

static int each(const char *part, bool ranges, jm_value_fn *fn, void *arg, struct jm_err *err)
{
	struct jm_value_range r;
	char text[64];
	int rc = ranges ? jm_value_range(part, &r, err) : 1;

	if (rc > 0)
		return fn(arg, part, err);
	for (int i = 0; !rc && i < r.n; i++) {
		jm_value_of_range(&r, i, text, sizeof(text));
		rc = fn(arg, text, err);
	}
	return rc;
}

int jm_value_list(const char *text, bool ranges, jm_value_fn *fn, void *arg, struct jm_err *err)
{
	char *copy = strdup(text), *rest = copy, *part;
	int rc = copy ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a list of values.");

	while (!rc && (part = strsep(&rest, ",")))
		rc = each(part, ranges, fn, arg, err);
	free(copy);
	return rc;
}
