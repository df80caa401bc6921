/* SPDX-License-Identifier: Apache-2.0 */
/* The records that a command line names: stores, JSON files and standard input. */
#ifndef JM_RECORD_INPUT_H
#define JM_RECORD_INPUT_H

#include <jansson.h>

#include "base/text/keys_read.h"
#include "store/store.h"

struct jm_record_input {
	json_t *records;
	struct jm_keys_reader *reader; /* of JSON files; records share what they have in common */
	json_t *by_run;		       /* records in arrays by case, repeat and start */
	int n_twice;		       /* given again, and left out */
	int n_parts, n_runs; /* records that are parts of jobs, and the runs that they are now */
	int n_damaged;	     /* left out, each with a warning on stderr that names it */
	bool full;	     /* records are read with their details */
	/* called for each store after its records, of which the first has index `first`; NULL =
	 * nothing */
	int (*with_store)(void *arg, struct jm_store *store, size_t first, struct jm_err *err);
	void *arg;
};

int jm_record_input_init(struct jm_record_input *in, bool full, struct jm_err *err);
/* path: a store, a file of records, "-" */
int jm_record_input_add(struct jm_record_input *in, const char *path, struct jm_err *err);
/* After the last of them: the parts of a job become one record. *ret_place, to be freed: of each
 * index among the records the new one; NULL = not wanted. */
int jm_record_input_join(struct jm_record_input *in, size_t **ret_place, struct jm_err *err);
/* Says on stderr what was left out; status: the exit status that a damaged record leads to. */
void jm_record_input_warn(const struct jm_record_input *in, const char *status);
void jm_record_input_done(struct jm_record_input *in);

#endif
