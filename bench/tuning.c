/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How good the tuner, the budget and the policy over phases are on simulated devices whose truth is
 * known, 100 seeds of noise each: one line of JSON for each ratio. bench/tuning.py prints them
 * beside their aims.
 */
#include <math.h>
#include <stdio.h>

#include "../tests/kit/budget_node.h"
#include "../tests/kit/phase_mix.h"
#include "../tests/kit/search_worlds.h"

#define SEEDS  100
#define VISITS 400 /* of a budget: about 15 minutes */

/* What came of the seeds of one ratio. */
struct seeds {
	int n, good;
	double worst, sum;
};

/* most: the ratio has to be at most, else at least, the aim. */
static void count(struct seeds *s, double ratio, double aim, bool most)
{
	s->worst = !s->n ? ratio : most ? fmax(s->worst, ratio) : fmin(s->worst, ratio);
	s->good += most ? ratio <= aim : ratio >= aim;
	s->sum += ratio;
	s->n++;
}

static void print(
	const struct seeds *s, const char *ratio, const char *where, double aim, bool most)
{
	printf("{\"ratio\": \"%s\", \"where\": \"%s\", \"aim\": %g, \"most\": %s, \"seeds\": %d, "
	       "\"good\": %d, \"worst\": %.4f, \"mean\": %.4f}\n",
		ratio, where, aim, most ? "true" : "false", s->n, s->good, s->worst, s->sum / s->n);
}

/* ---- one knob -------------------------------------------------------------------------------- */

static int search(const struct search_world *w, const char *name, struct jm_err *err)
{
	struct seeds best = {0}, found = {0}, share = {0};
	struct search_outcome out;
	struct jm_objective o;
	char where[80];
	int rc = jm_objective_parse(name, &o, err);

	for (uint64_t seed = 1; !rc && seed <= SEEDS; seed++) {
		rc = search_world_tune(w, &o, SEARCH_JOB_S, seed, &out, err);
		count(&best, out.to_best, 1.03, true);
		count(&found, out.to_default, 1.01, true);
		count(&share, out.first_search_s / SEARCH_JOB_S, 0.10, true);
	}
	snprintf(where, sizeof(where), "%s, %s", w->name, name);
	print(&best, "tuned / best of a full sweep", where, 1.03, true);
	print(&found, "tuned / default", where, 1.01, true);
	print(&share, "search / a job of 10 minutes", where, 0.10, true);
	return rc;
}

static int searches(struct jm_err *err)
{
	static const char *const names[] = {"energy", "edp", "eds:2", "zeus:0.5"};
	int rc = 0;

	for (const struct search_world *w = search_worlds; w->name && !rc; w++)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !rc; i++)
			rc = w->noise > 0 ? search(w, names[i], err) : 0;
	return rc;
}

/* ---- a budget -------------------------------------------------------------------------------- */

static int share(bool together, double watts, uint64_t seed, double *ret_ratio, struct jm_err *err)
{
	struct jm_budget_options o = {.watts = watts, .share = JM_SHARE_MARGINAL, .n = BUDGET_GPUS};
	struct budget_node n = budget_node_of(together, seed);
	struct jm_budget_result r;
	struct jm_budget *b = NULL;
	int rc;

	for (int i = 0; i < BUDGET_GPUS; i++)
		o.device[i] = (struct jm_budget_device){200, 700, 1};
	rc = jm_budget_new(&o, &b, err);
	for (int i = 0; i < VISITS && !rc; i++) {
		struct jm_budget_visit v = budget_node_visit(&n, jm_budget_next(b));

		rc = jm_budget_add(b, &v, err);
	}
	if (rc)
		return rc;
	jm_budget_result(b, &r);
	jm_budget_free(b);
	*ret_ratio = budget_node_rate(&n, r.limit) / budget_node_best(&n, watts);
	return 0;
}

static int budgets(struct jm_err *err)
{
	char where[80];
	double ratio = NAN;
	int rc = 0;

	for (int k = 0; k < 6 && !rc; k++) {
		double watts = 2400 + 800 * (k / 2);
		struct seeds s = {0};

		for (uint64_t seed = 1; !rc && seed <= SEEDS; seed++) {
			rc = share(k % 2, watts, seed, &ratio, err);
			count(&s, ratio, 0.97, false);
		}
		snprintf(where, sizeof(where), "%g W, %s", watts,
			k % 2 ? "all wait for the slowest" : "each alone");
		print(&s, "throughput under a budget / best static split", where, 0.97, false);
	}
	return rc;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static int phases(const char *objective, struct jm_err *err)
{
	struct phase_mix t = phase_mix_of();
	struct jm_phase_search *s;
	double joules, seconds, cap[PHASE_MIX_PHASES];
	struct seeds all = {0};
	int rc = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		rc = phase_mix_search(objective, &s, err);
		if (rc)
			return rc;
		phase_mix_work(s, &t, PHASE_MIX_NOISE, seed, 100);
		phase_mix_chosen(s, cap);
		phase_mix_cycle(&t, cap, &joules, &seconds);
		count(&all, joules / phase_mix_best_single(&t, seconds), 0.95, true);
		jm_phase_search_free(s);
	}
	print(&all, "energy per phase / best single cap at equal time", objective, 0.95, true);
	return 0;
}

int main(void)
{
	struct jm_err err = JM_ERR_INIT;
	int rc = searches(&err);

	rc = rc ? rc : budgets(&err);
	rc = rc ? rc : phases("slowdown:2%", &err);
	rc = rc ? rc : phases("slowdown:5%", &err);
	if (rc)
		fprintf(stderr, "tuning: %s\n", err.text);
	return rc ? 1 : 0;
}
