/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from a worker to its parent over a pipe, and between an agent and its head
 * (agent_links.h) over a connection. Both ends are programs of one source, on machines of one byte
 * order. */
#ifndef JM_FRAME_H
#define JM_FRAME_H

#include <jansson.h>

#include "joulemark.h"

/* Differs between programs of which the source code of frames, or of what carries them, differs.
 * frame_source.py writes it. */
extern const char jm_frame_source[];

enum jm_frame_type {
	JM_FRAME_SIGNALS =
		1,	   /* JSON: the meters and signals that are sampled (see meters_json.h) */
	JM_FRAME_CHUNK,	   /* struct jm_frame_chunk, then the data */
	JM_FRAME_PROGRESS, /* struct jm_frame_progress */
	JM_FRAME_RECORD,   /* JSON: the record; the last frame of a worker that survived */
	/* JSON {code, text}: the case has failed, or could not be run; a record may follow */
	JM_FRAME_ERROR,
	JM_FRAME_LOG,	/* JSON {level, line} */
	JM_FRAME_PHASE, /* JSON {phase}: its settings are to be made; orders answer (orders.h) */
	JM_FRAME_KEEP,	/* JSON {pid}: a process that the cases after this one use, too */
	/* from an agent, beside those of its worker */
	JM_FRAME_STARTED, /* int32_t: the process of its worker */
	JM_FRAME_STDERR,  /* what its worker wrote there */
	/* int32_t: the status of its worker, as of waitpid; the last frame of a case */
	JM_FRAME_EXIT,
	/* to an agent */
	JM_FRAME_JOB,	 /* JSON: the job of its worker */
	JM_FRAME_SIGNAL, /* struct jm_frame_signal: for its worker */
	JM_FRAME_PING,	 /* it answers with its clock, ns, as an int64_t without a head */
	JM_FRAME_BYE,	 /* no more cases come */
	JM_FRAME_END
};

struct jm_frame_chunk {
	int32_t signal;
	uint32_t n;
	int64_t t0_ns, t1_ns;
};

struct jm_frame_progress {
	char phase[64];	       /* "steady", or "steady, held-out loss 5.31" */
	char unit[32];	       /* of an item: "token" */
	double items, seconds; /* of the steady phase; on the run's clock */
	double share;	       /* of the whole run, 0..1; NAN = unknown */
	double watts;	       /* now, of the most significant origin; NAN = unknown */
	int32_t origin;	       /* enum jm_origin, of the watts */
};

struct jm_frame_signal {
	int32_t number, with_children;
};

/* Writes head and body as one frame; an error when the parent has ended, or its host has read
 * nothing for 8 s. */
int jm_frame_write(int fd, enum jm_frame_type type, const void *head, size_t n_head,
	const void *body, size_t n_body, struct jm_err *err);
int jm_frame_write_json(int fd, enum jm_frame_type type, const json_t *json, struct jm_err *err);

struct jm_frame {
	enum jm_frame_type type;
	const char *data; /* valid until the next call on the reader */
	size_t size;
};

struct jm_frame_reader {
	char *buffer;
	size_t used, size, taken;
};

/* Reads what is there; ret_end: the other end is closed. */
int jm_frame_fill(struct jm_frame_reader *r, int fd, bool *ret_end, struct jm_err *err);
/* The next whole frame; 0 = none yet, 1 = got one, else an error code. */
int jm_frame_next(struct jm_frame_reader *r, struct jm_frame *ret, struct jm_err *err);
void jm_frame_reader_done(struct jm_frame_reader *r);

#endif
