/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a record, of runs that serve or ask a language model: "serving". See record_keys.c.
 * Optional ones are not in the first records of that workload. */
#include "result/record_keys_parts.h"

#include <limits.h>

static const struct jm_key spread_keys[] = {
	{POSITIVE("mean", 0), .unit = "s", .meaning = "over the requests of span; late: over all"},
	{POSITIVE("p50", 0), .unit = "s", .meaning = "linear between the two nearest values"},
	{POSITIVE("p90", 0), .unit = "s", .meaning = "likewise"},
	{POSITIVE("p99", 0), .unit = "s", .meaning = "likewise"},
	{POSITIVE("max", 0), .unit = "s", .meaning = "the largest"},
	{0},
};

static const char *const span_words[] = {"window", "all", NULL};

static const struct jm_key window_keys[] = {
	{POSITIVE("begin_s", 0), .unit = "s", .meaning = "from the first arrival"},
	{POSITIVE("seconds", 0), .unit = "s", .meaning = "how long it is"},
	{COUNT("requests_done", 0), .meaning = "whose answer was completed in it"},
	{COUNT("requests_failed", JM_KEY_OPTIONAL), .meaning = "that failed in it"},
	{POSITIVE("tokens_in", JM_KEY_OPTIONAL),
		.meaning = "of the prompts whose first token was made in it"},
	{POSITIVE("tokens_out", 0), .meaning = "that were made in it"},
	{COUNT("tokens_first", JM_KEY_OPTIONAL),
		.meaning = "of these, the first ones of their answers"},
	{POSITIVE("joules_per_output_token", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "energy of the window by tokens_out"},
	{POSITIVE("joules_per_token", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "energy of the window by tokens_in and tokens_out together"},
	{POSITIVE("joules_per_request", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "energy of the window by requests_done"},
	{0},
};

static const struct jm_key rank_keys[] = {
	{COUNT("rank", 0), .meaning = "its number, from 0"},
	{COUNT("requests_done", 0), .meaning = "whose answer is complete"},
	{POSITIVE("tokens_out", 0), .meaning = "of their answers"},
	{POSITIVE("mean_running", JM_KEY_NULL),
		.meaning = "requests in a step, weighted by the time of the steps; null if it had "
			   "none"},
	{0},
};

static const char *const split_origins[] = {"estimated", NULL};

static const struct jm_key split_keys[] = {
	{WORD("origin", 0), .words = split_origins, .meaning = "it is no measurement"},
	{POSITIVE("prefill", 0),
		.meaning = "share of prompts in the time of the window's steps (a random sample of "
			   "those of long runs), by which its energy is divided: the middle of the "
			   "two bounds"},
	{POSITIVE("prefill_low", 0),
		.meaning = "if in mixed steps answers take what steps of answers alone took"},
	{POSITIVE("prefill_high", 0),
		.meaning = "if mixed steps are divided by the FLOPs of their rows"},
	{POSITIVE("mixed", 0), .meaning = "share of that time in steps that computed both"},
	{POSITIVE("joules_prefill", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "of prompts, first tokens included"},
	{POSITIVE("joules_decode", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "of the tokens after the first: the rest of the window"},
	{POSITIVE("joules_error", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "of both, ±: from the middle to either bound"},
	{POSITIVE("joules_per_input_token", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "joules_prefill by tokens_in of the window"},
	{POSITIVE("joules_per_output_token", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "J",
		.meaning = "joules_decode by tokens_out less tokens_first of the window"},
	{0},
};

static const struct jm_key search_keys[] = {
	{POSITIVE("kept", 0), .unit = "1/s",
		.meaning = "the highest rate of requests whose trial kept --ttft and --tpot"},
	{POSITIVE("broken", JM_KEY_NULL), .unit = "1/s",
		.meaning = "the lowest rate whose trial did not; null: each did"},
	{COUNT("trials", 0), .meaning = "how many there were"},
	{FLAG("confirmed", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "did a trial of all requests that arrive in the run keep them at the "
			   "rate kept? null: the length of the run is not given in seconds"},
	{0},
};

static const struct jm_key failures_keys[] = {
	{COUNT("connect", 0), .meaning = "there was no connection"},
	{COUNT("broken", 0), .meaning = "the connection broke before the answer was complete"},
	{COUNT("stalled", 0),
		.meaning = "no byte came for --silence, or no end within --answer-time"},
	{COUNT("status_4xx", 0), .meaning = "the server refused the request"},
	{COUNT("status_5xx", 0), .meaning = "the server failed"},
	{COUNT("status_other", 0), .meaning = "it answered with another status than 200"},
	{COUNT("cut", 0), .meaning = "the answer ended without a reason and without [DONE]"},
	{COUNT("malformed", 0), .meaning = "the answer has no token, or is no stream of events"},
	{0},
};

static const struct jm_key server_keys[] = {
	{TEXT("url", 0), .meaning = "that was asked"},
	{TEXT("model", 0), .meaning = "its name there"},
	{POSITIVE("start_s", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "s",
		.meaning = "from the start by --start until it answered, part of the phase setup; "
			   "null: this run started none"},
	{COUNT("no_usage", 0), .meaning = "answers whose tokens are the number of events, because "
					  "the server does not count them"},
	{COUNT("no_done", 0), .meaning = "complete answers without [DONE]"},
	{COUNT("other_prompt", 0),
		.meaning = "whose prompt has another number of tokens than was sent"},
	{COUNT("other_length", 0), .meaning = "that have another length than was asked for"},
	{COUNT("more_events", JM_KEY_OPTIONAL),
		.meaning = "that have more events than the tokens that the server counts: the "
			   "first event may contain no token, and ttft is then too short"},
	{POSITIVE("tokens_merged", 0),
		.meaning = "tokens that came in one event with others: their time is that of the "
			   "event, and itl is from event to event"},
	{OBJECT("late", JM_KEY_NULL), .keys = spread_keys,
		.meaning = "from arrival to the sending of the request"},
	{0},
};

const struct jm_key jm__serving_keys[] = {
	{COUNT("requests_offered", 0),
		.meaning = "that arrived, in the warm-up too; of serve-client: that it sent"},
	{COUNT("requests_done", 0), .meaning = "whose answer is complete"},
	{COUNT("requests_failed", 0), .meaning = "that ended without an answer"},
	{COUNT("requests_preempted", JM_KEY_OPTIONAL),
		.meaning = "that gave up their pages at least once"},
	{COUNT("preemptions", 0), .meaning = "how often a request gave up its pages"},
	{POSITIVE("tokens_in", 0), .meaning = "of the prompts of requests that are done"},
	{POSITIVE("tokens_out", 0), .meaning = "of their answers"},
	{WORD("span", JM_KEY_OPTIONAL), .words = span_words,
		.meaning = "which requests ttft, tpot, itl and latency are of: those that "
			   "were done in the window; all, if there is none"},
	{OBJECT("ttft", JM_KEY_NULL), .keys = spread_keys,
		.meaning = "from arrival to the first token"},
	{OBJECT("tpot", JM_KEY_NULL), .keys = spread_keys,
		.meaning = "of each token after the first: (latency - ttft) / (tokens - 1)"},
	{OBJECT("itl", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = spread_keys,
		.meaning = "from each token of an answer to its next"},
	{OBJECT("latency", JM_KEY_NULL), .keys = spread_keys,
		.meaning = "from arrival to the last token"},
	{POSITIVE("goodput", JM_KEY_NULL | JM_KEY_OPTIONAL), .unit = "1/s",
		.meaning =
			"requests per second that keep --ttft and --tpot: of those that end in the "
			"window; if the window is one of arrivals and --ttft is given, of those "
			"that arrive in it, up to the first whose bounds were not decided when the "
			"run ended; without a "
			"window, of those from the first arrival to the last end; null without "
			"such a bound, or if the first of them was not decided"},
	{FLAG("p99_in_bounds", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "whether the 99th percentiles of ttft and tpot keep --ttft and --tpot, "
			   "if a failed request takes for ever; null without such a bound, or if "
			   "no request ended in the span"},
	{POSITIVE("mean_running", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "requests in a step, weighted by the time of the steps"},
	{POSITIVE("padding", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "share of computed rows that are of no request"},
	{POSITIVE("cache_use", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "share of the cache's pages in use, weighted likewise"},
	{TEXT("cache_type", JM_KEY_OPTIONAL),
		.meaning = "in which keys and values are kept: f32, bf16, f16 or f8e4m3"},
	{POSITIVE("device_idle", JM_KEY_NULL | JM_KEY_OPTIONAL),
		.meaning = "share of the time of the steps in which the device had none to compute "
			   "though "
			   "requests were under way"},
	{OBJECT("window", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = window_keys,
		.meaning = "the steady part, whose energy is that of the phase of the same name"},
	{LIST("ranks", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = rank_keys,
		.meaning = "of --ranks: what each replica did, in the warm-up too"},
	{OBJECT("split", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = split_keys,
		.meaning = "of a run of both kinds of rows: what the window's energy is of, as a "
			   "model has it"},
	{OBJECT("rate_search", JM_KEY_NULL | JM_KEY_OPTIONAL), .keys = search_keys,
		.meaning = "of --rate max: what was found before the run, which has the rate kept"},
	{OBJECT("failures", JM_KEY_OPTIONAL), .keys = failures_keys,
		.meaning = "of serve-client: requests_failed by their reason"},
	{OBJECT("server", JM_KEY_OPTIONAL), .keys = server_keys,
		.meaning = "of serve-client: what it asked, and what was missing in answers"},
	{0},
};
