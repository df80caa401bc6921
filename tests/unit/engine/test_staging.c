/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging of inputs to a device whose queues do not run until the host waits for an event: a copy
 * reads host memory only then, so a slot that is written too early gives a step the values of
 * another batch.
 */
#include "engine/device/backend_events.h"
#include "engine/run/staging.h"
#include "kit/test.h"

#define OPS	128
#define EVENTS	(2 * JM_STAGING_SLOTS)
#define FLOATS	5
#define BATCHES 7

/* A copy, or the record of an event. */
struct op {
	void *to;
	const void *from;
	size_t bytes;
	int event; /* -1 = a copy */
};

static struct {
	struct op op[OPS];
	int n, done;	   /* queued; done so far */
	int place[EVENTS]; /* of its last record in the queue; -1 = never recorded */
	int n_events;
	int held_up; /* waits of the host for what was not reached */
	int fail_at; /* the wait that fails; -1 = none */
	int waits;
	const float *input; /* the program's */
	float seen[BATCHES][FLOATS];
	int n_seen;
} fake;

static void run_until(int place)
{
	for (; fake.done < place; fake.done++) {
		const struct op *op = &fake.op[fake.done];

		if (op->event >= 0)
			continue;
		memcpy(op->to, op->from, op->bytes);
		if (op->to == fake.input)
			memcpy(fake.seen[fake.n_seen++], fake.input, sizeof(fake.seen[0]));
	}
}

static int put(struct op op)
{
	assert_in_range(fake.n, 0, OPS - 1);
	fake.op[fake.n++] = op;
	return 0;
}

static int copy(void *dev, enum jm_queue queue, void *to, const void *from, size_t bytes,
	enum jm_copy kind, struct jm_err *err)
{
	(void)dev, (void)queue, (void)kind, (void)err;
	return put((struct op){to, from, bytes, -1});
}

static int event_new(void *dev, void **ret, struct jm_err *err)
{
	(void)dev, (void)err;
	assert_in_range(fake.n_events, 0, EVENTS - 1);
	fake.place[fake.n_events] = -1;
	*ret = &fake.place[fake.n_events++];
	return 0;
}

static int event_record(void *dev, void *event, enum jm_queue queue, struct jm_err *err)
{
	(void)dev, (void)queue, (void)err;
	*(int *)event = fake.n + 1;
	return put((struct op){.event = (int)((int *)event - fake.place)});
}

/* All is done in the order in which it was queued, which is one of the orders that are allowed. */
static int event_follow(void *dev, void *event, enum jm_queue queue, struct jm_err *err)
{
	(void)dev, (void)event, (void)queue, (void)err;
	return 0;
}

static int event_wait(void *dev, void *event, struct jm_err *err)
{
	int place = *(int *)event;

	(void)dev;
	if (fake.waits++ == fake.fail_at)
		return jm_err_set(err, JM_EIO, "The device was lost.");
	fake.held_up += place > fake.done;
	run_until(place);
	return 0;
}

static void event_drop(void *dev, void *event)
{
	(void)dev, (void)event;
}

static void *alloc(void *dev, size_t bytes)
{
	(void)dev;
	return calloc(1, bytes);
}

static void release(void *dev, void *memory)
{
	(void)dev;
	free(memory);
}

static const struct jm_backend_events events = {
	.create = event_new,
	.record = event_record,
	.follow = event_follow,
	.wait = event_wait,
	.drop = event_drop,
};

static const struct jm_backend backend = {
	.name = "fake",
	.alloc = alloc,
	.release = release,
	.copy = copy,
	.events = &events,
};

static float input[FLOATS];
static struct jm_tensor tensor = {
	.class = JM_CLASS_INPUT, .type = JM_F32, .bytes = sizeof(input), .data = input};
static struct jm_device device = {.backend = &backend};
static struct jm_program program = {.device = &device};

static int start(void **state)
{
	static struct jm_staging staging;
	struct jm_tensor *inputs[] = {&tensor};
	struct jm_err err = JM_ERR_INIT;

	memset(&fake, 0, sizeof(fake));
	fake.input = input;
	fake.fail_at = -1;
	*state = &staging;
	return jm_staging_open(&staging, &program, inputs, 1, &err);
}

static int stop(void **state)
{
	jm_staging_close(*state);
	return 0;
}

static float value(int batch, int i)
{
	return (float)(100 * batch + i);
}

static int send_batch(struct jm_staging *s, int batch, struct jm_err *err)
{
	int code = jm_staging_begin(s, err);
	float *room = jm_staging_room(s, &tensor);

	if (code)
		return code;
	assert_non_null(room);
	for (int i = 0; i < FLOATS; i++)
		room[i] = value(batch, i);
	return jm_staging_end(s, err);
}

/* Each batch arrives whole and in its turn, however late the device takes it. */
static void a_slot_is_not_written_before_it_was_sent(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	for (int batch = 0; batch < BATCHES; batch++)
		assert_ok(send_batch(*state, batch, &err), err);
	run_until(fake.n);
	assert_int_equal(fake.n_seen, BATCHES);
	for (int batch = 0; batch < BATCHES; batch++)
		for (int i = 0; i < FLOATS; i++)
			assert_true(fake.seen[batch][i] == value(batch, i));
}

/* The host runs ahead by as many batches as there are slots, and no further. */
static void the_host_waits_only_for_a_slot_in_use(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	for (int batch = 0; batch < BATCHES; batch++) {
		assert_ok(send_batch(*state, batch, &err), err);
		assert_int_equal(
			fake.held_up, batch < JM_STAGING_SLOTS ? 0 : batch - JM_STAGING_SLOTS + 1);
	}
	run_until(fake.n); /* the host does not wait for a device that has caught up */
	fake.held_up = 0;
	assert_ok(send_batch(*state, 0, &err), err);
	assert_int_equal(fake.held_up, 0);
}

static void a_device_that_is_lost_in_the_wait_is_told(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	fake.fail_at = JM_STAGING_SLOTS;
	for (int batch = 0; batch < JM_STAGING_SLOTS; batch++)
		assert_ok(send_batch(*state, batch, &err), err);
	assert_int_equal(send_batch(*state, 0, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
}

enum { ROWS = 4, WIDTH = 8, KEPT = -7 };

static int copy_now(void *dev, enum jm_queue queue, void *to, const void *from, size_t bytes,
	enum jm_copy kind, struct jm_err *err)
{
	(void)dev, (void)queue, (void)kind, (void)err;
	memcpy(to, from, bytes);
	return 0;
}

/* Sends two batches, of which the second reads parts of rows 0 and 2, to a table that has KEPT
 * everywhere before it; returns what the table holds then. */
static void send_rows(const struct jm_backend *b, int32_t table[ROWS][WIDTH])
{
	static const int32_t used[2][ROWS] = {{WIDTH, 0, 0, 0}, {3, 0, 2, 0}};
	struct jm_device on = {.backend = b};
	struct jm_program p = {.device = &on};
	struct jm_tensor pages = {.class = JM_CLASS_INPUT,
		.type = JM_I32,
		.rank = 2,
		.dim = {ROWS, WIDTH},
		.bytes = sizeof(int32_t[ROWS][WIDTH]),
		.data = table};
	struct jm_tensor *inputs[] = {&tensor, &pages};
	struct jm_staging s;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_staging_open(&s, &p, inputs, 2, &err), err);
	for (int batch = 0; batch < 2; batch++) {
		assert_ok(jm_staging_begin(&s, &err), err);
		int32_t *room = jm_staging_room(&s, &pages);

		for (int i = 0; i < ROWS; i++)
			for (int k = 0; k < used[batch][i]; k++)
				room[i * WIDTH + k] = 100 * batch + 10 * i + k;
		jm_staging_rows(&s, used[batch]);
		assert_ok(jm_staging_end(&s, &err), err);
		run_until(fake.n);
		for (int i = 0; i < ROWS * WIDTH && !batch; i++)
			table[i / WIDTH][i % WIDTH] = KEPT;
	}
	jm_staging_close(&s);
}

/* What the batch reads arrives, and nothing is written behind the last of it. */
static void of_a_table_only_the_rows_that_are_read_are_sent(void **state)
{
	static const struct jm_backend now = {
		.name = "now", .alloc = alloc, .release = release, .copy = copy_now};
	int32_t table[ROWS][WIDTH];

	(void)state;
	for (int async = 0; async < 2; async++) {
		memset(&fake, 0, sizeof(fake));
		fake.fail_at = -1;
		send_rows(async ? &backend : &now, table);
		for (int k = 0; k < WIDTH; k++) {
			if (k < 3)
				assert_int_equal(table[0][k], 100 + k);
			if (k < 2)
				assert_int_equal(table[2][k], 120 + k);
			else
				assert_int_equal(table[2][k], KEPT);
			if (!async) /* one copy of both rows has what is between them, too */
				assert_int_equal(table[1][k], KEPT);
			assert_int_equal(table[3][k], KEPT);
		}
	}
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)
	const struct CMUnitTest tests[] = {
		CASE(a_slot_is_not_written_before_it_was_sent),
		CASE(the_host_waits_only_for_a_slot_in_use),
		CASE(a_device_that_is_lost_in_the_wait_is_told),
		cmocka_unit_test(of_a_table_only_the_rows_that_are_read_are_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
