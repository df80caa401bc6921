/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of training: valid and malicious Megatron data sets; learning rates; the largest batch. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/run/reduce.h"
#include "engine/device/backend_events.h"
#include "engine/device/device.h"
#include "kit/test.h"
#include "workloads/train/fit_batch.h"
#include "workloads/train/lr_schedule.h"
#include "workloads/train/batch_feed.h"
#include "engine/plan/bucket.h"

/* ---- Megatron -------------------------------------------------------------------------------- */

/* Three sequences of u16 tokens, the last two swapped in the file. */
struct index {
	char bytes[34 + 3 * 12 + 4 * 8];
	size_t size;
};

static const uint16_t bin[] = {7, 8, 9, 300, 301, 65535, 20};

static void put(struct index *x, const void *data, size_t n)
{
	memcpy(x->bytes + x->size, data, n);
	x->size += n;
}

static struct index good_index(void)
{
	static const int64_t places[] = {0, 8, 6}, documents[] = {0, 1, 2, 3};
	static const uint64_t version = 1, sequences = 3, n_documents = 4;
	static const int32_t lengths[] = {3, 3, 1};
	static const uint8_t type = 8;
	struct index x = {.size = 0};

	put(&x, "MMIDIDX\0", 9);
	put(&x, &version, 8);
	put(&x, &type, 1);
	put(&x, &sequences, 8);
	put(&x, &n_documents, 8);
	put(&x, lengths, sizeof(lengths));
	put(&x, places, sizeof(places));
	put(&x, documents, sizeof(documents));
	return x;
}

/* A file of these bytes, with the corpus that reads it. */
static void give_file(struct jm_corpus *c, const void *bytes, size_t size)
{
	struct jm_err err = JM_ERR_INIT;
	int fd = memfd_create("bin", MFD_CLOEXEC);

	assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	assert_ok(jm_corpus_take("x.bin", fd, size, c, &err), err);
}

static void test_index(void **state)
{
	static const int32_t expected[] = {7, 8, 9, 301, 65535, 20, 300};
	struct jm_err err = JM_ERR_INIT;
	struct index x = good_index();
	struct jm_corpus c;
	int32_t token[7];

	(void)state;
	assert_ok(jm_corpus_index("x.idx", x.bytes, x.size, sizeof(bin), &c, &err), err);
	give_file(&c, bin, sizeof(bin));
	assert_int_equal(c.tokens, 7);
	for (int from = 0; from < 7; from++) {
		assert_ok(jm_corpus_read(&c, from, 7 - from, token, &err), err);
		assert_memory_equal(token, expected + from, (size_t)(7 - from) * sizeof(*token));
	}
	jm_corpus_close(&c);
}

/* Every type that holds whole numbers; what no i32 can hold is no token. */
static void test_types(void **state)
{
	static const struct {
		char type;
		int width;
		int64_t value;
		int32_t token;
	} cases[] = {
		{1, 1, 200, 200},
		{2, 1, 100, 100},
		{2, 1, -2, -1},
		{3, 2, 30000, 30000},
		{3, 2, -2, -1},
		{4, 4, 100000, 100000},
		{4, 4, -2, -1},
		{5, 8, INT32_MAX, INT32_MAX},
		{5, 8, INT64_C(1) << 31, -1},
		{5, 8, -2, -1},
		{8, 2, 65535, 65535},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct index x = good_index();
		unsigned char data[8 * 8] = {0};
		struct jm_corpus c;
		int32_t token[2];

		x.bytes[17] = cases[i].type;
		/* the first token of the second sequence, which begins at byte 8, after a zero */
		memcpy(data + 8, &cases[i].value, (size_t)cases[i].width);
		assert_ok(jm_corpus_index("x.idx", x.bytes, x.size, sizeof(data), &c, &err), err);
		give_file(&c, data, sizeof(data));
		assert_ok(jm_corpus_read(&c, 3, 1, token, &err), err);
		assert_int_equal(token[0], cases[i].token);
		jm_corpus_close(&c);
	}
}

static void refused(const struct index *x, size_t bin_size, int code, const char *why)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_corpus c;

	assert_int_equal(jm_corpus_index("x.idx", x->bytes, x->size, bin_size, &c, &err), code);
	assert_sentence(&err, code);
	if (!strstr(err.text, why))
		fail_msg("not '%s': %s", why, err.text);
}

static void test_hostile(void **state)
{
	const int64_t far = INT64_MAX - 1, huge = INT64_C(0x1555555555555556);
	const int32_t negative = -2, large = INT32_MAX;
	struct index x;

	(void)state;
	x = good_index();
	for (x.size = 0; x.size < sizeof(x.bytes); x.size++)
		refused(&x, sizeof(bin), JM_EFORMAT,
			x.size < 9    ? "MMIDIDX"
			: x.size < 34 ? "ends within its header"
				      : "is damaged");
	refused((x = good_index(), &x), sizeof(bin) - 2, JM_EFORMAT, "beyond the end");
	memcpy(x.bytes + 34 + 12 + 8, &far, 8);
	refused(&x, sizeof(bin), JM_EFORMAT, "beyond the end");
	x = good_index();
	memcpy(x.bytes + 34, &negative, 4);
	refused(&x, sizeof(bin), JM_EFORMAT, "negative");
	memcpy(x.bytes + 34, &large, 4);
	refused(&x, sizeof(bin), JM_EFORMAT, "beyond the end");
	x = good_index();
	memcpy(x.bytes + 18, &huge, 8); /* 12 times that wraps around */
	refused(&x, sizeof(bin), JM_EFORMAT, "shorter");
	x = good_index();
	memset(x.bytes + 18, 0, 8);
	refused(&x, sizeof(bin), JM_EFORMAT, "no sequences");
	x = good_index();
	x.bytes[17] = 7;
	refused(&x, sizeof(bin), JM_EFORMAT, "type");
	x.bytes[17] = (char)200;
	refused(&x, sizeof(bin), JM_EFORMAT, "type");
	x.bytes[9] = 2;
	refused(&x, sizeof(bin), JM_EVERSION, "version 2");
	x.bytes[0] = 'X';
	refused(&x, sizeof(bin), JM_EFORMAT, "MMIDIDX");
}

static void write_file(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	fclose(f);
}

static void test_files(void **state)
{
	static const char *const names[] = {"feed_test", "feed_test.bin", "feed_test.idx"};
	struct index x = good_index();
	struct jm_err err = JM_ERR_INIT;
	struct jm_corpus c;

	(void)state;
	write_file(names[1], bin, sizeof(bin));
	/* tokens without their index are not read as bytes */
	assert_int_equal(jm_corpus_open(names[1], &c, &err), JM_EFORMAT);
	assert_non_null(strstr(err.text, ".idx"));
	err = (struct jm_err)JM_ERR_INIT;
	write_file(names[2], x.bytes, x.size);
	for (int i = 0; i < 3; i++) {
		assert_ok(jm_corpus_open(names[i], &c, &err), err);
		assert_int_equal(c.tokens, 7);
		jm_corpus_close(&c);
	}
	unlink(names[1]);
	assert_int_equal(jm_corpus_open(names[0], &c, &err), JM_ENOENT);
	unlink(names[2]);
}

/* ---- learning rates -------------------------------------------------------------------------- */

static const struct jm_lr_schedule schedule = {
	.lr = 1, .lr_min = 0.1, .factor = 0.5, .warmup = 4, .length = 24};

static struct jm_lr_schedule schedule_of(enum jm_lr_schedule_kind kind)
{
	struct jm_lr_schedule s = schedule;

	s.kind = kind;
	return s;
}

static void a_warm_up_is_linear_and_the_rate_then_constant(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		assert_near(jm_lr_at(&schedule, i), (i + 1) / 4.0, 1e-15);
	assert_near(jm_lr_at(&schedule, 1000), 1, 0);
}

static void a_cosine_ends_at_the_least_rate(void **state)
{
	struct jm_lr_schedule s = schedule_of(JM_LR_COSINE);

	(void)state;
	assert_near(jm_lr_at(&s, 3), 1, 0);
	assert_near(jm_lr_at(&s, 4), 1, 1e-15);
	assert_near(jm_lr_at(&s, 9), 0.1 + 0.45 * (1 + sqrt(0.5)), 1e-12);
	assert_near(jm_lr_at(&s, 14), 0.55, 1e-12);
	assert_near(jm_lr_at(&s, 24), 0.1, 1e-12);
	assert_near(jm_lr_at(&s, 9999), 0.1, 1e-12);
}

static void a_line_ends_at_the_least_rate(void **state)
{
	struct jm_lr_schedule s = schedule_of(JM_LR_LINEAR);

	(void)state;
	assert_near(jm_lr_at(&s, 9), 0.775, 1e-12);
	assert_near(jm_lr_at(&s, 25), 0.1, 1e-12);
}

static void steps_multiply_the_rate(void **state)
{
	struct jm_lr_schedule s = schedule_of(JM_LR_STEP);

	(void)state;
	s.every = 10;
	assert_near(jm_lr_at(&s, 13), 1, 0);
	assert_near(jm_lr_at(&s, 14), 0.5, 0);
	assert_near(jm_lr_at(&s, 34), 0.125, 0);
}

/* ---- the largest batch ----------------------------------------------------------------------- */

static size_t peak(struct jm_training t, struct jm_device *d, int64_t batch)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *program;
	struct jm_graph *graph;
	size_t bytes;

	t.batch = batch;
	assert_ok(jm_model_train(&t, &graph, &err), err);
	assert_ok(jm_program_plan(graph, d, &program, &err), err);
	bytes = program->peak_bytes;
	jm_program_free(program);
	jm_graph_free(graph);
	return bytes;
}

static const struct jm_evaluation no_evaluation;

static void test_fit(void **state)
{
	struct jm_training t = {.seq = 32};
	struct jm_batch_feed feed = {.n = 0};
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;
	struct jm_device device;
	struct jm_values dims;

	(void)state;
	assert_ok(jm_model_find("gpt-117m", &t.model, &preset, &err), err);
	assert_ok(jm_model_dims(t.model, preset, NULL, &dims, &err), err);
	t.dims = &dims;
	assert_ok(jm_device_open("ref", 1, &device, &err), err);
	for (int64_t batch = 1; batch < 3000; batch = batch * 7 + 2) {
		size_t limit = peak(t, &device, batch);

		assert_ok(jm_fit_batch(&t, &feed, &no_evaluation, &device, limit,
				  jm_device_room(&device), &err),
			err);
		assert_true(t.batch >= batch);
		assert_true(peak(t, &device, t.batch) <= limit);
		assert_true(peak(t, &device, t.batch + 1) > limit);
	}
	assert_int_equal(jm_fit_batch(&t, &feed, &no_evaluation, &device, 1000,
				 jm_device_room(&device), &err),
		JM_ENOMEM);
	assert_sentence(&err, JM_ENOMEM);
	jm_device_close(&device);
	jm_values_done(&dims);
}

extern const struct jm_backend jm_backend_ref;

static struct {
	bool on;
	int exact; /* plans with the loss's node, which were exact */
} rough;

static void plan_roughly(void *d, bool on)
{
	(void)d;
	rough.on = on;
}

/* Where it measures nothing, the loss asks for more scratch, of the size of its logits. */
static int select_roughly(
	void *d, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	int n = jm_backend_ref.select(d, group, choice, err);

	if (group->node[0]->op != JM_OP_SOFTMAX_XENT)
		return n;
	rough.exact += !rough.on;
	for (int i = 0; i < n && rough.on; i++)
		choice[i].scratch += group->node[0]->in[0]->bytes / 8;
	return n;
}

/* The same batch is found, and few plans are exact. */
static void test_fit_by_rough_plans(void **state)
{
	struct jm_training t = {.seq = 32};
	struct jm_batch_feed feed = {.n = 0};
	struct jm_backend backend = jm_backend_ref;
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;
	struct jm_device ref, device;
	struct jm_values dims;

	(void)state;
	assert_ok(jm_model_find("gpt-117m", &t.model, &preset, &err), err);
	assert_ok(jm_model_dims(t.model, preset, NULL, &dims, &err), err);
	t.dims = &dims;
	assert_ok(jm_device_open("ref", 1, &ref, &err), err);
	backend.select = select_roughly;
	backend.plan_roughly = plan_roughly;
	device = ref;
	device.backend = &backend;
	for (int64_t batch = 1; batch < 3000; batch = batch * 7 + 2) {
		size_t limit = peak(t, &ref, batch);
		int64_t found;

		assert_ok(jm_fit_batch(&t, &feed, &no_evaluation, &ref, limit, jm_device_room(&ref),
				  &err),
			err);
		found = t.batch;
		rough.exact = 0;
		assert_ok(jm_fit_batch(&t, &feed, &no_evaluation, &device, limit,
				  jm_device_room(&device), &err),
			err);
		assert_int_equal(t.batch, found);
		assert_false(rough.on);
		assert_in_range(rough.exact, 1, 8);
	}
	jm_device_close(&ref);
	jm_values_done(&dims);
}

static int no_event(void *d, void **ret, struct jm_err *err)
{
	(void)d;
	(void)ret;
	return jm_err_set(err, JM_ENOSUP, "No event is made.");
}

static void inputs_sent_once_need_no_staging(void **state)
{
	static const struct jm_backend_events events = {.create = no_event};
	static const struct jm_backend async = {.events = &events};
	const size_t images = (size_t)5 * 3 * 64 * 64 * 4, targets = 64; /* 20 bytes, aligned */
	struct jm_training t = {.batch = 5};
	struct jm_device ref, device = {.backend = &async};
	struct jm_batch_feed feed = {.fresh = true};
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *program;
	struct jm_graph *graph;
	struct jm_values dims;
	size_t all;

	(void)state;
	assert_ok(jm_model_find("resnet18", &t.model, &preset, &err), err);
	assert_ok(jm_model_dims(t.model, preset, NULL, &dims, &err), err);
	assert_ok(jm_values_set(&dims, "image", "64", &err), err);
	t.dims = &dims;
	assert_ok(jm_device_open("ref", 1, &ref, &err), err);
	assert_ok(jm_model_train(&t, &graph, &err), err);
	assert_ok(jm_program_plan(graph, &ref, &program, &err), err);
	jm_batch_feed_choose(&feed, t.model, &dims);
	assert_int_equal(jm_batch_feed_bytes(&feed, program), 0); /* ref reads the host's memory */
	program->device = &device;
	all = jm_batch_feed_bytes(&feed, program);
	feed.fresh = false;
	assert_int_equal(
		all - jm_batch_feed_bytes(&feed, program), JM_STAGING_SLOTS * (images + targets));
	program->device = &ref;
	jm_program_free(program);
	jm_graph_free(graph);
	jm_device_close(&ref);
	jm_values_done(&dims);
}

/* ---- what ranks have in common --------------------------------------------------------------- */

static uint64_t digest(struct jm_training t, struct jm_device *d, int ranks, int64_t batch)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_program *program;
	struct jm_graph *graph;
	uint64_t ret;

	t.ranks = ranks;
	t.batch = batch;
	assert_ok(jm_model_train(&t, &graph, &err), err);
	assert_ok(jm_program_plan(graph, d, &program, &err), err);
	ret = jm_reduce_digest(program);
	jm_program_free(program);
	jm_graph_free(graph);
	return ret;
}

/* Depends on the parameters, and on nothing that may differ between ranks. */
static void test_digest(void **state)
{
	static const char *const presets[] = {"gpt-117m", "gpt-800m"};
	struct jm_training t = {.seq = 32};
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;
	struct jm_device device;
	struct jm_values dims;
	uint64_t of[2];

	(void)state;
	t.dims = &dims;
	assert_ok(jm_device_open("ref", 1, &device, &err), err);
	for (int i = 0; i < 2; i++) {
		assert_ok(jm_model_find(presets[i], &t.model, &preset, &err), err);
		assert_ok(jm_model_dims(t.model, preset, NULL, &dims, &err), err);
		of[i] = digest(t, &device, 2, 2);
		assert_true(of[i] && of[i] == digest(t, &device, 2, 3));
		assert_true(!digest(t, &device, 1, 2));
		jm_values_done(&dims);
	}
	assert_true(of[0] != of[1]);
	jm_device_close(&device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_index),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_files),
		cmocka_unit_test(a_warm_up_is_linear_and_the_rate_then_constant),
		cmocka_unit_test(a_cosine_ends_at_the_least_rate),
		cmocka_unit_test(a_line_ends_at_the_least_rate),
		cmocka_unit_test(steps_multiply_the_rate),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_fit_by_rough_plans),
		cmocka_unit_test(inputs_sent_once_need_no_staging),
		cmocka_unit_test(test_digest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
