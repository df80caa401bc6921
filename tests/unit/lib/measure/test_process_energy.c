/* SPDX-License-Identifier: Apache-2.0 */
/* Energy divided among processes: a /proc of files, counters and uses that are given, and the
 * products by hand. */
#include "kit/test.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "measure/view/process_energy.h"

#include <sys/stat.h>
#include <unistd.h>

enum { GPU_JOULES, CPU_JOULES };

struct fixture {
	struct jm_ctx ctx;
	struct jm_sleeper me;
	struct jm_session *session;
	struct jm_running *running;
	struct jm_process_energy *energy;
	char root[64];
	struct jm_err err;
};

static struct jm_device_use use_rows[4];

static int open_meters(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
	void **ret_state, struct jm_err *err)
{
	static const struct jm_signal counter = {.quantity = JM_Q_ENERGY};
	struct jm_meter gpu = {.id = "t:gpu",
				.label = "GPU 0",
				.source = "t",
				.scope = JM_SCOPE_GPU,
				.covers = "gpu/x"},
			cpu = {.id = "t:cpu",
				.label = "CPU 0",
				.source = "t",
				.scope = JM_SCOPE_PACKAGE,
				.covers = "cpu/0"};
	int rc = jm_meters_add_whole(set, &gpu, &counter, 1, err);

	(void)ctx, (void)options;
	*ret_state = NULL;
	return rc < 0 ? rc : jm_meters_add_whole(set, &cpu, &counter, 1, err) < 0 ? JM_ENOMEM : 0;
}

static int read_nothing(void *state, struct jm_sink *sink, struct jm_err *err)
{
	(void)state, (void)sink, (void)err;
	return 0;
}

static void close_nothing(void *state)
{
	(void)state;
}

static int uses(void *state, int meter, jm_use_fn *give, void *arg, struct jm_err *err)
{
	(void)state;
	if (meter)
		return jm_err_set(err, JM_ENOENT, "It is no GPU.");
	for (int i = 0; i < 4; i++)
		if (use_rows[i].pid || use_rows[i].use > 0)
			give(arg, &use_rows[i]);
	return 0;
}

static const struct jm_source source = {.name = "t",
	.summary = "two counters",
	.open = open_meters,
	.read = read_nothing,
	.close = close_nothing,
	.uses = uses};

static void write_file(struct fixture *f, const char *name, const char *text)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", f->root, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* start, user and system time in ticks; the name has what a parser could stumble over. */
static void write_process(struct fixture *f, int pid, int start, int user, int system)
{
	char name[200], text[256];

	snprintf(name, sizeof(name), "%s/proc/%d", f->root, pid);
	mkdir(name, 0755);
	snprintf(name, sizeof(name), "proc/%d/stat", pid);
	snprintf(text, sizeof(text),
		"%d (a) b (%d) S 1 2 3 4 5 6 7 8 9 10 %d %d 13 14 15 16 17 18 %d 20\n", pid, pid,
		user, system, start);
	write_file(f, name, text);
}

static void write_machine(struct fixture *f, int ticks)
{
	char text[64];

	snprintf(text, sizeof(text), "cpu  %d 0 0 500 0 0 0 0 0 0\n", ticks);
	write_file(f, "proc/stat", text);
}

static void start(struct fixture *f, const char *namespace)
{
	static const struct jm_source *const table[] = {&source, NULL};
	struct jm_session_options o = {.table = table, .no_trace = true};
	char path[200];

	*f = (struct fixture){.err = JM_ERR_INIT, .root = "/tmp/test_process_energy.XXXXXX"};
	assert_non_null(mkdtemp(f->root));
	for (const char *const *folder =
			(const char *const[]){"proc", "proc/self", "proc/self/ns", NULL};
		*folder; folder++) {
		snprintf(path, sizeof(path), "%s/%s", f->root, *folder);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	snprintf(path, sizeof(path), "%s/proc/self/ns/pid", f->root);
	assert_int_equal(symlink(namespace, path), 0);
	f->ctx = (struct jm_ctx){.clock = jm_clock_new_simulated(0)};
	snprintf(f->ctx.root, sizeof(f->ctx.root), "%s", f->root);
	assert_ok(jm_session_open(&f->ctx, &o, &f->session, &f->err), f->err);
	assert_ok(jm_running_new(jm_session_meters(f->session), &f->running, &f->err), f->err);
	assert_ok(jm_process_energy_new(&f->ctx, f->session, f->running, &f->energy, &f->err),
		f->err);
	jm_sleeper_init(&f->me, f->ctx.clock);
	memset(use_rows, 0, sizeof(use_rows));
}

static void look(struct fixture *f, int second, double gpu_joules, double cpu_joules)
{
	int64_t t_ns = second * JM_SECOND;

	jm_sleep_until(&f->me, t_ns);
	jm_running_take(f->running, GPU_JOULES, (struct jm_reading){gpu_joules, t_ns});
	jm_running_take(f->running, CPU_JOULES, (struct jm_reading){cpu_joules, t_ns});
	assert_ok(jm_process_energy_look(f->energy, &f->err), f->err);
}

static const struct jm_process_row *row_of(struct fixture *f, pid_t pid, bool outside)
{
	int n;
	const struct jm_process_row *row = jm_process_energy_rows(f->energy, &n);

	for (int i = 0; i < n; i++)
		if (row[i].pid == pid && row[i].outside == outside)
			return &row[i];
	return NULL;
}

static void finish(struct fixture *f)
{
	char command[100];

	jm_process_energy_free(f->energy);
	jm_running_free(f->running);
	jm_session_close(f->session);
	jm_sleeper_done(&f->me);
	jm_clock_free(f->ctx.clock);
	snprintf(command, sizeof(command), "rm -r %s", f->root);
	assert_int_equal(system(command), 0);
}

#define OURS   "pid:[4026531836]"
#define OTHERS "pid:[4026532000]"

static void divides_by_processor_time_and_by_use(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, OURS);
	use_rows[0] = (struct jm_device_use){.instance = -1, .pid = 7, .use = 0.6, .bytes = 3e9};
	use_rows[1] = (struct jm_device_use){.instance = -1, .pid = 8, .use = 0.2, .bytes = NAN};
	use_rows[2] = (struct jm_device_use){.instance = -1, .pid = 99, .use = 0, .bytes = 1e9};
	write_machine(&f, 1000);
	write_process(&f, 7, 10, 100, 100);
	write_process(&f, 8, 11, 0, 0);
	look(&f, 1, 5000, 700);
	assert_near(row_of(&f, 7, false)->joules, 0, 0); /* what was before counts for nobody */
	assert_true(isnan(row_of(&f, 7, false)->processors));

	write_machine(&f, 1200); /* 200 ticks: 7 has 60, 9 has 40, processes that ended the rest */
	write_process(&f, 7, 10, 140, 120);
	write_process(&f, 9, 150, 30, 10);
	look(&f, 2, 5400, 900);
	assert_near(row_of(&f, 7, false)->joules, 400 * 0.75 + 200 * 0.3, 1e-9);
	assert_near(row_of(&f, 8, false)->joules, 400 * 0.25, 1e-9);
	assert_near(row_of(&f, 9, false)->joules, 200 * 0.2, 1e-9);
	assert_near(row_of(&f, 7, false)->processors, 60.0 / (double)sysconf(_SC_CLK_TCK), 1e-9);
	assert_near(row_of(&f, 7, false)->bytes, 3e9, 0);
	assert_true(isnan(row_of(&f, 8, false)->bytes) && isnan(row_of(&f, 9, false)->use));
	assert_string_equal(row_of(&f, 7, false)->name, "a) b (7");
	assert_null(row_of(&f, 99, false)); /* it has ended */
	finish(&f);
}

static void an_id_that_is_used_again_is_another_process(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, OURS);
	write_machine(&f, 0);
	write_process(&f, 7, 10, 50, 0);
	look(&f, 1, 0, 0);
	write_machine(&f, 100);
	write_process(&f, 7, 10, 150, 0);
	look(&f, 2, 0, 80);
	assert_near(row_of(&f, 7, false)->joules, 80, 1e-9);
	write_machine(&f, 200);
	write_process(&f, 7, 160, 25, 0);
	look(&f, 3, 0, 180);
	assert_near(row_of(&f, 7, false)->joules, 25, 1e-9);
	finish(&f);
}

static void ids_of_another_namespace_are_not_looked_up(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, OTHERS);
	use_rows[0] = (struct jm_device_use){.instance = -1, .pid = 7, .use = 0.5, .bytes = 1e9};
	write_machine(&f, 0);
	write_process(&f, 7, 10, 0, 0);
	look(&f, 1, 0, 0);
	look(&f, 2, 600, 0);
	look(&f, 3, 900, 0);
	assert_near(row_of(&f, 7, true)->joules, 900, 1e-9);
	assert_near(row_of(&f, 7, false)->joules, 0, 0);
	assert_int_equal(row_of(&f, 7, false)->device, -1);
	finish(&f);
}

/* /proc may be mounted without the file (subset=pid). */
static void without_the_machines_time_the_shares_are_unknown(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, OURS);
	write_process(&f, 7, 10, 50, 0);
	write_process(&f, 8, 10, 50, 0);
	look(&f, 1, 0, 0);
	write_process(&f, 7, 10, 150, 0);
	look(&f, 2, 0, 80);
	assert_true(isnan(row_of(&f, 7, false)->joules));
	assert_near(row_of(&f, 8, false)->joules, 0, 0); /* it did not run */
	finish(&f);
}

/* Of an instance (MIG) with two processes the use of neither is known. */
static void an_instance_is_divided_if_one_process_has_it(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, OURS);
	write_machine(&f, 0);
	for (int pid = 7; pid <= 8; pid++)
		write_process(&f, pid, 10, 0, 0);
	use_rows[0] = (struct jm_device_use){.instance = 1, .name = "a", .use = 30, .bytes = NAN};
	use_rows[1] = (struct jm_device_use){.instance = 1, .pid = 7, .use = NAN, .bytes = 1e6};
	use_rows[2] = (struct jm_device_use){.instance = 2, .name = "b", .use = 10, .bytes = NAN};
	look(&f, 1, 0, 0);
	look(&f, 2, 1000, 0);
	assert_near(row_of(&f, 7, false)->joules, 750, 1e-9);
	use_rows[3] = (struct jm_device_use){.instance = 1, .pid = 8, .use = NAN, .bytes = 1e6};
	look(&f, 3, 2000, 0);
	assert_true(isnan(row_of(&f, 7, false)->joules) && isnan(row_of(&f, 8, false)->joules));
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(divides_by_processor_time_and_by_use),
		cmocka_unit_test(an_id_that_is_used_again_is_another_process),
		cmocka_unit_test(ids_of_another_namespace_are_not_looked_up),
		cmocka_unit_test(without_the_machines_time_the_shares_are_unknown),
		cmocka_unit_test(an_instance_is_divided_if_one_process_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
