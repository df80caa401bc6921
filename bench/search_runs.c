/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner's search for two knobs that cannot be moved while work runs, so that each visit is a
 * run of its own: search_runs OBJECTIVE WITHIN_S MIN MAX STEP FOUND MIN MAX STEP FOUND. Writes the
 * setting of the next visit, two numbers, and reads "seconds items joules wall_seconds" of it; in
 * the end it writes "held" and the setting. For bench/soft_tuner.py.
 */
#include "tune/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void say(const struct jm_search_options *o, struct jm_tune_setting s)
{
	for (int k = 0; k < o->n; k++)
		printf("%g%s", s.found ? o->knob[k].found : s.value[k], k ? "\n" : " ");
	fflush(stdout);
}

/* JM_EUSAGE: what it read is no visit. */
static int visit(struct jm_search *s, const struct jm_search_options *o, struct jm_err *err)
{
	struct jm_visit v = {0};

	say(o, jm_search_next(s));
	if (scanf("%lf %lf %lf %lf", &v.seconds, &v.items, &v.joules, &v.wall_s) != 4)
		return jm_err_set(err, JM_EUSAGE, "A visit is four numbers.");
	return jm_search_add(s, &v, err);
}

static int search(char **argv, struct jm_search_options *o, struct jm_err *err)
{
	struct jm_search_result r;
	struct jm_search *s = NULL;
	int rc = jm_objective_parse(argv[1], &o->objective, err);

	if (!rc)
		rc = jm_search_new(o, &s, err);
	while (!rc && jm_search_stage(s) != JM_STAGE_HOLD)
		rc = visit(s, o, err);
	if (!rc) {
		jm_search_result(s, &r);
		printf("held ");
		say(o, r.best);
	}
	jm_search_free(s);
	return rc;
}

int main(int argc, char **argv)
{
	struct jm_search_options o = {.n = JM_TUNE_KNOBS, .limit_watts = NAN};
	struct jm_err err = JM_ERR_INIT;

	if (argc != 3 + 4 * JM_TUNE_KNOBS) {
		fprintf(stderr, "search_runs: see the comment at the top of its source\n");
		return 2;
	}
	o.within_s = strtod(argv[2], NULL);
	for (int k = 0; k < JM_TUNE_KNOBS; k++) {
		char **a = argv + 3 + 4 * k;

		o.knob[k] = (struct jm_search_range){.min = strtod(a[0], NULL),
			.max = strtod(a[1], NULL),
			.step = strtod(a[2], NULL),
			.found = strtod(a[3], NULL)};
	}
	if (!search(argv, &o, &err))
		return 0;
	fprintf(stderr, "search_runs: %s\n", err.text);
	return 1;
}
