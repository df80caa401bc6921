/* SPDX-License-Identifier: Apache-2.0 */
/* The store: round trip, order, its state after a kill, and every kind of invalid file. */
#include "kit/store_case.h"
#include "store/store_run.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void refused(enum jm_store_mode mode, int code)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_store *s = NULL;

	assert_int_equal(jm_store_open(store_path, mode, &s, &err), code);
	assert_null(s);
	assert_sentence(&err, code);
}

static int append_record(void *arg, json_t *record, struct jm_err *err)
{
	(void)err;
	return json_array_append(arg, record);
}

static void test_round_trip(void **unused)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;
	char order[256] = "";
	json_t *records = json_array();

	(void)unused;
	store_add_case(s, "bb");
	store_add_case(s, "aa");
	store_add_case(s, "bb");
	store_add_record(s, "aa", 2, "ok", 0.1);
	store_add_record(s, "bb", 1, "failed", 2);
	store_add_record(s, "aa", 1, "ok", 1.0 / 3);
	store_closed(s);
	s = store_opened(JM_STORE_READ);
	assert_int_equal(jm_store_records(s, false, store_write_order, order, &err), 0);
	assert_string_equal(order, "bb1 aa1 aa2 ");
	assert_int_equal(jm_store_records(s, false, append_record, records, &err), 0);
	assert_near(json_real_value(json_object_get(json_array_get(records, 1), "throughput")),
		1.0 / 3, 1e-15);
	json_decref(records);
	assert_string_equal(store_state_of("aa", 1), "ok");
	assert_string_equal(store_state_of("bb", 1), "failed");
	assert_string_equal(store_state_of("bb", 2), "none");
	assert_string_equal(store_state_of("cc", 1), "none");
	store_closed(s);
}

static void test_plans(void **unused)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT, none = JM_ERR_INIT;
	json_t *one = json_pack("{s:i}", "n", 1), *two = json_pack("{s:i}", "n", 2), *got;

	(void)unused;
	assert_int_equal(jm_store_last_plan(s, &got, &none), JM_ENOENT);
	assert_sentence(&none, JM_ENOENT);
	assert_int_equal(jm_store_add_plan(s, "k1", one, &err), 0);
	assert_int_equal(jm_store_add_plan(s, "k2", two, &err), 0);
	assert_int_equal(jm_store_last_plan(s, &got, &err), 0);
	assert_true(json_equal(got, two));
	json_decref(got);
	assert_int_equal(jm_store_add_plan(s, "k1", one, &err), 0);
	assert_int_equal(jm_store_last_plan(s, &got, &err), 0);
	assert_true(json_equal(got, one));
	json_decref(got);
	assert_int_equal(jm_store_plan(s, "k2", &got, &err), 0);
	assert_true(json_equal(got, two));
	json_decref(got);
	json_decref(one);
	json_decref(two);
	store_closed(s);
}

/* A process that is killed with a transaction open loses that, and nothing before it. */
static void test_kill(void **unused)
{
	struct jm_store *s;
	pid_t child = fork();
	int status;

	(void)unused;
	if (!child) {
		s = store_opened(JM_STORE_WRITE);
		store_add_case(s, "aa");
		store_add_case(s, "bb");
		store_add_record(s, "aa", 1, "ok", 1);
		jm_store_begin(s, "bb", 1, NULL);
		store_add_case(s, "cc");
		raise(SIGKILL);
	}
	waitpid(child, &status, 0);
	assert_true(WIFSIGNALED(status));
	s = store_opened(JM_STORE_WRITE);
	assert_string_equal(store_state_of("aa", 1), "ok");
	assert_string_equal(store_state_of("bb", 1), "running");
	store_closed(s);
}

/* After the last commit too: what took the place is not touched, and no log of ours stays beside
 * it. */
static void test_replaced_before_close(void **unused)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;
	char other[300], log[300], back[8] = "";
	FILE *f;

	(void)unused;
	snprintf(other, sizeof(other), "%s.other", store_path);
	snprintf(log, sizeof(log), "%s-wal", store_path);
	store_add_case(s, "aa");
	store_add_record(s, "aa", 1, "ok", 1);
	f = fopen(other, "we");
	assert_int_equal(fwrite("precious", 1, 8, f), 8);
	fclose(f);
	assert_int_equal(access(log, F_OK), 0);
	assert_int_equal(rename(other, store_path), 0);
	assert_int_equal(jm_store_close(s, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
	f = fopen(store_path, "re");
	assert_int_equal(fread(back, 1, 8, f), 8);
	fclose(f);
	assert_memory_equal(back, "precious", 8);
	assert_int_equal(access(log, F_OK), -1);
}

/* A file that was made, and in which nothing was stored, is gone; another writer may wait for its
 * lock. */
static void test_made_for_nothing(void **unused)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_int_equal(access(store_path, F_OK), 0);
	store_closed(s);
	assert_int_equal(access(store_path, F_OK), -1);
	s = store_opened(JM_STORE_WRITE);
	store_add_case(s, "aa");
	assert_int_equal(jm_store_begin(s, "aa", 1, &err), 0);
	jm_store_rollback(s);
	store_closed(s);
	assert_int_equal(access(store_path, F_OK), 0);
}

/* All of a run that is over is stored at once, under the next free repeat, or nothing of it. */
static void test_add_run(void **unused)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;
	json_t *record = json_pack("{s:s}", "status", "ok");
	int repeat = 0;

	(void)unused;
	store_add_case(s, "aa");
	store_add_record(s, "aa", 4, "ok", 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(jm_store_add_run(s, "aa", &repeat, &err), 0);
		assert_int_equal(repeat, 5);
		assert_string_equal(store_state_of("aa", 5), "none");
		if (!i)
			jm_store_rollback(s);
	}
	assert_int_equal(jm_store_finish(s, record, &err), 0);
	assert_string_equal(store_state_of("aa", 5), "ok");
	json_decref(record);
	store_closed(s);
}

static void test_one_writer(void **unused)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE), *reader;

	(void)unused;
	refused(JM_STORE_WRITE, JM_EBUSY);
	reader = store_opened(JM_STORE_READ);
	store_closed(reader);
	store_closed(s);
	store_closed(store_opened(JM_STORE_WRITE));
}

static void write_file(const char *text, size_t n)
{
	FILE *f = fopen(store_path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	fclose(f);
}

static void test_not_a_store(void **unused)
{
	char back[16] = "";
	FILE *f;

	(void)unused;
	refused(JM_STORE_READ, JM_ENOENT);
	write_file("precious text\n", 14);
	refused(JM_STORE_WRITE, JM_EFORMAT);
	refused(JM_STORE_READ, JM_EFORMAT);
	f = fopen(store_path, "re");
	assert_int_equal(fread(back, 1, 15, f), 14);
	fclose(f);
	assert_string_equal(back, "precious text\n");
	snprintf(store_path, sizeof(store_path), "/nonexistent-folder/x.db");
	refused(JM_STORE_WRITE, JM_ENOENT);
	snprintf(store_path, sizeof(store_path), "/tmp");
	refused(JM_STORE_WRITE, JM_EFORMAT);
}

static void with_sqlite(const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(store_path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void make_full_store(int n)
{
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	char id[16];

	for (int i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "c%03d", i);
		store_add_case(s, id);
		store_add_record(s, id, 1, "ok", i);
	}
	store_closed(s);
}

static void test_foreign_and_newer(void **unused)
{
	(void)unused;
	with_sqlite("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)");
	refused(JM_STORE_WRITE, JM_EFORMAT);
	with_sqlite("SELECT x FROM mine");
	unlink(store_path);
	make_full_store(1);
	with_sqlite("PRAGMA user_version = 999");
	refused(JM_STORE_WRITE, JM_EVERSION);
	refused(JM_STORE_READ, JM_EVERSION);
}

static void test_damaged(void **unused)
{
	char noise[4096];
	struct stat st;
	int fd;

	(void)unused;
	make_full_store(200);
	stat(store_path, &st);
	memset(noise, 0xa5, sizeof(noise));
	fd = open(store_path, O_WRONLY | O_CLOEXEC);
	for (off_t at = 4096; at + 4096 <= st.st_size; at += 4096)
		assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
	close(fd);
	refused(JM_STORE_WRITE, JM_EFORMAT);
	assert_int_equal(truncate(store_path, 2000), 0);
	refused(JM_STORE_WRITE, JM_EFORMAT);
}

/* A child whose files may not grow any more stands for a full disk. */
static int fill_disk(void)
{
	struct rlimit limit = {.rlim_cur = 200000, .rlim_max = 200000};
	struct jm_err err = JM_ERR_INIT;
	json_t *plan = json_pack("{s:s}", "text", "");
	struct jm_store *s = store_opened(JM_STORE_WRITE);
	char text[4001], key[16];
	int rc = 0;

	memset(text, 'x', 4000);
	text[4000] = '\0';
	json_object_set_new(plan, "text", json_string(text));
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	for (int i = 0; i < 1000 && !rc; i++) {
		snprintf(key, sizeof(key), "%d", i);
		rc = jm_store_add_plan(s, key, plan, &err);
		if (!rc)
			rc = jm_store_commit(s, &err);
	}
	jm_store_close(s, NULL);
	json_decref(plan);
	return rc == JM_EIO && strstr(err.text, "finished records are safe") ? 0 : 1;
}

static void test_full_disk(void **unused)
{
	struct jm_store *s;
	json_t *records = json_array();
	struct jm_err err = JM_ERR_INIT;
	pid_t child;
	int status;

	(void)unused;
	make_full_store(5);
	child = fork();
	if (!child)
		_exit(fill_disk());
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	s = store_opened(JM_STORE_WRITE);
	assert_int_equal(jm_store_records(s, false, append_record, records, &err), 0);
	assert_int_equal(json_array_size(records), 5);
	json_decref(records);
	store_add_case(s, "new");
	store_add_record(s, "new", 1, "ok", 1);
	store_closed(s);
}

/* The documented views answer questions asked with sqlite3. */
static void test_views(void **unused)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;

	(void)unused;
	make_full_store(3);
	assert_int_equal(sqlite3_open_v2(store_path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(
		sqlite3_prepare_v2(db,
			"SELECT sum(throughput_per_s), (SELECT count(*) FROM cases),"
			" (SELECT count(record) FROM records) FROM results WHERE status = 'ok'",
			-1, &stmt, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_near(sqlite3_column_double(stmt, 0), 3, 0);
	assert_int_equal(sqlite3_column_int(stmt, 1), 3);
	assert_int_equal(sqlite3_column_int(stmt, 2), 3);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(test_round_trip),
		STORE_TEST(test_plans),
		STORE_TEST(test_kill),
		STORE_TEST(test_one_writer),
		STORE_TEST(test_replaced_before_close),
		STORE_TEST(test_made_for_nothing),
		STORE_TEST(test_add_run),
		STORE_TEST(test_not_a_store),
		STORE_TEST(test_foreign_and_newer),
		STORE_TEST(test_damaged),
		STORE_TEST(test_full_disk),
		STORE_TEST(test_views),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
