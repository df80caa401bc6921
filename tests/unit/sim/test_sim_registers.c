/* SPDX-License-Identifier: Apache-2.0 */
/* The registers of a simulated node: several observers and processes, and a file that may be
 * damaged. */
#include "kit/sim_bench.h"
#include "base/ctx.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void caps_outside_the_range_are_refused(void **state)
{
	static const double bad[] = {199.9, 700.1, -1, 1e9, NAN, INFINITY};
	struct bench b;

	(void)state;
	bench_open(&b, "h200x2", true);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct jm_err err = JM_ERR_INIT;

		assert_int_equal(jm_sim_registers_set_cap(b.registers, 1, bad[i], &err), JM_ERANGE);
		assert_sentence(&err, JM_ERANGE);
		assert_non_null(strstr(err.text, "200 W to 700 W"));
	}
	assert_near(jm_sim_registers_cap(b.registers, 1), 700, 0);
	bench_close(&b);
}

/* ---- several observers and processes --------------------------------------------------------- */

static void many_events_between_two_looks(void **state)
{
	struct bench b;

	(void)state;
	bench_open(&b, "h100x2", true);
	read_signal(&b, 0, JM_Q_POWER);
	for (int i = 0; i < 1000; i++)
		set_caps(&b, 300 + i % 7);
	load(&b, "sd-v2", 1);
	set_caps(&b, 250);
	until(&b, 10);
	assert_near(value(&b, 0, JM_Q_POWER_AVERAGE), 250, 2); /* lost events, not the truth */
	bench_close(&b);
}

static void two_loads_do_not_mix(void **state)
{
	struct jm_sim_load l = {.response = 0};
	struct jm_sim_registers *other;
	struct jm_err err = JM_ERR_INIT;
	struct bench b;

	(void)state;
	bench_open(&b, "h100x2", true);
	load(&b, "sd-v2", 1);
	assert_ok(jm_sim_registers_open(&b.ctx, "h100x2", &other, &err), err);
	assert_int_equal(jm_sim_registers_load(other, &l, &err), JM_EBUSY);
	assert_sentence(&err, JM_EBUSY);
	jm_sim_registers_unload(b.registers);
	assert_int_equal(jm_sim_registers_load(other, &l, NULL), 0);
	jm_sim_registers_close(other);
	load(&b, "sd-v2", 1);
	bench_close(&b);
}

static void simulated_times_are_apart(void **state)
{
	struct bench a, b;

	(void)state;
	bench_open(&a, "h100x2", true);
	bench_open(&b, "h100x2", true);
	load(&a, "sd-v2", 1);
	load(&b, "resnet50", 1);
	set_caps(&b, 400);
	until(&a, 10);
	until(&b, 5);
	assert_near(value(&a, 0, JM_Q_UTILISATION), 1, 0);
	bench_close(&b);
	bench_open(&b, "h100x2", true);
	until(&b, 1);
	assert_near(value(&b, 0, JM_Q_UTILISATION), 0, 0);
	assert_near(value(&b, 0, JM_Q_LIMIT), 400, 0); /* a cap is everybody's */
	until(&a, 20);
	assert_near(value(&a, 0, JM_Q_POWER_AVERAGE), 400, 3);
	set_caps(&a, 700);
	bench_close(&b);
	bench_close(&a);
}

static void pause_ms(long ms)
{
	struct timespec ts = {.tv_nsec = ms * 1000000};

	nanosleep(&ts, NULL);
}

/* A child puts the node under load in real time and waits to be killed. */
static pid_t loading_child(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct jm_sim_registers *r;
		struct jm_sim_load l = {.response = 1};
		struct jm_ctx ctx;

		if (jm_ctx_init(&ctx, NULL) || jm_sim_registers_open(&ctx, "h100x3", &r, NULL) ||
			jm_sim_registers_load(r, &l, NULL) || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void real_time_is_shared_and_a_dead_owner_ends_its_load(void **state)
{
	struct jm_sim_load l = {.response = 0};
	struct bench b, late;
	pid_t pid;

	(void)state;
	bench_open(&b, "h100x3", false);
	assert_near(value(&b, 0, JM_Q_UTILISATION), 0, 0);
	pid = loading_child();
	pause_ms(250);
	assert_near(value(&b, 0, JM_Q_UTILISATION), 1, 0);
	assert_true(value(&b, 0, JM_Q_POWER) > 600);
	assert_int_equal(jm_sim_registers_load(b.registers, &l, NULL), JM_EBUSY);
	bench_open(&late, "h100x3", false);
	assert_true(value(&late, 0, JM_Q_POWER) > 600);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	pause_ms(120);
	value(&b, 0, JM_Q_UTILISATION); /* notices */
	pause_ms(250);
	assert_near(value(&b, 0, JM_Q_UTILISATION), 0, 0);
	assert_true(value(&b, 0, JM_Q_POWER) < 150);
	assert_int_equal(jm_sim_registers_load(b.registers, &l, NULL), 0);
	bench_close(&late);
	bench_close(&b);
}

/* ---- the file -------------------------------------------------------------------------------- */

static const char *file_of(const char *node)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/sim/%s.knobs", getenv("JM_STATE"), node);
	return path;
}

/* Opens must fail with that code after the bytes were written at that offset. */
static void damaged(long offset, const void *bytes, size_t n, int code)
{
	struct jm_sim_registers *r = NULL;
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;
	int fd;

	unlink(file_of("h200x8"));
	assert_ok(jm_ctx_init(&ctx, &err), err);
	assert_ok(jm_sim_registers_open(&ctx, "h200x8", &r, &err), err);
	jm_sim_registers_close(r);
	r = NULL;
	fd = open(file_of("h200x8"), O_WRONLY);
	assert_true(fd >= 0);
	if (n)
		assert_int_equal(pwrite(fd, bytes, n, offset), n);
	else
		assert_int_equal(ftruncate(fd, offset), 0);
	close(fd);
	assert_int_equal(jm_sim_registers_open(&ctx, "h200x8", &r, &err), code);
	assert_sentence(&err, code);
	assert_non_null(strstr(err.text, file_of("h200x8")));
	assert_null(r);
}

static void damaged_files_are_refused(void **state)
{
	static const double nan_watts = NAN, many = 1e6;

	(void)state;
	damaged(0, "", 0, JM_EFORMAT);
	damaged(100, "", 0, JM_EFORMAT);
	damaged(0, "garbage", 8, JM_EFORMAT);
	damaged(8, "\x07\0\0\0", 4, JM_EVERSION);
	damaged(12, "\0\0\0\0", 4, JM_EFORMAT);
	damaged(16, "h100x4", 7, JM_EFORMAT);
	damaged(40, "\0\0\0\0\0\0\0", 8, JM_EFORMAT);
	damaged(48, &nan_watts, 8, JM_EFORMAT);
	damaged(48 + 7 * 8, &many, 8, JM_EFORMAT);
	unlink(file_of("h200x8"));
}

/* Of a joulemark after this one, whose file is larger: the message says so. */
static void a_newer_file_is_named(void **state)
{
	struct jm_sim_registers *r = NULL;
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;
	int fd;

	(void)state;
	assert_ok(jm_ctx_init(&ctx, &err), err);
	assert_ok(jm_sim_registers_open(&ctx, "h200x8", &r, &err), err);
	jm_sim_registers_close(r);
	r = NULL;
	fd = open(file_of("h200x8"), O_WRONLY);
	assert_int_equal(pwrite(fd, "\x07\0\0\0", 4, 8), 4);
	assert_int_equal(ftruncate(fd, 100000), 0);
	close(fd);
	assert_int_equal(jm_sim_registers_open(&ctx, "h200x8", &r, &err), JM_EVERSION);
	assert_non_null(strstr(err.text, "has version 7"));
	assert_null(r);
	unlink(file_of("h200x8"));
}

/* Of a joulemark before this one: made anew. */
static void an_older_file_is_replaced(void **state)
{
	struct jm_sim_registers *r = NULL;
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;
	int fd;

	(void)state;
	assert_ok(jm_ctx_init(&ctx, &err), err);
	assert_ok(jm_sim_registers_open(&ctx, "h200x8", &r, &err), err);
	assert_ok(jm_sim_registers_set_cap(r, 0, 300, &err), err);
	jm_sim_registers_close(r);
	fd = open(file_of("h200x8"), O_WRONLY);
	assert_int_equal(pwrite(fd, "\x01\0\0\0", 4, 8), 4);
	assert_int_equal(ftruncate(fd, 5000), 0);
	close(fd);
	assert_ok(jm_sim_registers_open(&ctx, "h200x8", &r, &err), err);
	assert_near(jm_sim_registers_cap(r, 0), 700, 0);
	assert_int_equal(jm_sim_registers_set_clock(r, 0, 1e9, NAN, NULL), JM_ERANGE);
	assert_int_equal(jm_sim_registers_set_clock(r, 0, 1e9, 9e8, NULL), JM_ERANGE);
	assert_near(jm_sim_registers_limits(r, 0).clock_hz, 1980e6, 0);
	jm_sim_registers_close(r);
	unlink(file_of("h200x8"));
}

/* While a node is open somebody scribbles over its event log: it goes on with what the caps say
 * now. */
/* ---- another process that is in the middle of it, with the writer's lock ---- */

#define CLOCK_LOW (48 + 8 * JM_SIM_GPUS_MAX) /* where its words begin */

struct opener {
	struct jm_ctx ctx;
	struct jm_sim_registers *r;
	struct jm_err err;
};

static void *open_registers(void *arg)
{
	struct opener *o = arg;

	jm_sim_registers_open(&o->ctx, "h200x8", &o->r, &o->err);
	return NULL;
}

/* Opens while `other` holds the lock, and until it has done what it does. */
static void open_beside(struct opener *o, void (*other)(struct jm_ctx *ctx, int fd), int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	pthread_t thread;

	*o = (struct opener){.err = JM_ERR_INIT};
	assert_ok(jm_ctx_init(&o->ctx, &o->err), o->err);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
	assert_int_equal(pthread_create(&thread, NULL, open_registers, o), 0);
	pause_ms(100); /* one that is later finds it done */
	other(&o->ctx, fd);
	close(fd);
	pthread_join(thread, NULL);
	assert_ok(o->err.code, o->err);
}

static int open_new(struct jm_ctx *ctx)
{
	struct jm_sim_registers *r;

	unlink(file_of("h200x8"));
	assert_int_equal(jm_sim_registers_open(ctx, "h200x8", &r, NULL), 0);
	jm_sim_registers_close(r);
	return open(file_of("h200x8"), O_RDWR);
}

static void write_high(struct jm_ctx *ctx, int fd)
{
	double hz = 1980e6;

	(void)ctx;
	assert_int_equal(pwrite(fd, &hz, 8, CLOCK_LOW + 8 * JM_SIM_GPUS_MAX), 8);
}

static void a_clock_that_is_being_set_is_not_damaged(void **state)
{
	double low = 1500e6, high = 1000e6;
	struct opener o;
	int fd;

	(void)state;
	assert_int_equal(jm_ctx_init(&o.ctx, NULL), 0);
	fd = open_new(&o.ctx);
	assert_int_equal(pwrite(fd, &low, 8, CLOCK_LOW), 8);
	assert_int_equal(pwrite(fd, &high, 8, CLOCK_LOW + 8 * JM_SIM_GPUS_MAX), 8);
	open_beside(&o, write_high, fd);
	jm_sim_registers_clock(o.r, 0, &low, &high);
	assert_near(low, 1500e6, 0);
	assert_near(high, 1980e6, 0);
	jm_sim_registers_close(o.r);
	unlink(file_of("h200x8"));
}

static void replace(struct jm_ctx *ctx, int fd)
{
	struct jm_sim_registers *r;

	(void)fd;
	close(open_new(ctx));
	assert_int_equal(jm_sim_registers_open(ctx, "h200x8", &r, NULL), 0);
	assert_int_equal(jm_sim_registers_set_cap(r, 0, 300, NULL), 0);
	jm_sim_registers_close(r);
}

static void an_older_file_is_replaced_once(void **state)
{
	struct opener o;
	int fd;

	(void)state;
	assert_int_equal(jm_ctx_init(&o.ctx, NULL), 0);
	fd = open_new(&o.ctx);
	assert_int_equal(pwrite(fd, "\x01\0\0\0", 4, 8), 4);
	open_beside(&o, replace, fd);
	assert_near(jm_sim_registers_cap(o.r, 0), 300, 0);
	jm_sim_registers_close(o.r);
	unlink(file_of("h200x8"));
}

static void a_damaged_log_does_not_hang(void **state)
{
	unsigned char junk[4096];
	struct bench b;
	int fd;

	(void)state;
	bench_open(&b, "h200x6", true);
	memset(junk, 0xa5, sizeof(junk));
	set_caps(&b, 500);
	fd = open(file_of("h200x6"), O_WRONLY);
	assert_true(pwrite(fd, junk, sizeof(junk), 512) > 0);
	until(&b, 10);
	assert_near(value(&b, 0, JM_Q_LIMIT), 700, 0);
	until(&b, 20);
	assert_near(value(&b, 0, JM_Q_LIMIT), 500, 0);
	assert_true(pwrite(fd, "\x01\0\0\0\0\0\0", 8, 40) == 8); /* the sequence goes back */
	until(&b, 30);
	assert_near(value(&b, 5, JM_Q_POWER), 75, 2);
	close(fd);
	bench_close(&b);
	unlink(file_of("h200x6"));
}

static void a_folder_in_its_place_is_refused(void **state)
{
	struct jm_sim_registers *r = NULL;
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;

	(void)state;
	assert_ok(jm_ctx_init(&ctx, &err), err);
	unlink(file_of("h200x7"));
	assert_int_equal(mkdir(file_of("h200x7"), 0755), 0);
	assert_int_equal(jm_sim_registers_open(&ctx, "h200x7", &r, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
	rmdir(file_of("h200x7"));
}

static void many_may_make_it_at_once(void **state)
{
	enum { N = 8 };
	pid_t pid[N];

	(void)state;
	unlink(file_of("mi300xx3"));
	for (int i = 0; i < N; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			struct jm_sim_registers *r;
			struct jm_ctx ctx;

			if (jm_ctx_init(&ctx, NULL) ||
				jm_sim_registers_open(&ctx, "mi300xx3", &r, NULL))
				_exit(1);
			for (int k = 0; k < 200; k++)
				if (jm_sim_registers_set_cap(r, i % 3, 300 + k, NULL))
					_exit(2);
			_exit(0);
		}
	}
	for (int i = 0; i < N; i++) {
		int status;

		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(caps_outside_the_range_are_refused),
		cmocka_unit_test(many_events_between_two_looks),
		cmocka_unit_test(two_loads_do_not_mix),
		cmocka_unit_test(simulated_times_are_apart),
		cmocka_unit_test(real_time_is_shared_and_a_dead_owner_ends_its_load),
		cmocka_unit_test(damaged_files_are_refused),
		cmocka_unit_test(a_newer_file_is_named),
		cmocka_unit_test(an_older_file_is_replaced),
		cmocka_unit_test(a_clock_that_is_being_set_is_not_damaged),
		cmocka_unit_test(an_older_file_is_replaced_once),
		cmocka_unit_test(a_damaged_log_does_not_hang),
		cmocka_unit_test(a_folder_in_its_place_is_refused),
		cmocka_unit_test(many_may_make_it_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
