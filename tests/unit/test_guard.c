/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard on the false NVML: set, partial failure, restore, keep, locks, kills, damaged journals. The
 * limits are read from the false driver's state itself. This program is executed again as the guard.
 */
#include "guard/guard.h"
#include "guard/guard_wire.h"
#include "guard/journal.h"
#include "tests/fake/nvml_fake.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define GPUS 4

struct fixture {
	struct jm_ctx ctx;
	char folder[256], driver[300], log[4096];
	struct jm_err err;
	struct jm_applied out[GPUS];
	int n;
};

static void keep_log(void *arg, enum jm_level level, const char *line)
{
	struct fixture *f = arg;

	(void)level;
	strncat(f->log, line, sizeof(f->log) - strlen(f->log) - 1);
}

static void configure(const char *extra)
{
	char text[256];

	snprintf(text, sizeof(text), "gpus=%d;%s", GPUS, extra);
	setenv("JM_FAKE_NVML", text, 1);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char library[512];

	jm_ctx_init(&f->ctx, NULL);
	f->ctx.log = keep_log;
	f->ctx.log_arg = f;
	snprintf(f->folder, sizeof(f->folder), "/tmp/jm-guard-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->driver, sizeof(f->driver), "%s/driver", f->folder);
	snprintf(
		library, sizeof(library), "%s/tests/fake/libnvidia-ml-fake.so", getenv("JM_BUILD"));
	setenv("JM_NVML_LIB", library, 1);
	setenv("JM_FAKE_NVML_STATE", f->driver, 1);
	setenv("JM_STATE", f->folder, 1);
	configure("");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[400];

	snprintf(command, sizeof(command), "rm -rf %s", f->folder);
	if (system(command))
		return -1;
	free(f);
	return 0;
}

/* The limit that the driver holds, W. */
static double limit(struct fixture *f, int gpu)
{
	struct state *s = malloc(sizeof(*s));
	int fd = open(f->driver, O_RDONLY | O_CLOEXEC);
	double watts = NAN;

	assert_int_equal(read(fd, s, sizeof(*s)), sizeof(*s));
	watts = s->gpu[gpu].requested_mw / 1000.0;
	close(fd);
	free(s);
	return watts;
}

static void limits_are(struct fixture *f, double a, double b, double c, double d)
{
	const double want[GPUS] = {a, b, c, d};

	for (int i = 0; i < GPUS; i++)
		if (limit(f, i) != want[i])
			fail_msg("GPU %d stands at %g W, not %g W; log: %s", i, limit(f, i),
				want[i], f->log);
}

static int journals(struct fixture *f)
{
	char path[300];
	struct dirent *e;
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "%s/knobs", f->folder);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		n += strstr(e->d_name, ".journal") != NULL;
	if (dir)
		closedir(dir);
	return n;
}

static struct jm_guard *start(struct fixture *f)
{
	struct jm_guard *g = NULL;

	if (jm_guard_start(&f->ctx, "nvml", &g, &f->err))
		fail_msg("%s", f->err.text);
	return g;
}

static int set(struct fixture *f, struct jm_guard *g, const char *selector, double watts)
{
	struct jm_setting s = {.knob = "gpu.power", .value = watts};

	snprintf(s.selector, sizeof(s.selector), "%s", selector);
	return jm_guard_set(g, &s, 1, f->out, &f->n, &f->err);
}

static void test_set_and_stop(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(jm_guard_knobs(g)->n, GPUS);
	assert_int_equal(set(f, g, "", 300), 0);
	assert_int_equal(f->n, GPUS);
	assert_true(f->out[3].accepted == 300 && f->out[3].enforced == 300);
	limits_are(f, 300, 300, 300, 300);
	assert_int_equal(set(f, g, "GPU-2", 400), 0);
	limits_are(f, 300, 300, 400, 300);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* What was found comes back, not the default. */
static void test_found_is_not_default(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "GPU-1", 555), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	g = start(f);
	assert_int_equal(set(f, g, "", JM_SETTING_DEFAULT), 0);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(jm_guard_restore(g, &f->err), 0);
	limits_are(f, 700, 555, 700, 700);
	assert_int_equal(set(f, g, "", 250), 0);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	limits_are(f, 700, 555, 700, 700);
}

static void test_partial_failure_rolls_back(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	configure("deny=2");
	g = start(f);
	assert_int_equal(set(f, g, "GPU-0", 350), 0);
	assert_int_equal(set(f, g, "", 300), JM_EPERM);
	assert_non_null(strstr(f->err.text, "GPU 2"));
	assert_non_null(strstr(f->err.text, "root"));
	limits_are(f, 350, 700, 700, 700);
	assert_int_equal(jm_guard_stop(g, NULL), 0);
	limits_are(f, 700, 700, 700, 700);
}

static void test_two_settings_of_one_knob(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);
	const struct jm_setting s[] = {{"gpu.power", "", 300}, {"gpu.power", "GPU-1", 400}};

	assert_int_equal(jm_guard_set(g, s, 2, f->out, &f->n, &f->err), JM_EUSAGE);
	limits_are(f, 700, 700, 700, 700);
	jm_guard_stop(g, NULL);
}

static void test_enforced_is_told(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	configure("enforce=1:250");
	g = start(f);
	assert_int_equal(set(f, g, "GPU-1", 400), 0);
	assert_true(f->out[0].requested == 400 && f->out[0].accepted == 400);
	assert_true(f->out[0].enforced == 250);
	jm_guard_stop(g, NULL);
}

static void test_one_holder(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *a = start(f), *b = start(f);
	char pid[20];

	assert_int_equal(set(f, a, "GPU-0", 300), 0);
	assert_int_equal(set(f, b, "", 400), JM_EBUSY);
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	assert_non_null(strstr(f->err.text, pid));
	limits_are(f, 300, 700, 700, 700);
	assert_int_equal(set(f, b, "GPU-1", 400), 0);
	assert_int_equal(jm_guard_stop(a, NULL), 0);
	limits_are(f, 700, 400, 700, 700);
	assert_int_equal(set(f, b, "GPU-0", 400), 0);
	assert_int_equal(jm_guard_stop(b, NULL), 0);
	limits_are(f, 700, 700, 700, 700);
}

static void test_keep_and_release(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);
	struct jm_hold *holds;
	int n;

	assert_int_equal(set(f, g, "", 300), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	limits_are(f, 300, 300, 300, 300);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 0);
	limits_are(f, 300, 300, 300, 300);
	/* kept once more: the base stays the value before the first */
	g = start(f);
	assert_int_equal(set(f, g, "", 200), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	kill(jm_guard_pid(g), SIGKILL); /* too late to matter, and nobody says otherwise */
	for (int i = 0; i < 500 && jm_guard_alive(g); i++)
		usleep(10000);
	assert_int_equal(jm_guard_restore(g, &f->err), JM_EGONE);
	assert_null(strstr(f->err.text, "back as it was found"));
	assert_int_equal(jm_guard_stop(g, NULL), 0);
	limits_are(f, 200, 200, 200, 200);
	assert_int_equal(jm_guard_holds(&f->ctx, &holds, &n, &f->err), 0);
	assert_int_equal(n, GPUS);
	assert_true(holds[0].found == 700 && holds[0].held == JM_HELD_KEPT);
	free(holds);
	assert_int_equal(jm_guard_release(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, GPUS);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* Set by hand to what was there before the first: nothing is kept any more. */
static void test_keep_at_home(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "", 300), 0);
	assert_int_equal(jm_guard_keep(g, NULL), 0);
	jm_guard_stop(g, NULL);
	g = start(f);
	assert_int_equal(set(f, g, "", JM_SETTING_DEFAULT), 0);
	assert_int_equal(jm_guard_keep(g, NULL), 0);
	jm_guard_stop(g, NULL);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* The guard is killed: its client restores at once. */
static void test_guard_killed(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);

	assert_int_equal(set(f, g, "", 300), 0);
	assert_true(jm_guard_alive(g));
	kill(jm_guard_pid(g), SIGKILL);
	for (int i = 0; i < 500 && limit(f, 0) != 700; i++)
		usleep(10000);
	for (int i = 0; i < 500 && jm_guard_alive(g); i++)
		usleep(10000);
	assert_int_equal(set(f, g, "", 400), JM_EGONE);
	limits_are(f, 700, 700, 700, 700);
	f->err.code = 0;
	assert_int_equal(jm_guard_stop(g, &f->err), JM_EGONE);
	assert_int_equal(journals(f), 0);
}

/* A client that sets 300 W and dies of the signal; with_guard: its guard dies with it. */
static void crash(struct fixture *f, bool with_guard)
{
	pid_t pid = fork();

	if (!pid) {
		struct jm_guard *g = NULL;

		if (jm_guard_start(&f->ctx, "nvml", &g, NULL) || set(f, g, "", 300))
			_exit(1);
		if (with_guard)
			kill(jm_guard_pid(g), SIGSTOP);
		if (with_guard)
			kill(jm_guard_pid(g), SIGKILL);
		raise(SIGKILL);
	}
	waitpid(pid, NULL, 0);
}

static void test_client_killed(void **state)
{
	struct fixture *f = *state;

	crash(f, false);
	for (int i = 0; i < 500 && (limit(f, 3) != 700 || journals(f)); i++)
		usleep(10000);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

static void test_both_killed(void **state)
{
	struct fixture *f = *state;
	int n = 0;

	crash(f, true);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

/* A second crash, or a guard that finds a stale journal: the first value found is the one. */
static void test_stale_journal_is_settled_first(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	crash(f, true);
	g = start(f);
	assert_int_equal(set(f, g, "", 500), 0);
	jm_guard_stop(g, NULL);
	limits_are(f, 700, 700, 700, 700);
}

static void test_restore_fails_and_stays(void **state)
{
	struct fixture *f = *state;
	int n = 0;

	crash(f, true);
	configure("deny=1");
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), JM_EPERM);
	limits_are(f, 700, limit(f, 1), 700, 700);
	assert_non_null(strstr(f->log, "NOT back"));
	assert_int_equal(journals(f), limit(f, 1) == 700 ? 0 : 1);
	configure("");
	assert_int_equal(jm_guard_recover(&f->ctx, &n, NULL), 0);
	limits_are(f, 700, 700, 700, 700);
}

/* ---- journals that a crash or a bad disk has left ---------------------------------------------------- */

static void journal_path(struct fixture *f, char *out, size_t size)
{
	struct dirent *e;
	DIR *dir;

	snprintf(out, size, "%s/knobs", f->folder);
	dir = opendir(out);
	while ((e = readdir(dir)))
		if (strstr(e->d_name, "journal"))
			snprintf(out, size, "%s/knobs/%.100s", f->folder, e->d_name);
	closedir(dir);
}

/* A journal of GPU 0 with one line: found. */
static void write_found(struct fixture *f, const char *boot, double found, struct jm_journal *j)
{
	struct jm_journal_state s = {.knob = "gpu.power",
		.unit = "W",
		.device = "GPU-00000000-fa4e-4000-8000-000000000000",
		.control = "nvml:all",
		.pid = 1 << 30};

	snprintf(s.boot, sizeof(s.boot), "%s", boot);
	assert_int_equal(jm_journal_open(&f->ctx, s.knob, s.device, j, &f->err), 0);
	assert_int_equal(jm_journal_write(j, &s, JM_JOURNAL_FOUND, found, &f->err), 0);
}

static void append(struct fixture *f, const char *bytes)
{
	char path[500];
	int fd;

	journal_path(f, path, sizeof(path));
	fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
	close(fd);
}

static void test_torn_line(void **state)
{
	struct fixture *f = *state;
	struct jm_journal j;
	int n;

	write_found(f, "", 444, &j);
	jm_journal_close(&j);
	append(f, "1\tback\t\tnvml:all\tgpu.pow");
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 1);
	assert_true(limit(f, 0) == 444);
	assert_int_equal(journals(f), 0);
}

/* Cut at every byte: either the whole line counts or none of it. */
static void test_every_cut(void **state)
{
	struct fixture *f = *state;
	struct jm_journal_state s;
	struct jm_journal j;
	struct stat st;
	char path[500];
	bool live;

	write_found(f, "", 444, &j);
	jm_journal_close(&j);
	journal_path(f, path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	for (off_t size = st.st_size; size >= 0; size--) {
		assert_int_equal(truncate(path, size), 0);
		assert_int_equal(jm_journal_peek(path, &s, &live, NULL), 0);
		assert_int_equal(s.open, size == st.st_size);
		assert_int_equal(s.damaged, 0);
		assert_false(live);
	}
}

static void test_damaged_line(void **state)
{
	struct fixture *f = *state;
	struct jm_journal j;
	char path[500];
	int fd, n;

	write_found(f, "", 333, &j);
	assert_int_equal(jm_journal_write(&j, &j.now, JM_JOURNAL_FOUND, 444, NULL), 0);
	jm_journal_close(&j);
	journal_path(f, path, sizeof(path));
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "X", 1, 3), 1);
	close(fd);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_true(limit(f, 0) == 444);
	assert_non_null(strstr(f->log, "1 damaged line"));
	/* set aside, not thrown away */
	assert_int_equal(journals(f), 1);
	journal_path(f, path, sizeof(path));
	assert_non_null(strstr(path, ".damaged"));
}

/* A restart has put the limit back by itself; the old value must not come upon it. */
static void test_other_boot(void **state)
{
	struct fixture *f = *state;
	struct jm_journal j;
	int n;

	write_found(f, "another-boot", 444, &j);
	jm_journal_close(&j);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 0);
	assert_non_null(strstr(f->log, "restarted"));
	assert_int_equal(journals(f), 0);
}

static void leave_behind(struct fixture *f, struct jm_journal_state *s, double found)
{
	struct jm_journal j;

	assert_int_equal(jm_journal_open(&f->ctx, s->knob, s->device, &j, &f->err), 0);
	assert_int_equal(jm_journal_write(&j, s, JM_JOURNAL_FOUND, found, &f->err), 0);
	jm_journal_close(&j);
}

static void test_device_not_here(void **state)
{
	struct fixture *f = *state;
	struct jm_journal_state s = {
		.knob = "gpu.power", .device = "GPU-none", .control = "nvml:all"};
	int n;

	leave_behind(f, &s, 300);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), JM_EGONE);
	assert_non_null(strstr(f->err.text, "GPU-none"));
	assert_int_equal(journals(f), 1);
}

/* Names as long as they may be: the journal is found again. */
static void test_long_names(void **state)
{
	struct fixture *f = *state;
	struct jm_journal_state s = {.unit = "W", .control = "nvml:all"};
	struct jm_hold *holds;
	int n;

	memset(s.knob, 'k', sizeof(s.knob) - 1);
	memset(s.device, 'd', sizeof(s.device) - 1);
	leave_behind(f, &s, 300);
	assert_int_equal(jm_guard_holds(&f->ctx, &holds, &n, &f->err), 0);
	assert_int_equal(n, 1);
	assert_string_equal(holds[0].knob, s.knob);
	free(holds);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), JM_EGONE);
}

/* Each simulated node is a control of its own. */
static void test_many_controls(void **state)
{
	struct fixture *f = *state;
	int n;

	for (int i = 0; i < 16; i++) {
		struct jm_journal_state s = {.knob = "gpu.power", .unit = "W"};

		snprintf(s.control, sizeof(s.control), "sim:%sx%d", i < 8 ? "h100" : "h200",
			i % 8 + 1);
		snprintf(s.device, sizeof(s.device), "%s/gpu0", s.control);
		leave_behind(f, &s, 300);
	}
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 16);
	assert_int_equal(journals(f), 0);
}

static void test_no_knobs(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	/* an empty variable in a script must not mean the machine's own GPUs */
	assert_int_equal(jm_guard_start(&f->ctx, "", &g, NULL), JM_EUSAGE);
	setenv("JM_NVML_LIB", "/nowhere.so", 1);
	assert_int_equal(jm_guard_start(&f->ctx, NULL, &g, &f->err), JM_ENOENT);
	assert_non_null(strstr(f->err.text, "/nowhere.so"));
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_set_and_stop),
		TEST(test_found_is_not_default),
		TEST(test_partial_failure_rolls_back),
		TEST(test_two_settings_of_one_knob),
		TEST(test_enforced_is_told),
		TEST(test_one_holder),
		TEST(test_keep_and_release),
		TEST(test_keep_at_home),
		TEST(test_guard_killed),
		TEST(test_client_killed),
		TEST(test_both_killed),
		TEST(test_stale_journal_is_settled_first),
		TEST(test_restore_fails_and_stays),
		TEST(test_torn_line),
		TEST(test_every_cut),
		TEST(test_damaged_line),
		TEST(test_other_boot),
		TEST(test_device_not_here),
		TEST(test_long_names),
		TEST(test_many_controls),
		TEST(test_no_knobs),
	};
	struct jm_ctx ctx;

	if (argc > 1 && !strcmp(argv[1], "guard"))
		return jm_ctx_init(&ctx, NULL) || jm_guard_serve(&ctx, JM_WIRE_FD, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
