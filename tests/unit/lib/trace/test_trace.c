/* SPDX-License-Identifier: Apache-2.0 */
/* The trace: readings are restored, with runs shortened; damaged bytes are refused. */
#include "kit/test.h"
#include "base/clock.h"
#include "trace/codec.h"
#include "trace/trace.h"
#include "kit/wave.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N 30000

static off_t room = INT64_MAX; /* of the file that is written first */
static int first_file = -1;

/* In place of the C library's. */
ssize_t pwrite(int fd, const void *buf, size_t nbytes, off_t offset)
{
	if (first_file < 0)
		first_file = fd;
	if (fd == first_file && offset >= room) {
		errno = ENOSPC;
		return -1;
	}
	if (fd == first_file && offset + (off_t)nbytes > room)
		nbytes = (size_t)(room - offset);
	return (ssize_t)syscall(SYS_pwrite64, fd, buf, nbytes, offset);
}

struct list {
	struct jm_reading r[N + 8];
	int n;
};

static int gather(void *arg, struct jm_reading r)
{
	struct list *list = arg;

	assert_true(list->n < N + 8);
	list->r[list->n++] = r;
	return 0;
}

static void make_set(struct jm_meters *set, double step, int signals)
{
	struct jm_meter meter = {.id = "m"};
	struct jm_signal signal = {.step = step};

	*set = (struct jm_meters){0};
	jm_meters_add(set, &meter, NULL);
	for (int i = 0; i < signals; i++)
		jm_meters_add_signal(set, &signal, NULL);
}

static bool same(double a, double b)
{
	return a == b || (isnan(a) && isnan(b));
}

/* What a trace keeps of a series: later stamps only, of equal values the first and the last. */
static void shorten(const struct list *in, struct list *out)
{
	out->n = 0;
	for (int i = 0; i < in->n; i++) {
		const struct jm_reading *r = &in->r[i];
		int n = out->n;

		if (n && r->t_ns <= out->r[n - 1].t_ns)
			continue;
		if (n > 1 && same(r->value, out->r[n - 1].value) &&
			same(r->value, out->r[n - 2].value))
			out->r[n - 1] = *r;
		else
			out->r[out->n++] = *r;
	}
}

static double any_value(uint64_t *seed, int kind, double before)
{
	switch (kind) {
	case 0:
		return before;
	case 1:
		return NAN;
	case 2:
		return wave_uniform(seed, -1e6, 1e6);
	case 3:
		return (double)(wave_random(seed) % 1000000) / 1000.0;
	default:
		return (double)(wave_random(seed) % 1000000) * 1e-3;
	}
}

static void fill(struct list *list, uint64_t seed)
{
	int64_t t = (int64_t)(wave_random(&seed) % 1000) - 500;
	double value = 0;

	list->n = 0;
	for (int i = 0; i < N; i++) {
		value = any_value(&seed, (int)(wave_random(&seed) % 5), value);
		list->r[list->n++] = (struct jm_reading){value, t};
		if (wave_random(&seed) % 10)
			t += 100000000 + (int64_t)(wave_random(&seed) % 1000);
	}
}

static void assert_same(const struct list *a, const struct list *b)
{
	assert_int_equal(a->n, b->n);
	for (int i = 0; i < a->n; i++) {
		assert_int_equal(a->r[i].t_ns, b->r[i].t_ns);
		assert_true(same(a->r[i].value, b->r[i].value));
	}
}

/* -0 is a value different from 0, and a reading later than the chunk says it ends is damage. */
static void bits_and_ends(void **state)
{
	static const struct jm_reading readings[] = {{0, 10}, {-0.0, 20}, {3, 30}};
	uint8_t bytes[JM_CHUNK_HEADER + 3 * JM_RECORD_MAX];
	struct jm_encoder e;
	struct jm_decoder d;
	struct jm_reading r;
	size_t n = JM_CHUNK_HEADER, all;

	(void)state;
	jm_encoder_init(&e, 1);
	for (int i = 0; i < 3; i++)
		n += jm_encode(&e, readings[i], bytes + n);
	jm_encode_header(&e, bytes);
	assert_ok(jm_decoder_init(&d, bytes, n, &all, NULL), (struct jm_err)JM_ERR_INIT);
	assert_int_equal(all, n);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(jm_decode(&d, &r), 1);
		assert_true(r.value == readings[i].value && r.t_ns == readings[i].t_ns);
		assert_true(signbit(r.value) == signbit(readings[i].value));
	}
	assert_int_equal(jm_decode(&d, &r), 0);
	e.t = 29; /* the last reading */
	jm_encode_header(&e, bytes);
	assert_ok(jm_decoder_init(&d, bytes, n, &all, NULL), (struct jm_err)JM_ERR_INIT);
	assert_int_equal(jm_decode(&d, &r), 1);
	assert_int_equal(jm_decode(&d, &r), 1);
	assert_int_equal(jm_decode(&d, &r), JM_EFORMAT);
}

static struct list in, kept, out;

static void round_trip(void **state)
{
	static const double steps[] = {0, 1e-3, 61e-6, 7};
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct jm_meters set;
		struct jm_trace *t;

		make_set(&set, steps[i], 2);
		t = jm_trace_new(&set, &err);
		fill(&in, i + 1);
		for (int k = 0; k < in.n; k++)
			assert_ok(jm_trace_append(t, 1, in.r[k], &err), err);
		shorten(&in, &kept);
		out.n = 0;
		assert_ok(jm_trace_each(t, 1, INT64_MIN, INT64_MAX, gather, &out, &err), err);
		assert_same(&kept, &out);
		out.n = 0;
		assert_ok(jm_trace_each(t, 0, INT64_MIN, INT64_MAX, gather, &out, &err), err);
		assert_int_equal(out.n, 0);
		jm_trace_free(t);
		jm_meters_done(&set);
	}
}

/* A file that is full in the middle of a block is followed by one in another folder. */
static void a_full_disk_is_left(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set;
	struct jm_trace *t;

	(void)state;
	make_set(&set, 1e-3, 2);
	room = 100000;
	first_file = -1;
	t = jm_trace_new(&set, &err);
	fill(&in, 3);
	for (int k = 0; k < in.n; k++)
		for (int signal = 0; signal < 2; signal++)
			assert_ok(jm_trace_append(t, signal, in.r[k], &err), err);
	shorten(&in, &kept);
	for (int signal = 0; signal < 2; signal++) {
		out.n = 0;
		assert_ok(jm_trace_each(t, signal, INT64_MIN, INT64_MAX, gather, &out, &err), err);
		assert_same(&kept, &out);
	}
	assert_int_equal(lseek(first_file, 0, SEEK_END), room);
	jm_trace_free(t);
	room = INT64_MAX;
	jm_meters_done(&set);
}

/* A stretch gives its readings, one before and one after. */
static void stretches(void **state)
{
	struct jm_meters set;
	struct jm_err err = JM_ERR_INIT;
	struct jm_trace *t;

	(void)state;
	make_set(&set, 1, 1);
	t = jm_trace_new(&set, &err);
	for (int i = 0; i < N; i++)
		jm_trace_append(t, 0, (struct jm_reading){i, 10 * i}, &err);
	for (int from = 0; from < N - 100; from += 977) {
		out.n = 0;
		assert_ok(jm_trace_each(t, 0, 10 * from + 5, 10 * from + 25, gather, &out, &err),
			err);
		assert_int_equal(out.n, 4);
		assert_int_equal(out.r[0].t_ns, 10 * from);
		assert_int_equal(out.r[3].t_ns, 10 * from + 30);
	}
	out.n = 0;
	assert_ok(jm_trace_each(t, 0, 20 * N, 30 * N, gather, &out, &err), err);
	assert_int_equal(out.n, 1);
	assert_int_equal(out.r[0].t_ns, 10 * (N - 1));
	jm_trace_free(t);
	jm_meters_done(&set);
}

struct chunks {
	struct jm_trace *to;
	int n;
	uint32_t readings;
	uint8_t bytes[8192];
	size_t size;
};

static int take_chunk(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct chunks *c = arg;
	struct jm_chunk parsed;
	int rc = jm_chunk_parse(chunk->signal, chunk->data, chunk->bytes, &parsed, err);

	assert_int_equal(rc, 0);
	assert_int_equal(parsed.t0_ns, chunk->t0_ns);
	assert_int_equal(parsed.t1_ns, chunk->t1_ns);
	assert_int_equal(parsed.n, chunk->n);
	c->n++;
	c->readings += chunk->n;
	assert_true(chunk->bytes <= sizeof(c->bytes));
	memcpy(c->bytes, chunk->data, chunk->bytes);
	c->size = chunk->bytes;
	return c->to ? jm_trace_add_chunk(c->to, chunk, err) : 0;
}

/* Chunks handed out now and then make the same trace elsewhere. */
static void chunks(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct chunks c = {0};
	struct jm_meters set;
	struct jm_trace *t;
	uint64_t seed = 5;

	(void)state;
	make_set(&set, 1e-3, 1);
	t = jm_trace_new(&set, &err);
	c.to = jm_trace_new(&set, &err);
	fill(&in, 9);
	for (int k = 0; k < in.n; k++) {
		assert_ok(jm_trace_append(t, 0, in.r[k], &err), err);
		if (wave_random(&seed) % 100 == 0)
			assert_ok(jm_trace_flush(t, take_chunk, &c, &err), err);
	}
	assert_ok(jm_trace_flush(t, take_chunk, &c, &err), err);
	assert_true(c.n > 100);
	out.n = 0;
	assert_ok(jm_trace_each(c.to, 0, INT64_MIN, INT64_MAX, gather, &out, &err), err);
	shorten(&in, &kept);
	shorten(&out, &in); /* a flush may have split a run */
	assert_same(&kept, &in);
	jm_trace_free(t);
	jm_trace_free(c.to);
	jm_meters_done(&set);
}

static void damage(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct chunks c = {0};
	struct jm_meters set;
	struct jm_trace *t;
	uint64_t seed = 6;
	int refused = 0;

	(void)state;
	make_set(&set, 1e-3, 1);
	t = jm_trace_new(&set, &err);
	fill(&in, 11);
	for (int k = 0; k < 500; k++)
		jm_trace_append(t, 0, in.r[k], &err);
	assert_ok(jm_trace_flush(t, take_chunk, &c, &err), err);
	for (int i = 0; i < 20000; i++) {
		struct jm_err why = JM_ERR_INIT;
		struct jm_chunk chunk;
		size_t size = c.size, at = wave_random(&seed) % size;
		uint8_t *bytes;

		if (i % 4 == 0)
			size = at;
		bytes = malloc(size + 1);
		memcpy(bytes, c.bytes, size);
		if (i % 4)
			bytes[at] ^= (uint8_t)(1 + wave_random(&seed) % 255);
		if (jm_chunk_parse(0, bytes, size, &chunk, &why)) {
			assert_true(why.code == JM_EFORMAT || why.code == JM_EVERSION);
			refused++;
		}
		free(bytes);
	}
	assert_true(refused > 5000);
	jm_trace_free(t);
	jm_meters_done(&set);
}

static void out_of_order(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct chunks c = {0};
	struct jm_chunk chunk;
	struct jm_meters set;
	struct jm_trace *t;

	(void)state;
	make_set(&set, 1e-3, 1);
	t = jm_trace_new(&set, &err);
	jm_trace_append(t, 0, (struct jm_reading){1, 100}, &err);
	jm_trace_append(t, 0, (struct jm_reading){2, 200}, &err);
	assert_ok(jm_trace_flush(t, take_chunk, &c, &err), err);
	assert_ok(jm_chunk_parse(0, c.bytes, c.size, &chunk, &err), err);
	assert_int_equal(jm_trace_add_chunk(t, &chunk, &err), JM_EFORMAT);
	assert_sentence(&err, JM_EFORMAT);
	chunk.signal = 1;
	err = (struct jm_err)JM_ERR_INIT;
	assert_int_equal(jm_trace_add_chunk(t, &chunk, &err), JM_EFORMAT);
	jm_trace_free(t);
	jm_meters_done(&set);
}

static int note_reading(void *arg, struct jm_reading r)
{
	struct jm_reading *found = arg;

	found[r.value > 0.15] = r;
	return 0;
}

static void a_chunk_moves_in_time(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_reading found[2];
	struct chunks c = {0};
	struct jm_chunk chunk;
	struct jm_meters set;
	struct jm_trace *t;

	(void)state;
	make_set(&set, 1e-3, 1);
	t = jm_trace_new(&set, &err);
	jm_trace_append(t, 0, (struct jm_reading){0.1, 100}, &err);
	jm_trace_append(t, 0, (struct jm_reading){0.2, 250}, &err);
	assert_ok(jm_trace_flush(t, take_chunk, &c, &err), err);
	jm_chunk_shift(c.bytes, -3600 * JM_SECOND);
	assert_ok(jm_chunk_parse(0, c.bytes, c.size, &chunk, &err), err);
	assert_int_equal(chunk.t0_ns, 100 - 3600 * JM_SECOND);
	assert_int_equal(chunk.t1_ns, 250 - 3600 * JM_SECOND);
	assert_ok(jm_chunk_each(&chunk, note_reading, found, &err), err);
	assert_int_equal(found[0].t_ns, 100 - 3600 * JM_SECOND);
	assert_int_equal(found[1].t_ns, 250 - 3600 * JM_SECOND);
	jm_trace_free(t);
	jm_meters_done(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_and_ends),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(a_full_disk_is_left),
		cmocka_unit_test(stretches),
		cmocka_unit_test(chunks),
		cmocka_unit_test(damage),
		cmocka_unit_test(out_of_order),
		cmocka_unit_test(a_chunk_moves_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
