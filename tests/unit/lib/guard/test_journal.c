/* SPDX-License-Identifier: Apache-2.0 */
/* Journals from a crash, a faulty disk, another version or another user. */
#include "kit/guard_case.h"
#include "guard/guard_requests.h"
#include "guard/journal_each.h"

#include <xxhash.h>

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

#define GPU_0 "GPU-00000000-fa4e-4000-8000-000000000000"

/* A journal of GPU 0 whose session was killed. */
static void write_found(struct fixture *f, const char *boot, double found, struct jm_journal *j)
{
	struct jm_journal_state s = {.knob = "gpu.power",
		.unit = "W",
		.device = GPU_0,
		.control = "nvml:all",
		.ends = JM_ENDS_DRIVER,
		.client = {.pid = 1 << 30},
		.guard = {.pid = 1 << 30}};
	struct jm_knob_value value;

	snprintf(s.boot, sizeof(s.boot), "%s", boot);
	assert_int_equal(jm_journal_open(&f->ctx, s.knob, s.device, NULL, j, &f->err), 0);
	value = jm_knob_value_of(found);
	assert_int_equal(jm_journal_write(j, &s, JM_JOURNAL_FOUND, &value, &f->err), 0);
}

/* Lines as joulemark 0.1 wrote them, and no other file; damage: a byte to change, -1 = none. */
static void write_old(struct fixture *f, const char *const *verbs, double value, long damage)
{
	char name[JM_JOURNAL_NAME], path[500], text[2000];
	size_t n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/knobs", f->folder);
	mkdir(path, 0755);
	jm_journal_name("gpu.power", GPU_0, name, sizeof(name));
	snprintf(path, sizeof(path), "%s/knobs/%.150s.journal", f->folder, name);
	for (; *verbs; verbs++) {
		size_t start = n;

		n += (size_t)snprintf(text + n, sizeof(text) - n,
			"1\t%s\t\tnvml:all\tgpu.power\tW\t" GPU_0 "\t%.17g\t%d\t", *verbs, value,
			1 << 30);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%016llx\n",
			(unsigned long long)XXH3_64bits(text + start, n - start));
	}
	if (damage >= 0)
		text[damage] ^= 1;
	file = fopen(path, "we");
	assert_int_equal(fwrite(text, 1, n, file), n);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0644), 0);
}

static const char *const found_line[] = {"found", NULL};

static void append(struct fixture *f, const char *bytes)
{
	char path[500];
	int fd;

	journal_path(f, path, sizeof(path));
	fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
	close(fd);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static void test_private(void **state)
{
	struct fixture *f = *state;
	struct jm_journal j;
	char path[500], copy[500];

	write_found(f, "", 444, &j);
	jm_journal_close(&j);
	journal_path(f, path, sizeof(path));
	assert_int_equal(mode_of(path), 0600);
	snprintf(copy, sizeof(copy), "%s/held/%s", f->folder, strrchr(path, '/') + 1);
	assert_int_equal(mode_of(copy), 0644);
	snprintf(path, sizeof(path), "%s/knobs/%s.lock", f->folder, j.name);
	assert_int_equal(mode_of(path), 0600);
	snprintf(path, sizeof(path), "%s/knobs", f->folder);
	assert_int_equal(mode_of(path), 0700);
	snprintf(path, sizeof(path), "%s/held", f->folder);
	assert_int_equal(mode_of(path), 0755);
}

/* A cap of 300 W that an earlier client left, and an old journal that says 444 W. */
static void test_old_journal(void **state)
{
	struct fixture *f = *state;
	char path[300];
	int n;

	write_old(f, found_line, 444, -1);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 1);
	assert_true(limit(f, 0) == 444);
	assert_int_equal(journals(f), 0);
	snprintf(path, sizeof(path), "%s/knobs", f->folder);
	assert_int_equal(mode_of(path), 0700);
}

/* The journal grew by 267 bytes a session while a setting was kept, and was refused above a
 * mebibyte. */
static void test_old_journal_that_grew(void **state)
{
	struct fixture *f = *state;
	static const char *const kept[] = {"found", "kept", NULL};
	char path[500], line[400];
	size_t length;
	int n;
	FILE *file;
	struct stat st;
	struct jm_guard *g;

	write_old(f, kept, 444, -1);
	journal_path(f, path, sizeof(path));
	file = fopen(path, "re");
	assert_non_null(fgets(line, sizeof(line), file));
	assert_non_null(fgets(line, sizeof(line), file));
	fclose(file);
	length = strlen(line);
	file = fopen(path, "ae");
	for (size_t bytes = 0; bytes < (2 << 20); bytes += length)
		assert_int_equal(fwrite(line, 1, length, file), length);
	fclose(file);
	g = start(f);
	assert_int_equal(set(f, g, "GPU-0", 300), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 1000);
	assert_int_equal(jm_guard_stop(g, &f->err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 500);
	assert_int_equal(jm_guard_release(&f->ctx, &n, &f->err), 0);
	assert_true(limit(f, 0) == 444);
}

/* A thousand sessions while a setting is kept leave a journal of one line. */
static void test_journal_does_not_grow(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);
	char path[500];
	struct stat st;
	off_t first;

	assert_int_equal(set(f, g, "GPU-0", 300), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	journal_path(f, path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	first = st.st_size;
	for (int i = 0; i < 50; i++) {
		assert_int_equal(set(f, g, "GPU-0", 350 + i), 0);
		assert_int_equal(jm_guard_keep(g, &f->err), 0);
	}
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size <= first + 8);
	assert_int_equal(jm_guard_stop(g, NULL), 0);
}

static void test_torn_line(void **state)
{
	struct fixture *f = *state;
	int n;

	write_old(f, found_line, 444, -1);
	append(f, "1\tback\t\tnvml:all\tgpu.pow");
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 1);
	assert_true(limit(f, 0) == 444);
	assert_int_equal(journals(f), 0);
}

/* An old journal cut at every byte: either the whole line counts or none of it; what is empty is
 * damaged. */
static void test_every_cut(void **state)
{
	struct fixture *f = *state;
	struct jm_journal_state s;
	struct stat st;
	char path[500];

	write_old(f, found_line, 444, -1);
	journal_path(f, path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	for (off_t size = st.st_size; size >= 0; size--) {
		int want = size == st.st_size ? 0 : size ? JM_ENOENT : JM_EFORMAT;

		assert_int_equal(truncate(path, size), 0);
		assert_int_equal(jm_journal_peek(&f->ctx, "gpu.power", GPU_0, &s), want);
	}
}

/* One of today's is never torn: cut at any byte it is damaged, and its copy stands in. */
static void test_every_cut_is_mended(void **state)
{
	struct fixture *f = *state;
	struct jm_journal_state s;
	struct jm_journal j;
	struct stat st;
	char path[500];

	write_found(f, "", 444, &j);
	jm_journal_close(&j);
	journal_path(f, path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	for (off_t size = st.st_size; size >= 0; size -= 7) {
		assert_int_equal(truncate(path, size), 0);
		assert_int_equal(jm_journal_peek(&f->ctx, "gpu.power", GPU_0, &s), 0);
		assert_true(s.open && s.found.high == 444);
	}
}

/* Every byte of record and copy, changed: what is put back is right, or nothing is and the file
 * stays. */
static void test_every_byte_changed(void **state)
{
	struct fixture *f = *state;
	static const char *const two[] = {"kept", "found", NULL};

	for (long i = 0; i < 2 * 100; i++) {
		int rc, n = 0;

		write_old(f, two, 444, i);
		f->err.code = 0;
		rc = jm_guard_recover(&f->ctx, &n, &f->err);
		assert_int_equal(rc, JM_EFORMAT);
		assert_int_equal(n, 0);
		assert_int_equal(journals(f), 1);
	}
}

/* A journal whose only line somebody changed, with its copy changed as well. */
static void damage_both(struct fixture *f)
{
	struct jm_journal j;
	char path[500], copy[500];

	write_found(f, "", 333, &j);
	jm_journal_close(&j);
	journal_path(f, path, sizeof(path));
	snprintf(copy, sizeof(copy), "%s/held/%s", f->folder, strrchr(path, '/') + 1);
	for (int i = 0; i < 2; i++) {
		int fd = open(i ? copy : path, O_WRONLY);

		assert_int_equal(pwrite(fd, "X", 1, 3), 1);
		close(fd);
	}
}

static void test_recovery_from_a_damaged_journal_fails_loudly(void **state)
{
	struct fixture *f = *state;
	int n;

	damage_both(f);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), JM_EFORMAT);
	assert_non_null(strstr(f->err.text, "damaged"));
	assert_non_null(strstr(f->log, "damaged"));
	f->err.code = 0;
	assert_int_equal(jm_guard_release(&f->ctx, &n, &f->err), JM_EFORMAT);
	assert_int_equal(journals(f), 1);
}

static void test_what_a_damaged_journal_held_is_unknown(void **state)
{
	struct fixture *f = *state;
	struct jm_hold *holds;
	int n;

	damage_both(f);
	assert_int_equal(jm_guard_holds(&f->ctx, &holds, &n, &f->err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(holds[0].held, JM_HELD_UNKNOWN);
	assert_true(!jm_knob_value_known(&holds[0].found));
	free(holds);
}

/* What is there now is never taken for what was found. */
static void test_a_device_with_a_damaged_journal_is_not_set(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	damage_both(f);
	g = start(f);
	assert_int_equal(set(f, g, "GPU-0", 300), JM_EFORMAT);
	assert_true(limit(f, 0) == 700);
	jm_guard_stop(g, NULL);
	assert_int_equal(journals(f), 1);
}

static void test_a_damaged_journal_concerns_no_other_device(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g;

	damage_both(f);
	g = start(f);
	assert_int_equal(set(f, g, "GPU-1", 300), 0);
	assert_true(limit(f, 1) == 300);
	assert_int_equal(jm_guard_stop(g, NULL), 0);
	assert_true(limit(f, 1) == 700);
}

static void test_default_helps_out(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);
	char path[500];
	int n;

	assert_int_equal(set(f, g, "GPU-0", 300), 0);
	assert_int_equal(jm_guard_keep(g, &f->err), 0);
	assert_int_equal(jm_guard_stop(g, NULL), 0);
	damage_both(f);
	assert_int_equal(jm_guard_default(&f->ctx, "nvml", &n, &f->err), 0);
	assert_int_equal(n, 1);
	assert_true(limit(f, 0) == 700);
	assert_non_null(strstr(f->log, "default"));
	assert_int_equal(jm_guard_release(&f->ctx, &n, &f->err), 0);
	assert_int_equal(journals(f), 1);
	journal_path(f, path, sizeof(path));
	assert_non_null(strstr(path, ".damaged"));
}

/* Who removes a journal wants it forgotten: its copy goes as well, and nothing is put back. */
static void test_removed_journal_is_forgotten(void **state)
{
	struct fixture *f = *state;
	struct jm_journal j;
	char path[500];
	int n;

	write_found(f, "", 333, &j);
	jm_journal_close(&j);
	snprintf(path, sizeof(path), "%s/knobs/%s.journal", f->folder, j.name);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 0);
	snprintf(path, sizeof(path), "%s/held/%s.journal", f->folder, j.name);
	assert_int_equal(access(path, F_OK), -1);
}

/* The copy stands in for a damaged journal. */
static void test_copy_stands_in(void **state)
{
	struct fixture *f = *state;
	struct jm_journal j;
	char path[500];
	int n;

	for (int i = 0; i < 2; i++) {
		write_found(f, "", 333 + i, &j);
		jm_journal_close(&j);
		snprintf(path, sizeof(path), "%s/knobs/%s.journal", f->folder, j.name);
		assert_int_equal(truncate(path, i ? 40 : 0), 0);
		assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
		assert_int_equal(n, 1);
		assert_true(limit(f, 0) == 333 + i);
		assert_non_null(strstr(f->log, "damaged"));
		assert_int_equal(journals(f), i + 1); /* set aside */
	}
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
	const struct jm_knob_value value = jm_knob_value_of(found);
	struct jm_journal j;

	assert_int_equal(jm_journal_open(&f->ctx, s->knob, s->device, NULL, &j, &f->err), 0);
	assert_int_equal(jm_journal_write(&j, s, JM_JOURNAL_FOUND, &value, &f->err), 0);
	jm_journal_close(&j);
}

/* A management controller keeps its limit over a restart, so the value found is restored after
 * it. */
static void test_other_boot_of_a_knob_that_keeps_its_value(void **state)
{
	struct fixture *f = *state;
	struct jm_journal_state s = {.knob = "gpu.power",
		.device = GPU_0,
		.control = "nvml:all",
		.boot = "another-boot",
		.ends = JM_ENDS_NEVER};
	int n;

	leave_behind(f, &s, 444);
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 1);
	assert_true(limit(f, 0) == 444);
	assert_int_equal(journals(f), 0);
}

/* The record as another process reads it. */
static struct jm_journal_state written(struct fixture *f, const struct jm_journal_state *s,
	const struct jm_knob_value *found, const struct jm_knob_value *base)
{
	struct jm_journal_state got;
	struct jm_journal j;

	assert_int_equal(jm_journal_open(&f->ctx, s->knob, s->device, NULL, &j, &f->err), 0);
	assert_int_equal(jm_journal_write(&j, s, JM_JOURNAL_KEPT, base, &f->err), 0);
	assert_int_equal(jm_journal_write(&j, s, JM_JOURNAL_FOUND, found, &f->err), 0);
	jm_journal_close(&j);
	assert_int_equal(jm_journal_peek(&f->ctx, s->knob, s->device, &got), 0);
	return got;
}

static void test_values_of_every_kind(void **state)
{
	const struct jm_knob_value values[] = {jm_knob_value_of(0.1), jm_knob_value_of(-3),
		jm_knob_value_between(1200e6, 1499999999.5), jm_knob_value_word(JM_UNLOCKED),
		jm_knob_value_word("balance_performance")};
	const int n = sizeof(values) / sizeof(values[0]);
	struct fixture *f = *state;

	for (int i = 0; i < n; i++) {
		const struct jm_knob_value *base = &values[(i + 1) % n];
		struct jm_journal_state got, s = {.knob = "gpu.clock",
						     .unit = "Hz",
						     .device = GPU_0,
						     .control = "nvml:all",
						     .ends = (enum jm_ends)(i % 4)};

		got = written(f, &s, &values[i], base);
		assert_true(got.open && got.kept && got.ends == s.ends);
		assert_string_equal(got.found.word, values[i].word);
		assert_string_equal(got.base.word, base->word);
		if (!*values[i].word)
			assert_true(
				got.found.low == values[i].low && got.found.high == values[i].high);
		if (!*base->word)
			assert_true(got.base.low == base->low && got.base.high == base->high);
	}
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

/* Each simulated node is a separate control. */
static void test_many_controls(void **state)
{
	struct fixture *f = *state;
	int n;

	for (int i = 0; i < 16; i++) {
		struct jm_journal_state s = {.knob = "gpu.power", .unit = "W"};

		snprintf(s.control, sizeof(s.control), "sim:%sx%d", i < 8 ? "h100" : "h200",
			i % 8 + 1);
		snprintf(s.device, sizeof(s.device), "%.100s/gpu0", s.control);
		leave_behind(f, &s, 300);
	}
	assert_int_equal(jm_guard_recover(&f->ctx, &n, &f->err), 0);
	assert_int_equal(n, 16);
	assert_int_equal(journals(f), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		GUARD_TEST(test_torn_line),
		GUARD_TEST(test_every_cut),
		GUARD_TEST(test_private),
		GUARD_TEST(test_old_journal),
		GUARD_TEST(test_old_journal_that_grew),
		GUARD_TEST(test_journal_does_not_grow),
		GUARD_TEST(test_every_cut_is_mended),
		GUARD_TEST(test_every_byte_changed),
		GUARD_TEST(test_recovery_from_a_damaged_journal_fails_loudly),
		GUARD_TEST(test_what_a_damaged_journal_held_is_unknown),
		GUARD_TEST(test_a_device_with_a_damaged_journal_is_not_set),
		GUARD_TEST(test_a_damaged_journal_concerns_no_other_device),
		GUARD_TEST(test_default_helps_out),
		GUARD_TEST(test_copy_stands_in),
		GUARD_TEST(test_removed_journal_is_forgotten),
		GUARD_TEST(test_other_boot),
		GUARD_TEST(test_other_boot_of_a_knob_that_keeps_its_value),
		GUARD_TEST(test_values_of_every_kind),
		GUARD_TEST(test_device_not_here),
		GUARD_TEST(test_long_names),
		GUARD_TEST(test_many_controls),
	};

	return guard_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
