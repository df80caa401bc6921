/* SPDX-License-Identifier: Apache-2.0 */
/* The state of workload serve-client, which its files share. */
#ifndef JM_CLIENT_STATE_H
#define JM_CLIENT_STATE_H

#include "base/text/event_stream.h"
#include "request_load.h"
#include "server_process.h"
#include "vendor/http_client.h"

/* Why a request failed: key of the record, words of a message. */
#define JM_CLIENT_FAILURES(X)                                                                      \
	X(CONNECT, "connect", "without a connection")                                              \
	X(BROKEN, "broken", "with a broken connection")                                            \
	X(STALLED, "stalled", "with a server that was silent or took too long")                    \
	X(STATUS_4XX, "status_4xx", "with status 4xx")                                             \
	X(STATUS_5XX, "status_5xx", "with status 5xx")                                             \
	X(STATUS_OTHER, "status_other", "with another status")                                     \
	X(CUT, "cut", "with an answer that is not complete")                                       \
	X(MALFORMED, "malformed", "with an answer that cannot be read")
enum jm_client_failure {
#define X(name, key, words) JM_CLIENT_##name,
	JM_CLIENT_FAILURES(X)
#undef X
		JM_CLIENT_FAILURE_KINDS
};

/* An answer while it comes. */
struct jm_flow {
	struct jm_event_stream stream;
	double input, output; /* tokens as the server counts them; NAN = not said */
	int64_t sent_ns;
	/* when an empty last piece came; 0 = none. It may be a token without text. */
	int64_t tail_ns;
	bool has_event, is_last, is_done, is_malformed;
};

struct jm_client {
	struct jm_work *work;
	struct jm_load load;
	const char *url, *model, *start, *key_file;
	char *base;	       /* `url`, if the user gave it with /v1 behind it; NULL = as given */
	char *found_model;     /* of the server's list; NULL = the user names it */
	char shown_model[128]; /* without what a terminal would obey */
	double silence_s, answer_s, ready_s;
	int vocab;
	struct jm_http_client *http;
	struct jm_server_process server;
	double start_s;	      /* from its start until it answered; NAN = this case started none */
	struct jm_flow *flow; /* [answers] */
	int cap;
	int under_way;
	double made;		 /* tokens that are in no step yet */
	double seconds, running; /* of steps; these by requests under way */
	int failed[JM_CLIENT_FAILURE_KINDS],
		failed_together; /* the latest ones, one after the other */
	char failure[160];	 /* of the last one, what was said */
	int no_usage, no_done, other_prompt, other_length, more_events;
	double merged; /* tokens that came with others in one event */
};

#endif
