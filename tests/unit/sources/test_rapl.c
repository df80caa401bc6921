/* SPDX-License-Identifier: Apache-2.0 */
/* RAPL on a tree like that of Linux: domains, wrap, twins, psys, files that cannot be read. */
#include "kit/test.h"
#include "kit/source_row.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "measure/session/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct jm_source jm_source_rapl;

static char root[64];

static void put(const char *zone, const char *file, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/sys/class/powercap/%s", root, zone);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/sys/class/powercap/%s/%s", root, zone, file);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* Text of the same length, in one write: a reader in between sees the old or the new one, never an
 * empty file. */
static void change(const char *zone, const char *file, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/sys/class/powercap/%s/%s", root, zone, file);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void zone(const char *folder, const char *name, const char *energy)
{
	put(folder, "name", name);
	put(folder, "max_energy_range_uj", "262143328850\n");
	if (energy)
		put(folder, "energy_uj", energy);
}

static int make_tree(void **state)
{
	static const char *const parts[] = {"", "/sys", "/sys/class", "/sys/class/powercap"};
	char path[128];

	(void)state;
	snprintf(root, sizeof(root), "/tmp/jm-rapl-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	for (size_t i = 1; i < 4; i++) {
		snprintf(path, sizeof(path), "%s%s", root, parts[i]);
		mkdir(path, 0755);
	}
	return 0;
}

static int remove_tree(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static void whole_server(void)
{
	zone("intel-rapl:0", "package-0\n", "1000000\n");
	zone("intel-rapl:0:0", "core\n", "400000\n");
	zone("intel-rapl:0:1", "dram\n", "300000\n");
	zone("intel-rapl:1", "package-1\n", "2000000\n");
	zone("intel-rapl:1:0", "dram\n", "300000\n");
	zone("intel-rapl:2", "psys\n", "9000000\n");
	zone("intel-rapl-mmio:0", "package-0\n", "1000000\n");
	put("intel-rapl", "enabled", "1\n");
}

static struct jm_ctx context(void)
{
	struct jm_ctx ctx = {.clock = jm_clock_real()};

	snprintf(ctx.root, sizeof(ctx.root), "%s", root);
	return ctx;
}

#define PACKAGE "rapl:/sys/class/powercap/intel-rapl:0"
#define CORE	PACKAGE ":0"

static int find(const struct jm_meters *set, const char *id)
{
	for (int i = 0; i < set->n; i++)
		if (!strcmp(set->meter[i].id, id))
			return i;
	fail_msg("no meter %s", id);
	return -1;
}

/* The source on a server with two packages, core, DRAM and the platform. */
struct server {
	struct jm_ctx ctx;
	struct jm_meters set;
	void *rapl;
	int psys, package, core, dram;
};

static int open_server(void **state)
{
	static struct server s;
	struct jm_err err = JM_ERR_INIT;

	if (make_tree(state))
		return -1;
	s = (struct server){.ctx = context()};
	whole_server();
	assert_ok(jm_source_open(&jm_source_rapl, &s.ctx, "", &s.set, &s.rapl, &err), err);
	jm_meters_derive(&s.set);
	s.psys = find(&s.set, "rapl:/sys/class/powercap/intel-rapl:2");
	s.package = find(&s.set, PACKAGE);
	s.core = find(&s.set, CORE);
	s.dram = find(&s.set, PACKAGE ":1");
	*state = &s;
	return 0;
}

static int close_server(void **state)
{
	struct server *s = *state;

	jm_source_rapl.close(s->rapl);
	jm_meters_done(&s->set);
	return remove_tree(state);
}

static double value_of(struct server *s, int meter)
{
	struct jm_reading r[8];
	struct jm_err err = JM_ERR_INIT;

	assert_ok(read_row(&jm_source_rapl, s->rapl, r, &err), err);
	return r[s->set.meter[meter].first_signal].value;
}

static void each_domain_is_a_meter_and_a_twin_is_none(void **state)
{
	const struct server *s = *state;

	assert_int_equal(s->set.n, 6);
}

static void domains_lie_inside_each_other(void **state)
{
	const struct server *s = *state;

	assert_int_equal(s->set.meter[s->psys].covered_by, -1);
	assert_int_equal(s->set.meter[s->package].covered_by, s->psys);
	assert_int_equal(s->set.meter[s->core].covered_by, s->package);
	assert_string_equal(s->set.meter[s->package].label, "CPU 0");
	assert_string_equal(s->set.meter[s->dram].label, "DRAM 0");
	assert_string_equal(s->set.meter[s->psys].label, "platform");
	assert_int_equal(s->set.meter[s->dram].covered_by, s->psys);
	assert_string_equal(s->set.meter[s->dram].covers, "dram/0");
}

static void counters_are_joules_that_wrap_at_their_range(void **state)
{
	struct server *s = *state;

	assert_near(s->set.signal[s->set.meter[s->package].first_signal].wrap, 262143.32885, 1e-9);
	assert_near(value_of(s, s->core), 0.4, 1e-12);
	assert_near(value_of(s, s->psys), 9, 1e-12);
}

static void a_counter_that_becomes_text_is_unknown(void **state)
{
	put("intel-rapl:0:0", "energy_uj", "what\n");
	assert_true(isnan(value_of(*state, ((struct server *)*state)->core)));
}

/* A counter is digits and nothing else: what is not one is no reading, never 0 J. */
static void refuses_text_that_is_no_count(void **state)
{
	static const char *const wrong[] = {"-5\n", "+5\n", " 5\n", "0x5\n", "5 J\n", "5x\n", "\n",
		"1e6\n", "99999999999999999999\n"};
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = context();
	struct jm_reading r[8];
	void *rapl;

	(void)state;
	whole_server();
	assert_ok(jm_source_open(&jm_source_rapl, &ctx, "", &set, &rapl, &err), err);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		put("intel-rapl:0:0", "energy_uj", wrong[i]);
		assert_ok(read_row(&jm_source_rapl, rapl, r, &err), err);
		if (!isnan(r[set.meter[find(&set, CORE)].first_signal].value))
			fail_msg("'%s' was taken for a count", wrong[i]);
	}
	jm_source_rapl.close(rapl);
	jm_meters_done(&set);
	/* nor is it a range to wrap at */
	put("intel-rapl:0", "max_energy_range_uj", "-262143328850\n");
	put("intel-rapl:0:0", "energy_uj", "400000\n");
	assert_ok(jm_source_open(&jm_source_rapl, &ctx, "", &set, &rapl, &err), err);
	assert_near(set.signal[set.meter[find(&set, PACKAGE)].first_signal].wrap, 0, 0);
	jm_source_rapl.close(rapl);
	jm_meters_done(&set);
}

/* The counter starts again in mid-run; the session counts on. */
static void wraps(void **state)
{
	static const char *const names[] = {"rapl", NULL};
	struct jm_session_options o = {.sources = names, .interval_ns = 5 * JM_MILLISECOND};
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = context();
	struct jm_session *s;
	struct jm_energy e;
	int phase;

	(void)state;
	zone("intel-rapl:0", "package-0\n", "262140000000\n");
	assert_ok(jm_session_open(&ctx, &o, &s, &err), err);
	assert_ok(jm_session_start(s, &err), err);
	phase = jm_session_begin(s, "command", 0, &err);
	usleep(60000);
	change("intel-rapl:0", "energy_uj", "000001671150\n"); /* 3.32885 + 1.67115 J later */
	usleep(60000);
	jm_session_end(s, phase, 0);
	assert_ok(jm_session_stop(s, &err), err);
	assert_ok(jm_session_energy(s, 0, phase, &e, &err), err);
	assert_near(e.joules, 5, 1e-6);
	assert_true(isnan(e.joules_integrated));
	jm_session_close(s);
}

struct said {
	int ok, not_ok;
	char why[512];
};

static void hear(void *arg, const struct jm_finding *f)
{
	struct said *said = arg;

	said->ok += f->ok;
	said->not_ok += !f->ok;
	if (!f->ok)
		snprintf(said->why, sizeof(said->why), "%s|%s|%s", f->what, f->why, f->mend);
}

static void unreadable(void **state)
{
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = context();
	struct said said = {0};
	char path[256];
	void *rapl;

	(void)state;
	zone("intel-rapl:0", "package-0\n", NULL);
	snprintf(path, sizeof(path), "%s/sys/class/powercap/intel-rapl:0/energy_uj", root);
	if (geteuid()) {
		put("intel-rapl:0", "energy_uj", "1\n");
		chmod(path, 0);
	} else {
		/* root reads everything but a folder */
		mkdir(path, 0755);
	}
	assert_true(jm_source_open(&jm_source_rapl, &ctx, "", &set, &rapl, &err) < 0);
	assert_sentence(&err, err.code);
	assert_non_null(strstr(err.text, path));
	assert_int_equal(set.n, 0);
	jm_source_rapl.doctor(&ctx, hear, &said);
	assert_int_equal(said.ok, 0);
	assert_int_equal(said.not_ok, 1);
	assert_non_null(strstr(said.why, path));
	jm_meters_done(&set);
}

static void none_there(void **state)
{
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = context();
	void *rapl;

	(void)state;
	assert_int_equal(jm_source_open(&jm_source_rapl, &ctx, "", &set, &rapl, &err), JM_ENOENT);
	assert_sentence(&err, JM_ENOENT);
	/* a virtual machine's, which stands at 0 */
	zone("intel-rapl:0", "package-0\n", "0\n");
	err = (struct jm_err)JM_ERR_INIT;
	assert_int_equal(jm_source_open(&jm_source_rapl, &ctx, "", &set, &rapl, &err), JM_ENOSUP);
	assert_sentence(&err, JM_ENOSUP);
	jm_meters_done(&set);
}

/* A counter that stands at 0, or cannot be read, leaves the part to its other interface. */
static void a_twin_of_a_useless_counter_counts(void **state)
{
	static const char *const useless[] = {"0\n", ""};

	(void)state;
	zone("intel-rapl-mmio:0", "package-0\n", "7000000\n");
	for (size_t i = 0; i < 2; i++) {
		struct jm_meters set = {0};
		struct jm_err err = JM_ERR_INIT;
		struct jm_ctx ctx = context();
		struct jm_reading r;
		void *rapl;

		zone("intel-rapl:0", "package-0\n", useless[i]);
		assert_ok(jm_source_open(&jm_source_rapl, &ctx, "", &set, &rapl, &err), err);
		assert_int_equal(set.n, 1);
		assert_string_equal(set.meter[0].id, "rapl:/sys/class/powercap/intel-rapl-mmio:0");
		assert_ok(read_row(&jm_source_rapl, rapl, &r, &err), err);
		assert_near(r.value, 7, 0);
		jm_source_rapl.close(rapl);
		jm_meters_done(&set);
	}
}

int main(void)
{
#define SERVER_TEST(f) cmocka_unit_test_setup_teardown(f, open_server, close_server)
	const struct CMUnitTest tests[] = {
		SERVER_TEST(each_domain_is_a_meter_and_a_twin_is_none),
		SERVER_TEST(domains_lie_inside_each_other),
		SERVER_TEST(counters_are_joules_that_wrap_at_their_range),
		SERVER_TEST(a_counter_that_becomes_text_is_unknown),
		cmocka_unit_test_setup_teardown(
			refuses_text_that_is_no_count, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(wraps, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(unreadable, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(none_there, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(
			a_twin_of_a_useless_counter_counts, make_tree, remove_tree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
