/* SPDX-License-Identifier: Apache-2.0 */
/* Records: states of settings, failures with unusual characters, meters as JSON, frames in pieces,
 * provenance. */
#include "kit/test.h"
#include "base/ctx.h"

#include "run/gang/frame.h"
#include "meter/meters_json.h"
#include "result/provenance.h"
#include "result/record.h"
#include "result/setting_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_states(void **state)
{
	const struct {
		double requested, enforced, mean, capped;
		const char *state;
	} rows[] = {
		{300, 300, 299, NAN, "binding"},
		{300, 300, 292, NAN, "binding"},     /* 97.3 % */
		{300, 300, 290, NAN, "not reached"}, /* 96.7 % */
		{300, 300, 290, 0.6, "binding"},     /* the device says so */
		{300, 300, 290, 0.4, "not reached"},
		{300, 300, 306.9, NAN, "binding"}, /* 2 % + 1 W of doubt */
		{300, 300, 307.1, NAN, "violated"},
		{300, 400, 380, NAN, "violated"}, /* taken, not kept */
		{300, NAN, 299, NAN, "binding"},  /* the enforced value is unknown */
		{300, 250, 245, NAN, "binding"},  /* against what is enforced */
		{300, 300, NAN, NAN, "unknown"},
		{300, 300, NAN, 0.9, "binding"},
		{NAN, NAN, 299, NAN, "unknown"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_string_equal(jm_setting_state(rows[i].requested, rows[i].enforced,
					    rows[i].mean, rows[i].capped),
			rows[i].state);
}

static void test_failed(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *job = json_loads("{\"parameters\": {\"workload\": \"w\", \"options\": {}}, "
				 "\"case\": {\"id\": \"ab\"}, \"settings\": []}",
		0, NULL);
	json_t *record = jm_record_new(job, &err);

	(void)state;
	assert_non_null(record);
	assert_true(json_is_null(json_object_get(record, "throughput")));
	assert_string_equal(json_string_value(json_object_get(record, "id")), "ab");
	jm_record_failed(record, "cut in a letter: %s", "\xc3");
	assert_string_equal(
		json_string_value(json_object_get(record, "reason")), "cut in a letter: ?");
	assert_string_equal(json_string_value(json_object_get(record, "status")), "failed");
	json_decref(record);
	json_decref(job);
}

static void test_time(void **state)
{
	char text[40];

	(void)state;
	/* date -u -d @1767225599.25 */
	jm_time_text(INT64_C(1767225599250000000), text, sizeof(text));
	assert_string_equal(text, "2025-12-31T23:59:59.250Z");
}

static void test_meters(void **state)
{
	struct jm_meters set = {0}, back;
	struct jm_err err = JM_ERR_INIT, bad = JM_ERR_INIT;
	struct jm_meter package = {
		.id = "p", .source = "null", .scope = JM_SCOPE_PACKAGE, .covers = "cpu/0"};
	struct jm_meter core = {
		.id = "c", .source = "null", .scope = JM_SCOPE_CORE, .covers = "cpu/0/core"};
	struct jm_signal energy = {.quantity = JM_Q_ENERGY, .wrap = 262143.328850, .accuracy = NAN};
	json_t *json;

	(void)state;
	jm_meters_add(&set, &core, &err);
	jm_meters_add_signal(&set, &energy, &err);
	jm_meters_add(&set, &package, &err);
	json = jm_meters_to_json(&set);
	assert_int_equal(jm_meters_from_json(json, &back, &err), 0);
	assert_int_equal(back.n, 2);
	assert_int_equal(back.meter[0].covered_by, 1);
	assert_int_equal(back.meter[1].n_signals, 0);
	assert_near(back.signal[0].wrap, 262143.328850, 0);
	jm_meters_done(&back);
	json_object_set_new(json_array_get(json, 0), "scope", json_string("nonsense"));
	assert_int_equal(jm_meters_from_json(json, &back, &bad), JM_EFORMAT);
	assert_sentence(&bad, JM_EFORMAT);
	json_decref(json);
	jm_meters_done(&set);
}

/* A pipe hands over as little as one byte; frames come out whole and in order. */
static void test_frames(void **state)
{
	struct jm_frame_reader reader = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_frame frame;
	char big[300000], file[] = "/tmp/jm-frames-XXXXXX";
	int in = mkstemp(file), pipes[2], got = 0;
	bool end = false;
	char byte;

	(void)state;
	memset(big, 'b', sizeof(big));
	assert_int_equal(pipe(pipes), 0);
	jm_frame_write(in, JM_FRAME_CHUNK, "head", 4, "body", 4, &err);
	jm_frame_write(in, JM_FRAME_RECORD, NULL, 0, big, sizeof(big), &err);
	jm_frame_write(in, JM_FRAME_LOG, NULL, 0, NULL, 0, &err);
	lseek(in, 0, SEEK_SET);
	for (int n = 0; read(in, &byte, 1) == 1; n++) {
		assert_int_equal(write(pipes[1], &byte, 1), 1);
		if (n % 1000 && n > 40)
			continue;
		assert_int_equal(jm_frame_fill(&reader, pipes[0], &end, &err), 0);
		while (jm_frame_next(&reader, &frame, &err) > 0) {
			const size_t sizes[] = {8, sizeof(big), 0};

			assert_int_equal(frame.size, sizes[got]);
			got++;
		}
	}
	close(pipes[1]);
	while (!end) {
		assert_int_equal(jm_frame_fill(&reader, pipes[0], &end, &err), 0);
		while (jm_frame_next(&reader, &frame, &err) > 0)
			got++;
	}
	assert_int_equal(got, 3);
	jm_frame_reader_done(&reader);
	close(pipes[0]);
	close(in);
	unlink(file);
}

static void put(const char *root, const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0777);
		*slash = '/';
	}
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const char *text_of(const json_t *p, const char *key)
{
	return json_string_value(json_object_get(p, key));
}

/* From a captured tree: a machine with one GPU and a network card. */
static void test_provenance(void **state)
{
	struct jm_ctx ctx = {0};
	struct jm_err err = JM_ERR_INIT;
	char link[512];
	json_t *p;

	(void)state;
	snprintf(ctx.root, sizeof(ctx.root), "%s/jm-root-XXXXXX",
		getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(ctx.root));
	put(ctx.root, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 2 GHz\n");
	put(ctx.root, "/proc/meminfo", "MemTotal:       1024 kB\nMemFree: 5 kB\n");
	put(ctx.root, "/proc/sys/kernel/random/boot_id", "b-o-o-t\n");
	put(ctx.root, "/etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n");
	put(ctx.root, "/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
	put(ctx.root, "/sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n");
	put(ctx.root, "/sys/module/gpudrv/version", "550.54\n");
	snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/0000:01:00.0/driver", ctx.root);
	assert_int_equal(symlink("../../../bus/pci/drivers/gpudrv", link), 0);
	snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/0000:02:00.0/driver", ctx.root);
	assert_int_equal(symlink("../../../bus/pci/drivers/netdrv", link), 0);
	p = jm_provenance(&ctx, NULL, &err);
	assert_non_null(p);
	assert_string_equal(text_of(p, "cpu"), "Fast CPU @ 2 GHz");
	assert_string_equal(text_of(p, "os"), "Some Linux 1");
	assert_string_equal(text_of(p, "boot_id"), "b-o-o-t");
	assert_int_equal(json_integer_value(json_object_get(p, "memory_bytes")), 1024 * 1024);
	assert_int_equal(json_object_size(json_object_get(p, "drivers")), 1);
	assert_string_equal(text_of(json_object_get(p, "drivers"), "gpudrv"), "550.54");
	assert_non_null(text_of(json_object_get(p, "libraries"), "libjansson"));
	json_decref(p);
}

/* A machine that reports nothing: null, not "". */
static void test_provenance_unknown(void **state)
{
	struct jm_ctx ctx = {.root = "/nonexistent-root"};
	struct jm_err err = JM_ERR_INIT;
	json_t *p = jm_provenance(&ctx, NULL, &err);

	(void)state;
	assert_non_null(p);
	assert_true(json_is_null(json_object_get(p, "cpu")));
	assert_true(json_is_null(json_object_get(p, "memory_bytes")));
	assert_true(json_is_null(json_object_get(p, "os")));
	json_decref(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_failed),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_meters),
		cmocka_unit_test(test_frames),
		cmocka_unit_test(test_provenance),
		cmocka_unit_test(test_provenance_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
