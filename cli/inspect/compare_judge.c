/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions of `compare --fail-if`, and the exit status that they lead to. */
#include "compare_judge.h"
#include "base/text/number.h"

#include <math.h>
#include <string.h>

static int parse_condition(const char *text, struct jm_condition *ret, struct jm_err *err)
{
	size_t n = strcspn(text, "<>"), digits;
	char number[32];
	double percent;
	int metric = 0;

	while (jm_compared_names[metric] &&
		(strlen(jm_compared_names[metric]) != n ||
			strncmp(jm_compared_names[metric], text, n) != 0))
		metric++;
	if (text[n])
		snprintf(number, sizeof(number), "%s", text + n + 1 + (text[n + 1] == '+'));
	digits = text[n] ? strlen(number) : 0;
	if (!jm_compared_names[metric] || !digits || number[digits - 1] != '%')
		goto wrong;
	number[digits - 1] = '\0';
	if (!jm_number_real(number, &percent) || !(percent > -100) || !(percent < 1e6))
		goto wrong;
	*ret = (struct jm_condition){
		text, (enum jm_compared)metric, text[n] == '>', 1 + percent / 100};
	return 0;
wrong:
	return jm_err_set(err, JM_EUSAGE,
		"--fail-if takes time, power, energy or cost, > or <, and a change of B against A "
		"in "
		"percent, such as 'energy>+2%%'; '%s' is not valid.",
		text);
}

int jm_conditions_parse(char *text, struct jm_conditions *ret, struct jm_err *err)
{
	char *one, *rest = text;
	int rc = 0;

	while (!rc && rest && (one = strsep(&rest, ","))) {
		if (ret->n == JM_CONDITIONS_MAX)
			return jm_err_set(err, JM_EUSAGE, "--fail-if takes at most %d conditions.",
				JM_CONDITIONS_MAX);
		rc = parse_condition(one, &ret->c[ret->n++], err);
	}
	return rc;
}

/* 1 = met, 0 = not met, -1 = cannot be decided. */
static int judge(const struct jm_condition *c, const struct jm_compare_line *l, bool by_estimate)
{
	double edge = c->above ? l->c.low : l->c.high;

	if (by_estimate)
		edge = l->c.ratio;
	/* by the estimate one run is enough, but nothing else that hinders a conclusion is
	 * waived */
	if (isnan(edge) || l->hard)
		return -1;
	return c->above ? edge > c->ratio : edge < c->ratio;
}

int jm_compare_worse(int status, int other)
{
	static const int order[] = {JM_COMPARE_MET, JM_COMPARE_DAMAGED, JM_COMPARE_UNDECIDED};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (status == order[i] || other == order[i])
			return order[i];
	return 0;
}

int jm_conditions_judge(const struct jm_conditions *conditions, const char *title,
	const struct jm_compare_line *line)
{
	int status = 0;

	for (int i = 0; i < conditions->n; i++) {
		const struct jm_condition *c = &conditions->c[i];
		int met = judge(c, &line[c->metric], conditions->by_estimate);

		if (!met)
			continue;
		fprintf(stderr, "joulemark: %s: '%s' %s.\n", title, c->text,
			met > 0 ? "is met" : "cannot be decided");
		status = jm_compare_worse(status, met > 0 ? JM_COMPARE_MET : JM_COMPARE_UNDECIDED);
	}
	return status;
}
