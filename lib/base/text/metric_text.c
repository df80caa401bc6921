/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text/metric_text.h"

#include "base/printable.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
	const char *at;
	size_t n;
};

/* A name and its labels; rest: what follows. */
struct series {
	struct word name, labels; /* labels: what is between the braces */
	const char *rest;
};

static bool equal(struct word a, struct word b)
{
	return a.n == b.n && !memcmp(a.at, b.at, a.n);
}

static size_t name_length(const char *text)
{
	return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:.");
}

/* The text from a quote to the next one that no backslash precedes, without both; false: there is
 * none in this line. */
static bool take_quoted(const char **at, struct word *ret)
{
	const char *from = *at + 1, *to = from;

	if (**at != '"')
		return false;
	while (*to && *to != '"' && *to != '\n')
		to += to[0] == '\\' && to[1] && to[1] != '\n' ? 2 : 1;
	if (*to != '"')
		return false;
	*ret = (struct word){from, (size_t)(to - from)};
	*at = to + 1;
	return true;
}

/* label="value" and what separates it from the next one; *at: then at the next label, or at the
 * closing brace. */
static bool take_label(const char **at, struct word *name, struct word *value)
{
	const char *p = *at + strspn(*at, " \t");

	*name = (struct word){p, name_length(p)};
	p += name->n;
	p += strspn(p, " \t");
	if (!name->n || *p != '=')
		return false;
	p += 1 + strspn(p + 1, " \t");
	if (!take_quoted(&p, value))
		return false;
	p += strspn(p, " \t");
	p += *p == ',';
	*at = p + strspn(p, " \t");
	return true;
}

static bool read_series(const char *line, struct series *ret)
{
	struct word name, value;
	const char *p = line;

	ret->name = (struct word){p, name_length(p)};
	p += ret->name.n;
	ret->labels = (struct word){p, 0};
	if (*p == '{') {
		ret->labels.at = ++p;
		p += strspn(p, " \t");
		while (*p != '}')
			if (!take_label(&p, &name, &value))
				return false;
		ret->labels.n = (size_t)(p++ - ret->labels.at);
	}
	ret->rest = p;
	return ret->name.n > 0;
}

int jm_metric_selector_check(const char *selector, struct jm_err *err)
{
	struct series s;

	if (read_series(selector, &s) && !*s.rest)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--items-metric takes the name of a counter, such as vllm:generation_tokens_total, "
		"or "
		"NAME{label=\"value\"}, not '%.200s'.",
		selector);
}

/* Are all labels of the selector among those of the sample? */
static bool has_labels(const struct series *wanted, const struct series *sample)
{
	const char *end = wanted->labels.at + wanted->labels.n;
	struct word name, value, its_name, its_value;

	for (const char *p = wanted->labels.at; p < end && take_label(&p, &name, &value);) {
		const char *last = sample->labels.at + sample->labels.n;
		bool found = false;

		for (const char *q = sample->labels.at;
			q < last && !found && take_label(&q, &its_name, &its_value);)
			found = equal(name, its_name) && equal(value, its_value);
		if (!found)
			return false;
	}
	return true;
}

/* Behind the end of the line. */
static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return line + (*line == '\n');
}

int jm_metric_text_sum(const char *text, const char *selector, double *ret_sum)
{
	struct series wanted, sample;
	double sum = 0;
	int n = 0;

	if (!read_series(selector, &wanted))
		return 0;
	for (const char *line = text; *line; line = next_line(line)) {
		double value;
		char *end;

		if (!read_series(line, &sample) || !equal(sample.name, wanted.name) ||
			!strchr(" \t", *sample.rest) || !has_labels(&wanted, &sample))
			continue;
		sample.rest += strspn(sample.rest, " \t");
		value = strtod(sample.rest, &end);
		sum += end > sample.rest && isfinite(value) ? value : NAN;
		n++;
	}
	*ret_sum = sum;
	return n;
}

void jm_metric_text_counters(const char *text, char *out, size_t size)
{
	static const char suffix[] = "_total";
	struct word before = {"", 0};
	size_t n = 0;

	*out = '\0';
	for (const char *line = text; *line; line = next_line(line)) {
		struct word name = {line, name_length(line)};

		if (name.n < sizeof(suffix) || equal(name, before) ||
			strncmp(line + name.n - strlen(suffix), suffix, strlen(suffix)) != 0)
			continue;
		before = name;
		if (n + name.n + 3 > size)
			break;
		n += (size_t)snprintf(
			out + n, size - n, "%s%.*s", n ? ", " : "", (int)name.n, line);
	}
	jm_text_tame(out);
}
