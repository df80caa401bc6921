/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a file of its own, for each test anew; a failure in these functions fails the test. */
#ifndef JM_TEST_STORE_CASE_H
#define JM_TEST_STORE_CASE_H

#include "test.h"
#include "store/store.h"

extern char store_path[256];

/* Setup and teardown: a path that nobody has, and the end of its files. */
int store_new_path(void **state);
int store_remove_files(void **state);

struct jm_store *store_opened(enum jm_store_mode mode);
void store_closed(struct jm_store *s);
void store_add_case(struct jm_store *s, const char *id);
/* Begins and finishes a repeat of the case; value: its throughput. */
void store_add_record(
	struct jm_store *s, const char *id, int repeat, const char *status, double value);
/* What the file says, read without the store's code; "none" where it has no such run. */
const char *store_state_of(const char *id, int repeat);
/* For jm_store_records: adds "ID REPEAT " of each record to a text of 256 bytes. */
int store_write_order(void *arg, json_t *record, struct jm_err *err);

#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, store_new_path, store_remove_files)

#endif
