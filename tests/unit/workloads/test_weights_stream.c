/* SPDX-License-Identifier: Apache-2.0 */
/* Values reach an asynchronous device (tests/peers/backend_later.c) whole, whatever the pieces, and
 * converted. */
#include "kit/test.h"
#include "data/safetensors_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/graph/model.h"
#include "engine/graph/tensor.h"
#include "workloads/parts/weights_stream.h"

#define N 40 /* rows and columns */

struct fixture {
	struct jm_device device;
	struct jm_values dims;
	struct jm_graph *graph;
	struct jm_program *program;
	struct jm_tensor *matrix;
	char path[64];
	struct jm_safetensors file;
};

static double value_of(int64_t i)
{
	return ldexp(1 + (double)(i % 100) / 128, (int)(i % 7) - 3); /* exact in bf16 */
}

static void open_program(struct fixture *x, const char *device)
{
	struct jm_training t = {.batch = 2, .adamw = {.beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8}};
	const struct jm_preset *preset;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_model_find("mlp", &t.model, &preset, &err), err);
	assert_ok(jm_values_init(&x->dims, t.model->options, &err), err);
	for (const char *const *name = (const char *const[]){"layers", "hidden", "features", NULL};
		*name; name++)
		assert_ok(jm_values_set(&x->dims, *name, **name == 'l' ? "2" : "40", &err), err);
	assert_ok(jm_values_set(&x->dims, "outputs", "1", &err), err);
	t.dims = &x->dims;
	assert_ok(jm_precision_set(&t, "f32", &err), err);
	assert_ok(jm_device_open(device, 1, &x->device, &err), err);
	assert_ok(jm_model_train(&t, &x->graph, &err), err);
	assert_ok(jm_program_plan(x->graph, &x->device, &x->program, &err), err);
	assert_ok(jm_program_build(x->program, &err), err);
	for (int i = 0; i < x->graph->n_cells && !x->matrix; i++) {
		struct jm_tensor *p = &x->graph->cell[i]->t;

		if (p->class == JM_CLASS_PARAM && p->rank == 2 && p->dim[0] == N && p->dim[1] == N)
			x->matrix = p;
	}
	assert_non_null(x->matrix);
}

static int give(void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err)
{
	const struct jm_safetensor *t = arg;
	int code = 0;

	for (int64_t k = 0; k < N * N && !code; k++) {
		double bytes;
		bool last = i && k == N * N - 1; /* the second tensor ends in an infinity */

		jm_element_set(jm_weights_dtype(t->type), &bytes, 0,
			last ? (double)INFINITY : value_of(k));
		code = jm_safetensors_put(sink, &bytes, jm_safetensor_type_bytes(t->type), err);
	}
	return code;
}

static void open_file(struct fixture *x, enum jm_safetensor_type type)
{
	struct jm_safetensor t[2] = {{.name = "a", .type = type, .rank = 2, .dim = {N, N}}};
	struct jm_err err = JM_ERR_INIT;

	t[1] = t[0];
	t[1].name = "b";
	snprintf(x->path, sizeof(x->path), "/tmp/jm-stream-%d", (int)getpid());
	assert_ok(jm_safetensors_write(x->path, t, 2, NULL, give, t, &err), err);
	assert_ok(jm_safetensors_open(x->path, &x->file, &err), err);
}

static void close_all(struct fixture *x)
{
	jm_safetensors_close(&x->file);
	unlink(x->path);
	jm_program_free(x->program);
	jm_graph_free(x->graph);
	jm_device_close(&x->device);
	jm_values_done(&x->dims);
}

static void check_values(struct fixture *x)
{
	struct jm_err err = JM_ERR_INIT;
	float got[N * N];

	assert_ok(jm_program_read(x->program, x->matrix, got, &err), err);
	for (int i = 0; i < N * N; i++)
		assert_true(got[i] == (float)value_of(i));
}

static void send(const char *device, enum jm_safetensor_type type, size_t piece_bytes)
{
	struct jm_value_stream s = {0};
	struct jm_err err = JM_ERR_INIT;
	struct fixture x = {0};

	open_program(&x, device);
	open_file(&x, type);
	assert_ok(jm_value_stream_open(&s, x.program, &err), err);
	s.piece_bytes = piece_bytes;
	assert_true(jm_value_stream_takes(x.matrix));
	assert_ok(
		jm_weights_send(&s, &x.file, jm_safetensors_find(&x.file, "a"), x.matrix, 0, &err),
		err);
	assert_ok(jm_value_stream_end(&s, &err), err);
	check_values(&x);
	assert_int_equal(
		jm_weights_send(&s, &x.file, jm_safetensors_find(&x.file, "b"), x.matrix, 0, &err),
		JM_EFORMAT);
	assert_non_null(strstr(err.text, "'b'"));
	jm_value_stream_close(&s);
	close_all(&x);
}

static void an_asynchronous_device_gets_all_pieces(void **state)
{
	(void)state;
	send("later", JM_SAFETENSOR_F32, 1024);
	send("later", JM_SAFETENSOR_F32, (size_t)1 << 20);
	send("later", JM_SAFETENSOR_BF16, 404);
}

static void a_device_of_the_host_gets_them_without_pieces(void **state)
{
	(void)state;
	send("ref", JM_SAFETENSOR_F32, 1024);
	send("ref", JM_SAFETENSOR_F64, 1024);
	send("ref", JM_SAFETENSOR_F16, 1024);
}

static void conversion_rounds_to_nearest_and_finds_what_is_not_finite(void **state)
{
	const float from[] = {1, 1.00390625F, -3.0e38F, NAN};
	uint16_t to[4];
	float back[4];

	(void)state;
	assert_true(jm_weights_convert(JM_F32, from, 3, JM_BF16, to));
	assert_true(jm_weights_convert(JM_BF16, to, 3, JM_F32, back));
	assert_true(back[0] == 1 && back[1] == 1);
	assert_false(jm_weights_convert(JM_F32, from, 4, JM_BF16, to));
	assert_false(jm_weights_convert(JM_F32, from, 4, JM_F32, back));
	assert_false(jm_weights_convert(JM_BF16, to, 4, JM_BF16, back));
}

static void what_is_infinite_in_the_narrower_type_is_found(void **state)
{
	const double large[] = {3.0e38, 3.5e38, 1e300};
	const float single[] = {65504, 65520, 3.4028234e38F};
	uint16_t to[1];
	float back[1];

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(jm_weights_convert(JM_F64, large + i, 1, JM_F32, back), i == 0);
		assert_int_equal(jm_weights_convert(JM_F64, large + i, 1, JM_BF16, to), i == 0);
		assert_int_equal(jm_weights_convert(JM_F32, single + i, 1, JM_F16, to), i == 0);
		assert_int_equal(jm_weights_convert(JM_F32, single + i, 1, JM_BF16, to), i != 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_asynchronous_device_gets_all_pieces),
		cmocka_unit_test(a_device_of_the_host_gets_them_without_pieces),
		cmocka_unit_test(conversion_rounds_to_nearest_and_finds_what_is_not_finite),
		cmocka_unit_test(what_is_infinite_in_the_narrower_type_is_found),
	};

	use_peer_backends();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
