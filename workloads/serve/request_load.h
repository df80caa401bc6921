/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a run: when the next one arrives, how long it is, what became of it. It does not
 * know who answers. */
#ifndef JM_REQUEST_LOAD_H
#define JM_REQUEST_LOAD_H

#include <limits.h>

#include "answers.h"
#include "arrivals.h"

/* Of --rate max: requests per second. */
struct jm_rate_found {
	double kept;   /* the highest that kept the bounds; below `broken` if not confirmed */
	double broken; /* the lowest that did not; INFINITY = each did */
	int trials;    /* 0 = no rate was looked for */
	bool beyond;   /* more arrived than were answered, and without --ttft no rate breaks more */
	/* did all requests that arrive in the run keep them at this rate? 1, 0; -1 = the length of
	 * the run is not known */
	int confirmed;
};

struct jm_load {
	const char *input_text, *output_text, *lengths, *csv; /* of the options; NULL = not given */
	char csv_name[PATH_MAX];			      /* of this run */
	int requests;					      /* that arrive together */
	bool own_prompts; /* prompts have lengths of their own */
	int together;	  /* of these: still to arrive */
	int most;	  /* requests that arrive in all; 0 = without end */
	int replicas;	  /* that answer them, --running each; 0 = one */
	bool rate_given;  /* --rate */
	bool finds_rate;  /* --rate max */
	int trial;	  /* requests of a trial, at least */
	struct jm_rate_found found;
	int64_t begin_ns; /* arrivals count from it; 0 = not yet */
	struct jm_arrivals arrivals;
	struct jm_answers answers;
};

#define JM_LOAD_COUNT(text, s, field, most, value, what)                                           \
	{                                                                                          \
		.name = text, JM_BIND(JM_INT, s, field), .min = 1, .max = most, .fallback = value, \
		.help = what                                                                       \
	}

/* The rows of options of a workload whose state is struct s and has a jm_load in the field
 * `load`. */
#define JM_LOAD_OPTIONS(s)                                                                         \
	{.name = "arrival",                                                                        \
		JM_BIND(JM_CHOICE, s, load.arrivals.kind),                                         \
		.choices = jm_arrival_names,                                                       \
		.fallback = "all",                                                                 \
		.help = "when requests arrive: all at once, again when all are done; one at a "    \
			"time; a new one for each that is done, so that --running are under way; " \
			"independently of each other at --rate; or at the times of --lengths"},    \
		{.name = "rate",                                                                   \
			JM_BIND(JM_REAL, s, load.arrivals.rate),                                   \
			JM_GIVEN(s, load.rate_given),                                              \
			.unit = "",                                                                \
			.min = 1e-3,                                                               \
			.max = 1e6,                                                                \
			.choices = jm_rate_words,                                                  \
			.needs = "arrival",                                                        \
			.help = "requests per second, on average, with --arrival poisson; max: "   \
				"the highest rate at which the 99th percentiles keep --ttft and "  \
				"--tpot, looked for before the run"},                              \
		JM_LOAD_COUNT("trial-requests", s, load.trial, 1e6, "200",                         \
			"requests of each trial of --rate max, at least"),                         \
		{.name = "lengths",                                                                \
			JM_BIND(JM_TEXT, s, load.lengths),                                         \
			.argument = "FILE",                                                        \
			.help = "a table input,output[,arrival_s]: tokens of the prompt and of "   \
				"the answer of each request, and with --arrival file when it "     \
				"arrives; after the last row the first is next"},                  \
		{.name = "ttft",                                                                   \
			JM_BIND(JM_DURATION, s, load.answers.ttft),                                \
			.unit = "s",                                                               \
			.min = 1e-6,                                                               \
			.max = 1e6,                                                                \
			.help = "bound of goodput: time to the first token"},                      \
		{.name = "tpot",                                                                   \
			JM_BIND(JM_DURATION, s, load.answers.tpot),                                \
			.unit = "s",                                                               \
			.min = 1e-6,                                                               \
			.max = 1e6,                                                                \
			.help = "bound of goodput: time per token after the first"},               \
		JM_LOAD_COUNT("requests", s, load.requests, 1e6, "64",                             \
			"requests that arrive at once with --arrival all"),                        \
		JM_LOAD_COUNT("running", s, load.answers.running, 4096, "16",                      \
			"requests that are answered at once, at most"),                            \
		{.name = "input-tokens",                                                           \
			JM_BIND(JM_TEXT, s, load.input_text),                                      \
			.fallback = "128",                                                         \
			.argument = "N|N:M",                                                       \
			.help = "tokens of a prompt: exactly N, or uniform from N to M"},          \
		{.name = "output-tokens",                                                          \
			JM_BIND(JM_TEXT, s, load.output_text),                                     \
			.fallback = "32",                                                          \
			.argument = "N|N:M",                                                       \
			.help = "tokens of an answer: exactly N, or uniform from N to M"},         \
	{                                                                                          \
		.name = "requests-csv", JM_BIND(JM_TEXT, s, load.csv), .argument = "FILE",         \
		.use = JM_OPTION_WRITES | JM_OPTION_COMMAS,                                        \
		.help = "a line for each request that was done: tokens, arrival, time to the "     \
			"first token, latency; of several runs in one call each writes a file "    \
			"of its own"                                                               \
	}

extern const char *const jm_arrival_names[], *const jm_rate_words[];

/*
 * Reads --input-tokens, --output-tokens and --lengths, checks how requests arrive, and tries the
 * file of --requests-csv. text: prompts are given (own_prompts). JM_EUSAGE, or as jm_arrivals_read
 * and jm_output_try. Closed by jm_load_close.
 */
int jm_load_open(struct jm_load *l, const struct jm_work *work, bool text, struct jm_err *err);
void jm_load_close(struct jm_load *l); /* takes a zeroed one */
/* The requests begin anew, with that rate, `most` of them (0 = without end). Nothing is under
 * way. */
void jm_load_restart(struct jm_load *l, double rate, int most);
/* Says in work->note which options were given and change nothing. */
void jm_load_note_unused(const struct jm_load *l, struct jm_work *work);
/* "rate_search" of "serving"; null: no rate was looked for. */
json_t *jm_load_search_json(const struct jm_load *l);
/* Adds the same as a sentence, unless no rate was looked for. */
void jm_load_note(const struct jm_load *l, struct jm_work *work);
/*
 * Has another request arrived by now? Its tokens and its intended arrival are in *ret; the caller
 * adds it to the answers before the next call. unfinished: requests under way.
 */
bool jm_load_next(struct jm_load *l, int64_t now_ns, int unfinished, struct jm_answer *ret);
/* The request of that number, which arrives then: its tokens. */
struct jm_answer jm_load_request(const struct jm_load *l, int number, int64_t arrived_ns);
/* The token at a position of a request's random prompt. */
int32_t jm_load_token(const struct jm_load *l, int number, int position, int64_t vocab);
/* When the next request arrives by itself; INT64_MAX: it depends on what is done, or none is to
 * come. */
int64_t jm_load_next_ns(const struct jm_load *l);
/* After the last step: the window of the requests, also that of the work, and the file of
 * --requests-csv. Errors: as jm_output_by. */
int jm_load_finish(
	const struct jm_load *l, struct jm_answers *all, struct jm_work *work, struct jm_err *err);

#endif
