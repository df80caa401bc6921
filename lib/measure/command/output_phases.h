/* SPDX-License-Identifier: Apache-2.0 */
/* Phases from what a command prints: a line that a regular expression finds begins one, or ends
 * one. */
#ifndef JM_OUTPUT_PHASES_H
#define JM_OUTPUT_PHASES_H

#include "measure/session/session.h"
#include "output_items.h"

struct jm_output_phases {
	struct jm_ctx *ctx;
	struct jm_session *session;
	bool at_end; /* a line ends its phase */
	const char *regex;
	/* set inside */
	struct jm_scan *scan; /* NULL = none are looked for */
	int phase;	      /* that is open, or -1 */
	char name[64];
	int64_t t_ns, read_ns; /* of the newest line: its time, and when it was read */
	long n;		       /* phases so far */
	long again;	       /* lines that named the phase before once more */
	bool other, burst;     /* there was another name; lines of several phases came at once */
};

/* The first five fields are set. */
int jm_output_phases_open(struct jm_output_phases *p, struct jm_err *err);
/* The command has started. */
void jm_output_phases_begin(struct jm_output_phases *p, int64_t t_ns);
/* Bytes of the output, in pieces of any size. */
void jm_output_phases_feed(struct jm_output_phases *p, const char *bytes, size_t n, int64_t t_ns);
/* The command has ended; warns where nothing matched, or where times are not known. */
void jm_output_phases_end(struct jm_output_phases *p, int64_t t_ns, const char *command);
void jm_output_phases_done(struct jm_output_phases *p);

#endif
