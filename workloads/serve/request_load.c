/* SPDX-License-Identifier: Apache-2.0 */
#include "request_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "engine/graph/rng.h"
#include "workloads/parts/work_output.h"

/* counters of a request's random numbers; see arrivals.c */
#define OF_PROMPT 2
#define OF_REST	  UINT64_MAX

const char *const jm_arrival_names[] = {"all", "single", "closed", "poisson", "file", NULL};
const char *const jm_rate_words[] = {"max", NULL};

/* --rate max: until it is found, the rate is any. */
static int check_search(struct jm_load *l, struct jm_err *err)
{
	l->finds_rate = l->rate_given && isnan(l->arrivals.rate); /* by the word */
	if (!l->finds_rate)
		return 0;
	l->arrivals.rate = 1;
	if (isnan(l->answers.ttft) && isnan(l->answers.tpot))
		return jm_err_set(err, JM_EUSAGE,
			"--rate max looks for the highest rate within bounds; give --ttft, --tpot "
			"or both.");
	return 0;
}

int jm_load_open(struct jm_load *l, const struct jm_work *work, bool text, struct jm_err *err)
{
	struct jm_arrivals *a = &l->arrivals;
	int code = jm_arrivals_range(l->input_text, "input-tokens", &a->input, err);

	a->seed = work->seed;
	l->own_prompts = text;
	l->answers.timed = jm_arrivals_timed(a) || a->kind == ARRIVE_SINGLE;
	if (!code)
		code = jm_arrivals_range(l->output_text, "output-tokens", &a->output, err);
	if (!code && l->lengths && text)
		code = jm_err_set(err, JM_EUSAGE,
			"--lengths and --text both say how long prompts are; omit one of them.");
	if (!code && l->lengths)
		code = jm_arrivals_read(a, l->lengths, err);
	if (!code)
		code = check_search(l, err);
	if (!code)
		code = jm_arrivals_check(a, err);
	if (code || !l->csv || work->rank)
		return code;
	code = jm_work_output(work, l->csv, l->csv_name, err);
	return code ? code
		    : jm_work_output_apart(l->csv_name, "requests-csv", l->lengths, "lengths", err);
}

void jm_load_close(struct jm_load *l)
{
	jm_arrivals_close(&l->arrivals);
	jm_answers_close(&l->answers);
}

/* The first requests of closed arrivals are as if each had been under way for a while, so that
 * answers of one length do not end together. */
static bool is_under_way(const struct jm_load *l, int number)
{
	int64_t running = (int64_t)l->answers.running * (l->replicas ? l->replicas : 1);

	return l->arrivals.kind == ARRIVE_CLOSED && number < running && !l->own_prompts &&
	       !l->arrivals.row;
}

struct jm_answer jm_load_request(const struct jm_load *l, int number, int64_t arrived_ns)
{
	struct jm_answer ret = {.number = number, .arrived = arrived_ns};

	jm_arrivals_length(&l->arrivals, number, &ret.input, &ret.output);
	if (is_under_way(l, number))
		ret.output = 1 + (int)(jm_rng(jm_rng(l->arrivals.seed, (uint64_t)number), OF_REST) %
					 (uint64_t)ret.output);
	return ret;
}

int32_t jm_load_token(const struct jm_load *l, int number, int position, int64_t vocab)
{
	uint64_t seed = jm_rng(l->arrivals.seed, (uint64_t)number);

	return (int32_t)(jm_rng(seed, OF_PROMPT + (uint64_t)position) % (uint64_t)vocab);
}

int64_t jm_load_next_ns(const struct jm_load *l)
{
	bool ended = l->most && l->answers.n >= l->most;

	return jm_arrivals_timed(&l->arrivals) && l->begin_ns && !ended
		       ? l->begin_ns + (int64_t)llround(l->arrivals.at_s * 1e9)
		       : INT64_MAX;
}

/* A time that was missed stays what it was. */
static bool next_in_time(struct jm_load *l, int64_t now_ns, struct jm_answer *ret)
{
	int64_t at = jm_load_next_ns(l);

	if (at > now_ns)
		return false;
	*ret = jm_load_request(l, l->answers.n, at);
	l->arrivals.next++;
	jm_arrivals_plan(&l->arrivals);
	return true;
}

bool jm_load_next(struct jm_load *l, int64_t now_ns, int unfinished, struct jm_answer *ret)
{
	if (!l->begin_ns) {
		l->begin_ns = now_ns;
		jm_arrivals_plan(&l->arrivals);
	}
	if (l->most && l->answers.n >= l->most)
		return false;
	if (jm_arrivals_timed(&l->arrivals))
		return next_in_time(l, now_ns, ret);
	if (l->arrivals.kind == ARRIVE_CLOSED)
		l->together = unfinished < l->answers.running;
	else if (!unfinished)
		l->together = l->arrivals.kind == ARRIVE_ALL ? l->requests : 1;
	if (!l->together)
		return false;
	l->together--;
	*ret = jm_load_request(l, l->answers.n, now_ns);
	return true;
}

void jm_load_restart(struct jm_load *l, double rate, int most)
{
	struct jm_answers *a = &l->answers;

	jm_answers_close(a);
	*a = (struct jm_answers){
		.running = a->running, .timed = a->timed, .ttft = a->ttft, .tpot = a->tpot};
	jm_arrivals_restart(&l->arrivals, rate);
	l->begin_ns = 0;
	l->most = most;
}

void jm_load_note_unused(const struct jm_load *l, struct jm_work *work)
{
	const char *by = l->lengths ? "--lengths" : l->own_prompts ? "--text" : NULL;

	if (by && !jm_values_is_default(work->options, "input-tokens"))
		jm_work_note(work, "With %s --input-tokens changes nothing.", by);
	if (l->lengths && !jm_values_is_default(work->options, "output-tokens"))
		jm_work_note(work, "With --lengths --output-tokens changes nothing.");
	if (l->arrivals.kind != ARRIVE_ALL && !jm_values_is_default(work->options, "requests"))
		jm_work_note(work, "--requests is of --arrival all; here it changes nothing.");
	if (!l->finds_rate && !jm_values_is_default(work->options, "trial-requests"))
		jm_work_note(work, "--trial-requests is of --rate max; here it changes nothing.");
}

json_t *jm_load_search_json(const struct jm_load *l)
{
	const struct jm_rate_found *f = &l->found;

	if (!f->trials)
		return json_null();
	return json_pack("{s:f, s:o, s:i, s:o}", "kept", f->kept, "broken",
		jm_json_number(f->broken), "trials", f->trials, "confirmed",
		f->confirmed < 0 ? json_null() : json_boolean(f->confirmed));
}

void jm_load_note(const struct jm_load *l, struct jm_work *work)
{
	const struct jm_rate_found *f = &l->found;

	if (!f->trials || f->kept <= 0) /* the failure says that no rate was found */
		return;
	if (isinf(f->broken))
		jm_work_note(work, "Each rate up to %.4g requests/s keeps the bounds.%s", f->kept,
			f->beyond ? " It is beyond what the server answers, since requests that "
				    "wait break no --tpot; give --ttft, too."
				  : "");
	else
		jm_work_note(work,
			"The highest rate within the bounds is %.4g requests/s (%d trials); %.4g "
			"breaks them.%s",
			f->kept, f->trials, f->broken,
			f->confirmed
				? ""
				: " No trial as long as the run has confirmed it; it is 5 % below "
				  "the last one tried.");
}

int jm_load_finish(
	const struct jm_load *l, struct jm_answers *all, struct jm_work *work, struct jm_err *err)
{
	jm_answers_find_window(all, work->steady_ns);
	work->window[0] = all->window;
	return l->csv ? jm_answers_write_csv(all, l->csv_name, err) : 0;
}
