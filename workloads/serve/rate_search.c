/* SPDX-License-Identifier: Apache-2.0 */
#include "rate_search.h"

#include <math.h>

#define NEAR   1.05 /* the lowest rate that breaks the bounds by the highest that keeps them */
#define TRIALS 24   /* at most */
#define IDLE   0.02 /* requests under way on average: with fewer there is no queue */
#define BOUNDS                                                                                     \
	20 /* a trial lasts this many times --ttft at least: a queue that grows by 5 % of it exceeds the bound */
#define ALONE	4    /* without --ttft, this many times a request that is alone */
#define MOST	1e6  /* requests of a trial, at most */
#define LOWER	12   /* trials as long as the run, each at a rate that is lower by NEAR, at most */
#define ALLOWED 0.01 /* of the requests may be beyond a bound */

static const struct jm_answers *answers_of(const struct jm_rate_server *s)
{
	return s->gang ? s->gang->answers : &s->load->answers;
}

static bool judges(const struct jm_rate_server *s)
{
	return !s->gang || !s->gang->rank;
}

/* So many more than the 99th percentile allows are late that the rest of a trial cannot change its
 * end. */
static double allowed(const struct jm_rate_server *s)
{
	return ALLOWED * s->load->most + 1;
}

static bool is_lost(const struct jm_rate_server *s)
{
	int64_t now = jm_clock_now(s->clock);

	return s->gang ? s->gang->is_lost(s->arg)
		       : jm_late_most(jm_answers_late(&s->load->answers, now)) > allowed(s);
}

static bool is_over(const struct jm_rate_server *s)
{
	const struct jm_load *l = s->load;

	if (s->gang)
		return s->gang->is_over(s->arg, allowed(s));
	return is_lost(s) || (l->answers.n >= l->most && !s->unfinished(s->arg));
}

/* Answers the first `most` requests of the load. */
static int run(const struct jm_rate_server *s, double rate, int most, struct jm_err *err)
{
	int code = s->restart(s->arg, err);

	if (code)
		return code;
	jm_load_restart(s->load, rate, most);
	while (!code && !is_over(s))
		code = s->step(s->arg, err);
	return code || !s->gang ? code : s->gang->gather(s->arg, err);
}

static int share(const struct jm_rate_server *s, void *value, size_t bytes, struct jm_err *err)
{
	return s->gang ? s->gang->share(s->arg, value, bytes, err) : 0;
}

/* Of a request that is alone, and what follows from it. */
struct of_one {
	double latency;	    /* s */
	double best, least; /* requests per second if --running ones took no longer; if nearly all
			       were alone */
};

static int requests_of_trial(const struct jm_rate_server *s, const struct of_one *one, double rate)
{
	double ttft = s->load->answers.ttft;
	double least = ceil(rate * (isnan(ttft) ? ALONE * one->latency : BOUNDS * ttft));

	return least > s->load->trial ? (int)fmin(least, MOST) : s->load->trial;
}

static double seconds_of_run(const struct jm_rate_server *s)
{
	return s->warm_s + s->steady_s;
}

static int requests_of_run(const struct jm_rate_server *s, double rate)
{
	struct jm_arrivals a = s->load->arrivals;

	jm_arrivals_restart(&a, rate);
	jm_arrivals_plan(&a);
	while (a.at_s < seconds_of_run(s) && a.next < MOST) {
		a.next++;
		jm_arrivals_plan(&a);
	}
	return a.next;
}

/* Those of the whole trial, and those of the window that a run of these requests has. */
static bool keep_bounds(const struct jm_rate_server *s)
{
	struct jm_answers a = *answers_of(s);

	if (jm_answers_keep_bounds(&a) != 1)
		return false;
	jm_answers_find_window(
		&a, a.answer[0].arrived + (isnan(s->warm_s) ? 0 : llround(s->warm_s * 1e9)));
	return jm_answers_keep_bounds(&a) != 0;
}

/* Did they arrive more than twice as fast as they were answered? Without --ttft requests that wait
 * break no bound, and so does no higher rate. */
static bool is_beyond(const struct jm_rate_server *s)
{
	const struct jm_answers *a = answers_of(s);
	int64_t begin = a->answer[0].arrived, arrived = begin, end = begin;

	for (int i = 0; i < a->n; i++) {
		arrived = jm_later(arrived, a->answer[i].arrived);
		end = jm_later(end, a->answer[i].end);
	}
	return isnan(a->ttft) && end - begin > 2 * (arrived - begin);
}

enum { BROKEN, KEPT, KEPT_BEYOND }; /* beyond what is answered: is_beyond */

/* Do so many requests keep the bounds? One of the above, or an error. */
static int try_rate(const struct jm_rate_server *s, double rate, int most, struct jm_err *err)
{
	int code = run(s, rate, most, err), kept = 0;

	if (!code && judges(s))
		kept = !is_lost(s) && keep_bounds(s) ? KEPT + is_beyond(s) : BROKEN;
	if (!code)
		code = share(s, &kept, sizeof(kept), err);
	if (code)
		return code < 0 ? code : JM_EIO;
	return kept;
}

/* A request that is alone has the shortest times. */
static int check_alone(const struct jm_rate_server *s, struct jm_err *err)
{
	const struct jm_answers *a = &s->load->answers;
	const struct jm_answer *one = &answers_of(s)->answer[0];
	const char *failure = s->failure;

	if (one->state != JM_ANSWER_DONE)
		return jm_err_set(err, JM_EIO, "The first request of --rate max failed%s%s.",
			failure ? ": " : "", failure ? failure : "");
	if (!isnan(a->tpot) && one->output > 1 && isnan(jm_answer_tpot(one)))
		return jm_err_set(err, JM_ERANGE,
			"--tpot cannot be judged, because the server sends an answer in one event; "
			"omit --tpot, or let the server send each token.");
	if (jm_answer_ttft(one) > a->ttft)
		return jm_err_set(err, JM_ERANGE,
			"No rate keeps --ttft: a request alone has its first token after %.3g s; "
			"give a larger bound or shorter prompts.",
			jm_answer_ttft(one));
	if (jm_answer_tpot(one) > a->tpot)
		return jm_err_set(err, JM_ERANGE,
			"No rate keeps --tpot: a request alone has each further token after %.3g "
			"s; give a larger bound.",
			jm_answer_tpot(one));
	return 0;
}

static int answer_alone(const struct jm_rate_server *s, struct of_one *ret, struct jm_err *err)
{
	struct jm_answers *a = &s->load->answers;
	double ttft = a->ttft, tpot = a->tpot, latency;
	int code = 0;

	a->ttft = a->tpot = NAN;	     /* however long it takes */
	for (int i = 0; i < 2 && !code; i++) /* the first may load code */
		code = run(s, 1e6, 1, err);
	a->ttft = ttft;
	a->tpot = tpot;
	if (!code && judges(s)) {
		code = check_alone(s, err);
		latency = jm_answer_latency(&answers_of(s)->answer[0]);
		*ret = (struct of_one){latency, answers_of(s)->running / latency, IDLE / latency};
	}
	return code ? code : share(s, ret, sizeof(*ret), err);
}

/* The next rate between one that keeps the bounds (0 = none yet) and one that breaks them (INFINITY
 * = none yet). */
static double next_rate(double kept, double broken)
{
	if (kept <= 0)
		return broken / 2;
	return isinf(broken) ? 2 * kept : sqrt(kept * broken);
}

/* Few requests do not show a queue that grows slowly. */
static int confirm(const struct jm_rate_server *s, const struct of_one *one, struct jm_err *err)
{
	struct jm_rate_found *found = &s->load->found;
	int most = isnan(seconds_of_run(s)) ? -1 : requests_of_run(s, found->kept), kept;

	found->confirmed = most < 0 ? -1 : most <= requests_of_trial(s, one, found->kept);
	for (int i = 0; i < LOWER && !found->confirmed && found->kept >= one->least; i++) {
		kept = try_rate(s, found->kept, requests_of_run(s, found->kept), err);
		if (kept < 0)
			return kept;
		found->trials++;
		found->confirmed = kept != BROKEN;
		if (!kept) {
			found->broken = found->kept;
			found->kept /= NEAR;
		}
	}
	return 0;
}

static const char *bounds_of(const struct jm_answers *a)
{
	if (isnan(a->tpot))
		return "--ttft";
	return isnan(a->ttft) ? "--tpot" : "--ttft and --tpot";
}

int jm_rate_search(const struct jm_rate_server *s, struct jm_err *err)
{
	struct jm_rate_found *found = &s->load->found;
	struct of_one one = {0};
	int code = answer_alone(s, &one, err);
	double rate = one.best;

	*found = (struct jm_rate_found){.kept = 0, .broken = INFINITY};
	while (!code && found->trials < TRIALS && rate >= one.least && !found->beyond &&
		!(found->broken <= NEAR * found->kept)) {
		int kept = try_rate(s, rate, requests_of_trial(s, &one, rate), err);

		if (kept < 0)
			return kept;
		*(kept ? &found->kept : &found->broken) = rate;
		found->beyond = kept == KEPT_BEYOND && isinf(found->broken);
		found->trials++;
		rate = next_rate(found->kept, found->broken);
	}
	if (!code && found->kept <= 0)
		code = jm_err_set(err, JM_ERANGE,
			"No rate down to %.4g requests per second keeps %s; give larger bounds, "
			"shorter requests or fewer --running.",
			found->broken, bounds_of(&s->load->answers));
	if (!code)
		code = confirm(s, &one, err);
	if (!code)
		code = s->restart(s->arg, err);
	if (!code)
		jm_load_restart(s->load, found->kept, 0);
	return code;
}
