/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When requests arrive, and how long they are: from ranges, a rate and a seed, or from a file. It
 * knows neither what serves them nor a clock.
 */
#ifndef JM_ARRIVALS_H
#define JM_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "joulemark.h"

/* ARRIVE_CLIENTS: when clients of --listen ask, which is no choice of --arrival. */
enum arrival {
	ARRIVE_ALL,
	ARRIVE_SINGLE,
	ARRIVE_CLOSED,
	ARRIVE_POISSON,
	ARRIVE_FILE,
	ARRIVE_CLIENTS
};

struct range {
	int from, to;
};

struct jm_length {
	int input, output; /* tokens */
	double at_s;
};

struct jm_arrivals {
	enum arrival kind;
	double rate; /* requests per second, of ARRIVE_POISSON; NAN = not given */
	uint64_t seed;
	struct range input, output; /* tokens; those of a file are its smallest and largest */
	struct jm_length *row;	    /* [n], of a file; NULL = lengths are drawn */
	int n;
	bool timed; /* the file has arrivals */
	/* of the next request: */
	int next;
	double at_s; /* after the first step begins; of ARRIVE_POISSON and ARRIVE_FILE */
};

/* "N" or "N:M", at least 1. name: of the option, for errors. JM_EUSAGE: it is neither. */
int jm_arrivals_range(const char *text, const char *name, struct range *ret, struct jm_err *err);
/*
 * Reads a table with the columns input,output[,arrival_s], in which arrivals never decrease and end
 * above 0. JM_EFORMAT names its line. What it allocates, jm_arrivals_close frees.
 */
int jm_arrivals_read(struct jm_arrivals *a, const char *path, struct jm_err *err);
void jm_arrivals_close(struct jm_arrivals *a); /* takes a zeroed one */
/* JM_EUSAGE: the kind lacks a rate or times, or has a rate that it does not use. */
int jm_arrivals_check(const struct jm_arrivals *a, struct jm_err *err);
/* Tokens of a request, counted from 0. After the last row of a file the first is next. */
void jm_arrivals_length(const struct jm_arrivals *a, int number, int *ret_input, int *ret_output);
/* Do requests arrive at times of their own, whatever was answered? */
bool jm_arrivals_timed(const struct jm_arrivals *a);
/* Before the first request again, at this rate. */
void jm_arrivals_restart(struct jm_arrivals *a, double rate);
/*
 * at_s becomes that of request `next`. poisson: the time since the one before is exponential
 * (inverse of its distribution). file: the time of its row; when all rows have arrived, they arrive
 * again, counted from the last.
 */
void jm_arrivals_plan(struct jm_arrivals *a);

#endif
