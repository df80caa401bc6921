/* SPDX-License-Identifier: Apache-2.0 */
/* The store: round trip, order, its state after a kill, and every kind of invalid file. */
#include "kit/test.h"

#include "base/clock.h"
#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[256];

static int new_path(void **state)
{
	static int n;
	const char *folder = getenv("TMPDIR");

	(void)state;
	snprintf(path, sizeof(path), "%s/jm-store-%d-%d.db", folder ? folder : "/tmp", getpid(),
		n++);
	unlink(path);
	return 0;
}

static int remove_files(void **state)
{
	char other[300];

	(void)state;
	unlink(path);
	snprintf(other, sizeof(other), "%s-wal", path);
	unlink(other);
	snprintf(other, sizeof(other), "%s-shm", path);
	unlink(other);
	return 0;
}

static struct jm_store *opened(enum jm_store_mode mode)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_store *s = NULL;
	int rc = jm_store_open(path, mode, &s, &err);

	assert_ok(rc, err);
	return s;
}

static void closed(struct jm_store *s)
{
	struct jm_err err = JM_ERR_INIT;
	int rc = jm_store_close(s, &err);

	assert_ok(rc, err);
}

static void refused(enum jm_store_mode mode, int code)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_store *s = NULL;

	assert_int_equal(jm_store_open(path, mode, &s, &err), code);
	assert_null(s);
	assert_sentence(&err, code);
}

static void add_case(struct jm_store *s, const char *id)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *parameters = json_pack("{s:s}", "workload", "null");
	int rc = jm_store_add_case(s, id, parameters, &err);

	assert_ok(rc, err);
	json_decref(parameters);
}

static void add_record(
	struct jm_store *s, const char *id, int repeat, const char *status, double value)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *record = json_pack("{s:s, s:s, s:f, s:{s:s, s:i}}", "status", status, "started",
		"2026-01-01T00:00:00.000Z", "throughput", value, "case", "id", id, "repeat",
		repeat);
	int rc = jm_store_begin(s, id, repeat, &err);

	assert_ok(rc, err);
	rc = jm_store_finish(s, record, &err);
	assert_ok(rc, err);
	json_decref(record);
}

/* What the file says, read without the store's code; "none" where it has no such run. */
static const char *state_of(const char *id, int repeat)
{
	static char text[32];
	sqlite3_stmt *stmt;
	sqlite3 *db;

	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db,
				 "SELECT r.status FROM record_t r JOIN case_t c ON c.n = r.case_n"
				 " WHERE c.id = ? AND r.repeat = ?",
				 -1, &stmt, NULL),
		SQLITE_OK);
	sqlite3_bind_text(stmt, 1, id, -1, SQLITE_STATIC);
	sqlite3_bind_int(stmt, 2, repeat);
	snprintf(text, sizeof(text), "%s",
		sqlite3_step(stmt) == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0)
						 : "none");
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return text;
}

static int write_order(void *arg, json_t *record, struct jm_err *err)
{
	char *text = arg;
	const json_t *c = json_object_get(record, "case");

	(void)err;
	snprintf(text + strlen(text), 256 - strlen(text), "%s%d ",
		json_string_value(json_object_get(c, "id")),
		(int)json_integer_value(json_object_get(c, "repeat")));
	return 0;
}

static void test_round_trip(void **unused)
{
	struct jm_store *s = opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;
	char order[256] = "";
	json_t *records;

	(void)unused;
	add_case(s, "bb");
	add_case(s, "aa");
	add_case(s, "bb");
	add_record(s, "aa", 2, "ok", 0.1);
	add_record(s, "bb", 1, "failed", 2);
	add_record(s, "aa", 1, "ok", 1.0 / 3);
	closed(s);
	s = opened(JM_STORE_READ);
	assert_int_equal(jm_store_records(s, false, write_order, order, &err), 0);
	assert_string_equal(order, "bb1 aa1 aa2 ");
	assert_int_equal(jm_store_records_array(s, &records, &err), 0);
	assert_near(json_real_value(json_object_get(json_array_get(records, 1), "throughput")),
		1.0 / 3, 1e-15);
	json_decref(records);
	assert_string_equal(state_of("aa", 1), "ok");
	assert_string_equal(state_of("bb", 1), "failed");
	assert_string_equal(state_of("bb", 2), "none");
	assert_string_equal(state_of("cc", 1), "none");
	closed(s);
}

static void test_plans(void **unused)
{
	struct jm_store *s = opened(JM_STORE_WRITE);
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
	closed(s);
}

static bool same_reading(struct jm_reading a, struct jm_reading b)
{
	return a.t_ns == b.t_ns && (a.value == b.value || (isnan(a.value) && isnan(b.value)));
}

struct compare {
	const struct jm_reading *expected;
	int n;
};

static int compare_reading(void *arg, struct jm_reading reading)
{
	struct compare *c = arg;

	assert_true(same_reading(reading, c->expected[c->n]));
	c->n++;
	return 0;
}

static int keep_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	return jm_store_add_chunk(arg, chunk, err);
}

static struct jm_meters two_signals(void)
{
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meter meter = {.id = "nvml:GPU-1",
		.label = "GPU 0",
		.device = "GPU-1",
		.source = "null",
		.scope = JM_SCOPE_GPU,
		.origin = JM_REPLAYED,
		.covers = "gpu/GPU-1"};
	struct jm_signal power = {.quantity = JM_Q_POWER,
		.step = 0.001,
		.refresh_ns = 100000000,
		.window_ns = 25000000,
		.accuracy = 0.05};
	struct jm_signal energy = {
		.quantity = JM_Q_ENERGY, .wrap = 65536, .window_ns = -1, .accuracy = NAN};

	assert_int_equal(jm_meters_add(&set, &meter, &err), 0);
	assert_int_equal(jm_meters_add_signal(&set, &power, &err), 0);
	assert_int_equal(jm_meters_add_signal(&set, &energy, &err), 1);
	return set;
}

/* What goes in as readings comes out as the same readings of the same signals. */
static void test_trace(void **unused)
{
	const struct jm_reading readings[] = {
		{250.5, 1000000000}, {NAN, 1100000000}, {612.25, 1200000000}, {1e-9, 1300000001}};
	struct jm_store *s = opened(JM_STORE_WRITE);
	struct jm_meters set = two_signals(), back;
	struct jm_err err = JM_ERR_INIT, none = JM_ERR_INIT;
	struct jm_trace *trace = jm_trace_new(&set, &err), *read;
	struct compare c = {readings, 0};

	(void)unused;
	assert_non_null(trace);
	add_case(s, "aa");
	assert_int_equal(jm_store_begin(s, "aa", 1, &err), 0);
	assert_int_equal(jm_store_add_signals(s, &set, &err), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(jm_trace_append(trace, 0, readings[i], &err), 0);
		if (i == 1)
			assert_int_equal(jm_trace_flush(trace, keep_chunk, s, &err), 0);
	}
	assert_int_equal(jm_trace_flush(trace, keep_chunk, s, &err), 0);
	closed(s); /* without a record, as when the program is killed */
	s = opened(JM_STORE_READ);
	assert_string_equal(state_of("aa", 1), "running");
	assert_int_equal(jm_store_trace(s, "aa", 1, &back, &read, &err), 0);
	assert_int_equal(jm_trace_each(read, 0, 0, JM_FOREVER, compare_reading, &c, &err), 0);
	assert_int_equal(c.n, 4);
	assert_string_equal(back.meter[0].id, "nvml:GPU-1");
	assert_int_equal(back.meter[0].origin, JM_REPLAYED);
	assert_int_equal(back.signal[0].window_ns, 25000000);
	assert_true(back.signal[1].quantity == JM_Q_ENERGY && isnan(back.signal[1].accuracy));
	assert_near(back.signal[1].wrap, 65536, 0);
	jm_trace_free(read);
	jm_meters_done(&back);
	assert_int_equal(jm_store_trace(s, "aa", 2, &back, &read, &none), JM_ENOENT);
	jm_trace_free(trace);
	jm_meters_done(&set);
	closed(s);
}

/* An interrupted run is done again: one record, no trace of the first attempt. */
static void test_again(void **unused)
{
	struct jm_store *s = opened(JM_STORE_WRITE);
	struct jm_meters set = two_signals(), back;
	struct jm_err err = JM_ERR_INIT, none = JM_ERR_INIT;
	struct jm_trace *read;
	char order[256] = "";

	(void)unused;
	add_case(s, "aa");
	assert_int_equal(jm_store_begin(s, "aa", 1, &err), 0);
	assert_int_equal(jm_store_add_signals(s, &set, &err), 0);
	closed(s);
	s = opened(JM_STORE_WRITE);
	assert_int_equal(jm_store_records(s, false, write_order, order, &err), 0);
	assert_string_equal(order, "");
	add_record(s, "aa", 1, "failed", 1);
	add_record(s, "aa", 1, "ok", 1);
	assert_int_equal(jm_store_records(s, false, write_order, order, &err), 0);
	assert_string_equal(order, "aa1 ");
	assert_int_equal(jm_store_trace(s, "aa", 1, &back, &read, &none), JM_ENOENT);
	jm_meters_done(&set);
	closed(s);
}

/* A process that is killed with a transaction open loses that, and nothing before it. */
static void test_kill(void **unused)
{
	struct jm_store *s;
	pid_t child = fork();
	int status;

	(void)unused;
	if (!child) {
		s = opened(JM_STORE_WRITE);
		add_case(s, "aa");
		add_case(s, "bb");
		add_record(s, "aa", 1, "ok", 1);
		jm_store_begin(s, "bb", 1, NULL);
		add_case(s, "cc");
		raise(SIGKILL);
	}
	waitpid(child, &status, 0);
	assert_true(WIFSIGNALED(status));
	s = opened(JM_STORE_WRITE);
	assert_string_equal(state_of("aa", 1), "ok");
	assert_string_equal(state_of("bb", 1), "running");
	closed(s);
}

/* After the last commit too: what took the place is not touched, and no log of ours stays beside it. */
static void test_replaced_before_close(void **unused)
{
	struct jm_store *s = opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;
	char other[300], log[300], back[8] = "";
	FILE *f;

	(void)unused;
	snprintf(other, sizeof(other), "%s.other", path);
	snprintf(log, sizeof(log), "%s-wal", path);
	add_case(s, "aa");
	add_record(s, "aa", 1, "ok", 1);
	f = fopen(other, "we");
	assert_int_equal(fwrite("precious", 1, 8, f), 8);
	fclose(f);
	assert_int_equal(access(log, F_OK), 0);
	assert_int_equal(rename(other, path), 0);
	assert_int_equal(jm_store_close(s, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
	f = fopen(path, "re");
	assert_int_equal(fread(back, 1, 8, f), 8);
	fclose(f);
	assert_memory_equal(back, "precious", 8);
	assert_int_equal(access(log, F_OK), -1);
}

/* A file that was made, and in which nothing was stored, is gone; another writer may wait for its lock. */
static void test_made_for_nothing(void **unused)
{
	struct jm_store *s = opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_int_equal(access(path, F_OK), 0);
	closed(s);
	assert_int_equal(access(path, F_OK), -1);
	s = opened(JM_STORE_WRITE);
	add_case(s, "aa");
	assert_int_equal(jm_store_begin(s, "aa", 1, &err), 0);
	jm_store_rollback(s);
	closed(s);
	assert_int_equal(access(path, F_OK), 0);
}

/* All of a run that is over is stored at once, under the next free repeat, or nothing of it. */
static void test_add_run(void **unused)
{
	struct jm_store *s = opened(JM_STORE_WRITE);
	struct jm_err err = JM_ERR_INIT;
	json_t *record = json_pack("{s:s}", "status", "ok");
	int repeat = 0;

	(void)unused;
	add_case(s, "aa");
	add_record(s, "aa", 4, "ok", 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(jm_store_add_run(s, "aa", &repeat, &err), 0);
		assert_int_equal(repeat, 5);
		assert_string_equal(state_of("aa", 5), "none");
		if (!i)
			jm_store_rollback(s);
	}
	assert_int_equal(jm_store_finish(s, record, &err), 0);
	assert_string_equal(state_of("aa", 5), "ok");
	json_decref(record);
	closed(s);
}

static void test_one_writer(void **unused)
{
	struct jm_store *s = opened(JM_STORE_WRITE), *reader;

	(void)unused;
	refused(JM_STORE_WRITE, JM_EBUSY);
	reader = opened(JM_STORE_READ);
	closed(reader);
	closed(s);
	closed(opened(JM_STORE_WRITE));
}

static void write_file(const char *text, size_t n)
{
	FILE *f = fopen(path, "we");

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
	f = fopen(path, "re");
	assert_int_equal(fread(back, 1, 15, f), 14);
	fclose(f);
	assert_string_equal(back, "precious text\n");
	snprintf(path, sizeof(path), "/nonexistent-folder/x.db");
	refused(JM_STORE_WRITE, JM_ENOENT);
	snprintf(path, sizeof(path), "/tmp");
	refused(JM_STORE_WRITE, JM_EFORMAT);
}

static void with_sqlite(const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void make_full_store(int n)
{
	struct jm_store *s = opened(JM_STORE_WRITE);
	char id[16];

	for (int i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "c%03d", i);
		add_case(s, id);
		add_record(s, id, 1, "ok", i);
	}
	closed(s);
}

static void test_foreign_and_newer(void **unused)
{
	(void)unused;
	with_sqlite("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)");
	refused(JM_STORE_WRITE, JM_EFORMAT);
	with_sqlite("SELECT x FROM mine");
	unlink(path);
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
	stat(path, &st);
	memset(noise, 0xa5, sizeof(noise));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	for (off_t at = 4096; at + 4096 <= st.st_size; at += 4096)
		assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
	close(fd);
	refused(JM_STORE_WRITE, JM_EFORMAT);
	assert_int_equal(truncate(path, 2000), 0);
	refused(JM_STORE_WRITE, JM_EFORMAT);
}

/* A child whose files may not grow any more stands for a full disk. */
static int fill_disk(void)
{
	struct rlimit limit = {.rlim_cur = 200000, .rlim_max = 200000};
	struct jm_err err = JM_ERR_INIT;
	json_t *plan = json_pack("{s:s}", "text", "");
	struct jm_store *s = opened(JM_STORE_WRITE);
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
	json_t *records;
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
	s = opened(JM_STORE_WRITE);
	assert_int_equal(jm_store_records_array(s, &records, &err), 0);
	assert_int_equal(json_array_size(records), 5);
	json_decref(records);
	add_case(s, "new");
	add_record(s, "new", 1, "ok", 1);
	closed(s);
}

/* The documented views answer questions asked with sqlite3. */
static void test_views(void **unused)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;

	(void)unused;
	make_full_store(3);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
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
#define CASE(f) cmocka_unit_test_setup_teardown(f, new_path, remove_files)
	const struct CMUnitTest tests[] = {CASE(test_round_trip), CASE(test_plans),
		CASE(test_trace), CASE(test_again), CASE(test_kill), CASE(test_one_writer),
		CASE(test_replaced_before_close), CASE(test_made_for_nothing), CASE(test_add_run),
		CASE(test_not_a_store), CASE(test_foreign_and_newer), CASE(test_damaged),
		CASE(test_full_disk), CASE(test_views)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
