/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matrix product beside a transfer between ranks. A pair is some products and some transfers. A
 * step has three turns, each of as many pairs in a row: the products of the pairs alone, their
 * transfers alone, both at once. Each turn is a phase of the record, which has its energy.
 *
 * A device works on both in two of its queues, and its events tell the times. Ranks without such a
 * device transfer in a second thread of the host, by the host's clock.
 */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "workloads/parts/exchange.h"
#include "workloads/parts/product.h"

#define MOST_PAIRS 1e6 /* in a row */
#define REHEARSAL  16  /* of a turn, in which its pairs are counted */

enum part { PRODUCT, COLLECTIVE, BOTH, PARTS };
static const char *const part_names[] = {"product", "collective", "both"};

/* Of a pair, or of many; s. What does not run is 0. */
struct times {
	double product, collective;
	double all; /* from the begin of the first to the end of the last */
};

struct overlap {
	struct jm_kernel kernel; /* first */
	struct jm_product product;
	struct jm_exchange exchange;
	struct jm_exchange_way way;
	int collective; /* index in collectives */
	double size;	/* GB */
	int transfers;	/* of a pair */
	double turn_s;
	int pairs; /* in a row; 0 = by turn_s, until setup is over */
	struct jm_event product_began, product_done, began, done;
	/* of the steady steps: */
	struct times sum[PARTS];
	long rounds;
};

static const char *const collectives[] = {
	"allgather", "allreduce", "alltoall", "reducescatter", "broadcast", NULL};
static const enum jm_transfer_kind kinds[] = {
	JM_ALL_GATHER, JM_ALL_REDUCE, JM_ALL_TO_ALL, JM_REDUCE_SCATTER, JM_BROADCAST};

static const struct jm_option options[] = {
	JM_PRODUCT_OPTIONS(struct overlap, product),
	{.name = "products",
		JM_BIND(JM_INT, struct overlap, product.times),
		.min = 1,
		.max = 1e4,
		.help = "products of a pair; without it as many as the device should do in 20 ms"},
	{.name = "collective",
		JM_BIND(JM_CHOICE, struct overlap, collective),
		.choices = collectives,
		.fallback = "allgather",
		.help = "the transfer between ranks that runs beside the products"},
	{.name = "size",
		JM_BIND(JM_REAL, struct overlap, size),
		.min = 1e-9,
		.max = 1e6,
		.fallback = "0.25",
		.help = "GB of the array that each rank sends or receives, whichever is larger"},
	{.name = "transfers",
		JM_BIND(JM_INT, struct overlap, transfers),
		.min = 1,
		.max = 1e4,
		.fallback = "1",
		.help = "transfers of a pair"},
	{.name = "turn",
		JM_BIND(JM_DURATION, struct overlap, turn_s),
		.unit = "s",
		.min = 0.001,
		.max = 3600,
		.fallback = "1s",
		.help = "how long the products alone, the transfers alone and both at once run "
			"before the next of the three; longer than the power sensor's window"},
	{.name = "pairs",
		JM_BIND(JM_INT, struct overlap, pairs),
		.min = 1,
		.max = MOST_PAIRS,
		.help = "pairs of a turn, in place of --turn"},
	{.name = "ranks",
		.type = JM_INT,
		.min = 2,
		.max = JM_RANKS_MOST,
		.help = "processes that take part, 2 or more; --device names one device for all, "
			"or one for each"},
	JM_EXCHANGE_OPTIONS(struct overlap, way),
	JM_KERNEL_THREADS(struct overlap),
	{0},
};

/* ---- a pair ---------------------------------------------------------------------------------- */

static int queue_transfers(struct overlap *s, struct jm_err *err)
{
	const struct jm_device *d = &s->kernel.device;
	void *stream;
	int code = d->backend->stream(d->dev, JM_QUEUE_COMM, &stream, err);

	if (!code)
		code = jm_event_record(&s->began, JM_QUEUE_COMM, err);
	if (!code)
		code = jm_exchange_start(&s->exchange, s->transfers, stream, err);
	return code ? code : jm_event_record(&s->done, JM_QUEUE_COMM, err);
}

static int queue_products(struct overlap *s, struct jm_err *err)
{
	int code = jm_event_record(&s->product_began, JM_QUEUE_COMPUTE, err);

	if (!code)
		code = jm_kernel_queue(&s->kernel, err);
	return code ? code : jm_event_record(&s->product_done, JM_QUEUE_COMPUTE, err);
}

static int read_events(
	const struct overlap *s, enum part part, struct times *ret, struct jm_err *err)
{
	double until = 0;
	int code = 0;

	if (part != COLLECTIVE)
		code = jm_event_seconds(&s->product_began, &s->product_done, &ret->product, err);
	if (!code && part != PRODUCT)
		code = jm_event_seconds(&s->began, &s->done, &ret->collective, err);
	if (!code && part == BOTH)
		code = jm_event_seconds(&s->began, &s->product_done, &until, err);
	ret->all = fmax(part == PRODUCT ? ret->product : ret->collective, until);
	return code;
}

/* The transfers first: where products have taken all multiprocessors, they would wait. */
static int run_queues(struct overlap *s, enum part part, struct times *ret, struct jm_err *err)
{
	int code = part != PRODUCT ? queue_transfers(s, err) : 0;

	if (!code && part != COLLECTIVE)
		code = queue_products(s, err);
	if (!code)
		code = jm_device_sync(&s->kernel.device, err);
	return code ? code : read_events(s, part, ret, err);
}

/* One of the two, by the host's clock. */
struct side {
	struct overlap *overlap;
	int64_t t0_ns, t1_ns;
	int code;
	struct jm_err err;
};

static void *transfer(void *arg)
{
	struct side *side = arg;
	struct overlap *s = side->overlap;

	side->t0_ns = jm_clock_now(jm_clock_real());
	side->code = jm_exchange_start(&s->exchange, s->transfers, NULL, &side->err);
	side->t1_ns = jm_clock_now(jm_clock_real());
	return NULL;
}

static void multiply(struct side *side)
{
	struct overlap *s = side->overlap;

	side->t0_ns = jm_clock_now(jm_clock_real());
	side->code = jm_kernel_queue(&s->kernel, &side->err);
	if (!side->code)
		side->code = jm_device_sync(&s->kernel.device, &side->err);
	side->t1_ns = jm_clock_now(jm_clock_real());
}

static int run_both(struct side *product, struct side *collective, struct jm_err *err)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, transfer, collective))
		return jm_err_set(err, JM_ENOMEM,
			"No thread can be started for the transfers beside the products; raise the "
			"limit of processes (ulimit -u).");
	multiply(product);
	pthread_join(thread, NULL);
	return 0;
}

static double between(int64_t t0_ns, int64_t t1_ns)
{
	return 1e-9 * (double)(t1_ns - t0_ns);
}

static int run_threads(struct overlap *s, enum part part, struct times *ret, struct jm_err *err)
{
	struct side side[] = {
		{.overlap = s, .err = JM_ERR_INIT}, {.overlap = s, .err = JM_ERR_INIT}};
	struct side *p = &side[0], *c = &side[1];
	int code = 0;

	if (part == BOTH)
		code = run_both(p, c, err);
	else if (part == PRODUCT)
		multiply(p);
	else
		transfer(c);
	for (int i = 0; i < 2 && !code; i++)
		if (side[i].code)
			code = jm_err_set(err, side[i].code, "%s", side[i].err.text);
	ret->product = between(p->t0_ns, p->t1_ns);
	ret->collective = between(c->t0_ns, c->t1_ns);
	ret->all = ret->product + ret->collective; /* one of them is 0 */
	if (part == BOTH)
		ret->all = between(p->t0_ns < c->t0_ns ? p->t0_ns : c->t0_ns,
			p->t1_ns > c->t1_ns ? p->t1_ns : c->t1_ns);
	return code;
}

static int run_pair(struct overlap *s, enum part part, struct times *ret, struct jm_err *err)
{
	*ret = (struct times){0};
	if (part != COLLECTIVE)
		s->kernel.steps++;
	if (s->kernel.device.backend->stream)
		return run_queues(s, part, ret, err);
	return run_threads(s, part, ret, err);
}

/* ---- setup ----------------------------------------------------------------------------------- */

/* Runs pairs until they took a share of a turn, twice as many each time; all ranks take the time
 * of the first. One pair would say too little: on a machine that does other things, the next ones
 * may take a thousand times as long. */
static int count_pairs(struct overlap *s, struct jm_err *err)
{
	struct jm_ctx *ctx = s->kernel.work->ctx;
	double seconds = 0;
	struct times t;
	int code = 0;

	for (s->pairs = 1; !code; s->pairs *= 2) {
		int64_t t0_ns = jm_ctx_now(ctx);

		for (int i = 0; i < s->pairs && !code; i++)
			code = run_pair(s, BOTH, &t, err);
		seconds = between(t0_ns, jm_ctx_now(ctx));
		if (!code)
			code = jm_comm_from_first(
				&s->exchange.gang.control, &seconds, sizeof(seconds), err);
		if (seconds >= s->turn_s / REHEARSAL || s->pairs > MOST_PAIRS / 2)
			break;
	}
	s->pairs = (int)fmin(MOST_PAIRS, ceil(s->pairs * s->turn_s / fmax(seconds, 1e-9)));
	return code;
}

/* The first pair sets up connections. */
static int rehearse(struct overlap *s, struct jm_err *err)
{
	struct times t;
	int code = run_pair(s, BOTH, &t, err);

	return code || s->pairs ? code : count_pairs(s, err);
}

static int make_events(struct overlap *s, struct jm_err *err)
{
	struct jm_event *event[] = {&s->product_began, &s->product_done, &s->began, &s->done};
	int code = 0;

	for (int i = 0; i < 4 && !code; i++)
		code = jm_event_new(&s->kernel.device, event[i], err);
	return code;
}

static int make_program(void *state, struct jm_err *err)
{
	struct overlap *s = state;
	int code;

	jm_product_declare(&s->product, &s->kernel);
	code = jm_kernel_ready(&s->kernel, err);
	return code ? code : jm_product_write(&s->product, err);
}

static void describe(const struct overlap *s)
{
	struct jm_work *work = s->kernel.work;
	char product[96];

	jm_product_text(&s->product, product, sizeof(product));
	work->n_devices = jm_gang_devices(work);
	snprintf(work->detail, sizeof(work->detail),
		"%d x %s beside %d x %s of %.4g GB by %s between %d ranks, %d pairs in a row; on "
		"%.50s",
		s->product.times, product, s->transfers, collectives[s->collective],
		(double)s->exchange.bytes / 1e9, jm_gang_comm(&s->exchange.gang)->transport->name,
		work->world, s->pairs, s->kernel.device.props.name);
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct overlap *s = state;
	int code = jm_kernel_open(&s->kernel, work, err);

	if (!code)
		code = jm_exchange_open(&s->exchange, work, &s->kernel.device, &s->way, err);
	if (!code)
		code = jm_gang_in_turn(&s->exchange.gang, make_program, s, err);
	if (!code)
		code = jm_exchange_fill(&s->exchange, kinds[s->collective], s->size, err);
	if (!code)
		code = make_events(s, err);
	if (!code)
		code = rehearse(s, err);
	if (!code)
		describe(s);
	return code;
}

static void overlap_teardown(void *state)
{
	struct overlap *s = state;

	if (!s || !jm_exchange_close(&s->exchange))
		return;
	jm_event_drop(&s->product_began);
	jm_event_drop(&s->product_done);
	jm_event_drop(&s->began);
	jm_event_drop(&s->done);
	jm_kernel_teardown(s);
}

static int overlap_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(
		work, sizeof(struct overlap), prepare, overlap_teardown, ret_state, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static double items_of_turn(const struct overlap *s)
{
	return (double)s->pairs * s->kernel.work->world;
}

/* As a phase of the record, if it is of a steady step and there is room. */
static void note_turn(struct overlap *s, enum part part, int64_t t0_ns)
{
	struct jm_work *work = s->kernel.work;
	long at = s->rounds * PARTS + part;

	if (work->steady_ns && at < JM_WORK_WINDOWS)
		work->window[at] = (struct jm_work_window){
			part_names[part], t0_ns, jm_ctx_now(work->ctx), items_of_turn(s)};
}

static int take_turn(struct overlap *s, enum part part, struct jm_err *err)
{
	bool counts = s->kernel.work->steady_ns;
	int code = jm_gang_meet(&s->exchange.gang, &s->kernel.device, err);
	int64_t t0_ns = jm_ctx_now(s->kernel.work->ctx);
	struct times t;

	for (int i = 0; i < s->pairs && !code; i++) {
		code = run_pair(s, part, &t, err);
		s->sum[part].product += counts ? t.product : 0;
		s->sum[part].collective += counts ? t.collective : 0;
		s->sum[part].all += counts ? t.all : 0;
	}
	note_turn(s, part, t0_ns);
	return code;
}

static int overlap_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct overlap *s = state;
	double twice;
	int code = 0;

	for (int part = 0; part < PARTS && !code; part++)
		code = take_turn(s, (enum part)part, err);
	if (code)
		return code;
	s->rounds += s->kernel.work->steady_ns != 0;
	twice = 2 * items_of_turn(s); /* one after the other, and at once */
	*ret = (struct jm_step){.items = twice,
		.flops_model = twice * s->kernel.each.flops_model,
		.flops_executed = twice * s->kernel.each.flops_executed,
		.bytes = twice * s->kernel.each.bytes,
		.loss = NAN};
	return 0;
}

static int overlap_agree(void *state, void *value, size_t bytes, struct jm_err *err)
{
	struct overlap *s = state;

	return jm_comm_from_first(&s->exchange.gang.control, value, bytes, err);
}

/* ---- results --------------------------------------------------------------------------------- */

static json_t *side_json(
	double alone, double beside, double amount, const char *per_s, const char *beside_per_s)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", alone, "beside_s", beside,
		"slowdown", beside / alone, per_s, amount / alone, beside_per_s, amount / beside);
}

/* As in the record's key `overlap`. */
static json_t *overlap_json(const struct overlap *s)
{
	double n = (double)s->rounds * s->pairs;
	double product = s->sum[PRODUCT].all / n, collective = s->sum[COLLECTIVE].all / n;
	double together = s->sum[BOTH].all / n;
	double bytes = (double)s->exchange.bytes;
	json_t *json = json_object(), *both = json_object();

	jm_json_set_text(&json, "kind", collectives[s->collective]);
	jm_json_set_text(&json, "transport", jm_gang_comm(&s->exchange.gang)->transport->name);
	jm_json_set_number(&json, "bytes", bytes);
	jm_json_set_int(&json, "products", s->product.times);
	jm_json_set_int(&json, "transfers", s->transfers);
	jm_json_set_int(&json, "pairs", (json_int_t)n);
	jm_json_set(&json, "product",
		side_json(product, s->sum[BOTH].product / n, s->product.times, "per_s",
			"beside_per_s"));
	jm_json_set(&json, "collective",
		side_json(collective, s->sum[BOTH].collective / n, s->transfers * bytes,
			"bytes_per_s", "beside_bytes_per_s"));
	jm_json_set_number(&both, "seconds", together);
	jm_json_set_number(&both, "exposed_s", together - product);
	jm_json_set_number(&both, "overlapped_s", product + collective - together);
	jm_json_set_number(&both, "of_longer", together / fmax(product, collective));
	jm_json_set(&json, "both", both);
	return json;
}

static void keep(const struct overlap *s)
{
	if (s->kernel.work->more && s->rounds)
		json_object_set_new(s->kernel.work->more, "overlap", overlap_json(s));
}

static int overlap_verify(void *state, struct jm_err *err)
{
	struct overlap *s = state;
	int code = jm_product_verify(&s->product, err);

	keep(s);
	return code ? code : jm_exchange_verify(&s->exchange, err);
}

const struct jm_workload jm_workload_overlap = {
	.name = "overlap",
	.summary = "a matrix product beside a transfer between ranks: each alone, and both at once",
	.unit = "pair",
	.options = options,
	.check = jm_kernel_check_products,
	.setup = overlap_setup,
	.step = overlap_step,
	.agree = overlap_agree,
	.verify = overlap_verify,
	.teardown = overlap_teardown,
};
