/* SPDX-License-Identifier: Apache-2.0 */
/* Values reach an asynchronous device (tests/peers/backend_later.c) whole, whatever the pieces:
 * start values of more than one piece, and rows in 8 bits with their factors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/fp8.h"
#include "engine/graph/layer.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "engine/run/start_values.h"
#include "engine/run/value_stream.h"
#include "kit/engine_kit.h"
#include "kit/test.h"

enum { ROWS = 32, FIRST = 20, WIDTH = 48 };

static struct jm_tensor *plan(
	struct kit *k, enum jm_init init, int64_t rows, int64_t width, bool is_f8)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *w;

	jm_graph_scope(k->graph, "block");
	w = jm_graph_matrix(k->graph, "w", init, rows, width);

	jm_graph_linear(k->graph,
		jm_graph_input(k->graph, "x", k->graph->compute, 2, DIMS(1, width)), w, NULL);
	if (is_f8)
		assert_ok(jm_graph_fp8_rows(k->graph, &err), err);
	assert_ok(jm_program_plan(k->graph, &k->device, &k->program, &err), err);
	assert_ok(jm_program_build(k->program, &err), err);
	return w;
}

/* Element i of the rows that are sent: the largest of a row differ. */
static double value_of(int64_t i)
{
	return ldexp(1 + (double)(i % 7) / 8, (int)(i / WIDTH % 5)) * (i % 3 ? 1 : -1);
}

static int give(void *arg, int64_t first, int64_t n, void *to, struct jm_err *err)
{
	const struct jm_graph *g = arg;

	(void)err;
	for (int64_t i = 0; i < n; i++)
		jm_element_set(g->compute, to, i, value_of(first + i));
	return 0;
}

/* In two sendings, as parts of a file. */
static void send_rows(const char *device, size_t piece_bytes)
{
	static uint8_t code[ROWS * WIDTH];
	struct jm_value_stream s = {0};
	struct jm_err err = JM_ERR_INIT;
	float factor[ROWS];
	struct jm_tensor *w;
	struct kit k;

	kit_init(&k, device, JM_BF16);
	w = plan(&k, JM_INIT_NORMAL, ROWS, WIDTH, true);
	assert_ok(jm_value_stream_open(&s, k.program, &err), err);
	s.piece_bytes = piece_bytes;
	assert_ok(jm_value_stream_send(&s, w, 0, FIRST * WIDTH, give, k.graph, &err), err);
	assert_ok(jm_value_stream_send(
			  &s, w, FIRST * WIDTH, (ROWS - FIRST) * WIDTH, give, k.graph, &err),
		err);
	assert_ok(jm_value_stream_end(&s, &err), err);
	jm_value_stream_close(&s);
	assert_ok(jm_program_read(k.program, w, code, &err), err);
	assert_ok(jm_program_read(k.program, jm_graph_cell(k.graph, w)->scale, factor, &err), err);
	for (int i = 0; i < ROWS * WIDTH; i++) {
		double sent = value_of(i % (FIRST * WIDTH));
		double got = jm_element_get(JM_F8E4M3, code, i) * (double)factor[i / WIDTH];

		assert_near(got, sent, fabs(sent) / 16);
	}
	for (int row = 0; row < ROWS; row++) /* the largest is 1.75 2^k */
		assert_near(factor[row] * 448, ldexp(1.75, row % FIRST % 5), 1e-6);
	kit_done(&k);
}

static void rows_in_8_bits(void **state)
{
	(void)state;
	send_rows("later", 200); /* three rows and their factors */
	send_rows("later", (size_t)1 << 20);
	send_rows("ref", 200);
}

static void a_row_larger_than_a_piece_is_refused(void **state)
{
	struct jm_value_stream s = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *w;
	struct kit k;

	(void)state;
	kit_init(&k, "later", JM_BF16);
	w = plan(&k, JM_INIT_NORMAL, ROWS, WIDTH, true);
	assert_ok(jm_value_stream_open(&s, k.program, &err), err);
	s.piece_bytes = 50;
	assert_int_equal(
		jm_value_stream_send(&s, w, 0, ROWS * WIDTH, give, k.graph, &err), JM_ENOMEM);
	jm_value_stream_close(&s);
	kit_done(&k);
}

/* A value as its place alone gives it; two in twenty are drawn again. */
static float cut_value(uint64_t seed, int64_t i)
{
	uint64_t counter = (uint64_t)i / 2;
	float pair[2];

	do {
		jm_rng_normal_pair(seed, counter, pair);
		counter += UINT64_C(1) << 48;
	} while (fabsf(pair[0]) > 2 || fabsf(pair[1]) > 2);
	return pair[i % 2];
}

static void start_values_of_several_pieces(void **state)
{
	enum { SIDE = 4099 }; /* 67 MB in f32 */
	struct jm_err err = JM_ERR_INIT;
	float *value = malloc(sizeof(float) * SIDE * SIDE);
	struct jm_tensor *w;
	float std;
	struct kit k;

	(void)state;
	assert_non_null(value);
	kit_init(&k, "later", JM_F32);
	w = plan(&k, JM_INIT_TRUNC_NORMAL, SIDE, SIDE, false);
	assert_ok(jm_program_init(k.program, 11, &err), err);
	assert_ok(jm_program_read(k.program, w, value, &err), err);
	std = value[0] / cut_value(jm_rng(11, 0), 0);
	for (int64_t i = 0; i < SIDE * SIDE; i += i < 5000 ? 1 : 997)
		assert_near(value[i], std * cut_value(jm_rng(11, 0), i), 1e-6 * std);
	free(value);
	kit_done(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_in_8_bits),
		cmocka_unit_test(a_row_larger_than_a_piece_is_refused),
		cmocka_unit_test(start_values_of_several_pieces),
	};

	use_peer_backends();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
