/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to compute attention and its gradient in backend cuda, without a GPU: between which ones
 * a shape may choose, what each of them is given, and that memory is planned for the chosen one.
 * The plans of cuDNN and the kernels are below: they keep their arguments.
 */
#include "backends/cuda/ops/attention_tiles.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/choose/timed_choice.h"
#include "engine/graph/tensor.h"
#include "kit/test.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/ops/op_rows.h"
#include "backends/cuda/ops/attention_plans.h"
#include "backends/cuda/ops/ops_rope.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/device/math_library.h"

#define TILES_SCRATCH ((size_t)1 << 20)
#define ONCE_SCRATCH  ((size_t)3 << 20)
#define WORKSPACE     512
#define SEQ	      128
#define BATCH	      2
#define HEADS	      4
#define TURNED	      (&cuda_ops_dnn_attention[2]) /* the row of a gradient with rope-grad */

/* ---- fakes ----------------------------------------------------------------------------------- */

static struct fake {
	bool no_tiles; /* the device has no own kernels */
	bool once;     /* and one that computes scores once */
	bool forward;  /* and one for attention itself */
	int way;       /* that is chosen */
	int known;     /* by the plan cache, from 1; 0 = none */
	const char *names[CUDA_WAYS];
	int n_ways;
	char key[CUDA_PLAN_KEY];
	const void *workspace; /* of the plan that was bound */
	int bound, ran;	       /* plans of cuDNN */
	struct cuda_tiles_data data;
	struct cuda_attention_tiles tiles;
	struct cuda_attention_forward attention;
	int started;	   /* own kernels */
	const float *rows; /* from where the scratch of that kernel is described */
	struct cuda_rope turn;
	int turned;
} fake;

static struct dnn_graph graph;
static const float angles[1];

int cuda_dnn_open(struct cuda_dev *dev, struct jm_err *err)
{
	(void)dev, (void)err;
	return 0;
}

struct dnn_graph *dnn_attention_forward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret)
{
	(void)dnn, (void)s, (void)ret;
	return &graph;
}

struct dnn_graph *dnn_attention_backward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret)
{
	(void)dnn, (void)s, (void)ret;
	return &graph;
}

void dnn_graph_free(struct dnn_graph *g)
{
	(void)g;
}

int dnn_plans(struct dnn_graph *g, const struct dnn_want *want, struct dnn_plan *ret, int max,
	struct jm_err *err)
{
	(void)g, (void)want, (void)max, (void)err;
	ret[0] = (struct dnn_plan){.workspace = WORKSPACE, .name = "plan"};
	return 1;
}

void dnn_plan_drop(const struct cuda_dnn *d, struct dnn_plan *plan)
{
	(void)d, (void)plan;
}

int dnn_bind(const struct cuda_dnn *d, const struct dnn_plan *plan, int n, const int64_t *id,
	void *const *data, void *workspace, struct dnn_run *ret, struct jm_err *err)
{
	(void)d, (void)plan, (void)n, (void)id, (void)data, (void)ret, (void)err;
	fake.workspace = workspace;
	fake.bound++;
	return 0;
}

int dnn_run(const struct cuda_dnn *d, const struct dnn_run *run, struct jm_err *err)
{
	(void)d, (void)run, (void)err;
	fake.ran++;
	return 0;
}

void dnn_unbind(const struct cuda_dnn *d, struct dnn_run *run)
{
	(void)d, (void)run;
	fake.bound--;
}

bool cuda_tiles_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s)
{
	(void)dev, (void)s;
	return !fake.no_tiles;
}

size_t cuda_tiles_scratch(const struct dnn_attention_shape *s)
{
	(void)s;
	return TILES_SCRATCH;
}

bool cuda_once_take(const struct cuda_dev *device, const struct dnn_attention_shape *s)
{
	(void)device, (void)s;
	return fake.once;
}

size_t cuda_once_scratch(const struct cuda_dev *device, const struct dnn_attention_shape *s)
{
	(void)device, (void)s;
	return ONCE_SCRATCH;
}

void cuda_once_describe(const struct cuda_dev *device, const struct dnn_attention_shape *s,
	struct cuda_attention_tiles *ret)
{
	(void)device, (void)s;
	fake.rows = ret->rows;
	ret->once.sums = ret->rows;
}

int cuda_tiles_describe(const struct dnn_attention_shape *s, const struct cuda_tiles_data *data,
	struct cuda_attention_tiles *ret, struct jm_err *err)
{
	(void)err;
	fake.data = *data;
	ret->depth = (int)s->depth;
	return 0;
}

void cuda_attention_tiles(const struct cuda_attention_tiles *p, cudaStream_t stream)
{
	(void)stream;
	fake.tiles = *p;
	fake.started++;
}

bool cuda_forward_take(const struct cuda_dev *device, const struct dnn_attention_shape *s)
{
	(void)device, (void)s;
	return fake.forward;
}

int cuda_forward_describe(const struct cuda_dev *device, const struct dnn_attention_shape *s,
	void *const part[3], struct cuda_attention_forward *ret, struct jm_err *err)
{
	(void)device, (void)err;
	memcpy(fake.data.part, part, sizeof fake.data.part);
	ret->depth = (int)s->depth;
	return 0;
}

void cuda_attention_forward(const struct cuda_attention_forward *p, cudaStream_t stream)
{
	(void)stream;
	fake.attention = *p;
	fake.started++;
}

int cuda_rope_takes(const struct jm_node *n, struct jm_err *err)
{
	(void)n, (void)err;
	return 0;
}

int cuda_rope_of(
	struct cuda_dev *device, const struct jm_node *n, struct cuda_rope *ret, struct jm_err *err)
{
	(void)device, (void)err;
	*ret = (struct cuda_rope){
		.x = cuda_vec(n->in[0]), .y = cuda_vec(n->out[0]), .angles = angles};
	return 0;
}

void cuda_rope(const struct cuda_rope *p, cudaStream_t stream)
{
	(void)stream;
	fake.turn = *p;
	fake.turned++;
}

const char *cuda_plan_find(struct cuda_dev *dev, const char *key)
{
	(void)dev, (void)key;
	return NULL;
}

void cuda_plan_keep(struct cuda_dev *dev, const char *key, const char *value)
{
	(void)dev, (void)key, (void)value;
}

int cuda_way_known(struct cuda_dev *dev, const char *key, const struct cuda_way *way, int n)
{
	(void)dev, (void)key, (void)way, (void)n;
	return fake.known - 1;
}

int cuda_way_choose(struct cuda_dev *dev, const struct cuda_exec *exec, const char *key,
	const struct cuda_way *way, int n)
{
	(void)dev, (void)exec;
	snprintf(fake.key, sizeof fake.key, "%s", key);
	fake.n_ways = n;
	for (int i = 0; i < n; i++)
		fake.names[i] = way[i].name;
	return fake.way;
}

/* One plan needs no timing. */
bool cuda_stopwatch_open(struct cuda_stopwatch *w)
{
	(void)w;
	return false;
}

void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
}

double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
	return NAN;
}

void cuda_stopwatch_close(const struct cuda_stopwatch *w)
{
	(void)w;
}

void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	(void)x, (void)n, (void)seed, (void)stream;
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
void cuda_timed(struct cuda_dev *dev, const char *op, const char *way, const char *key)
{
	(void)dev, (void)op, (void)way, (void)key;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	(void)memory, (void)value, (void)bytes, (void)stream;
	return cudaSuccess;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* ---- a node ---------------------------------------------------------------------------------- */

static char memory[8], scratch[8192];
static struct jm_tensor dy, qkv, y, lse, dqkv, turned;
static struct jm_node node, turn; /* turn: reads the result of a gradient */
static struct cuda_dev dev;

static struct jm_tensor tensor(enum jm_dtype type, int64_t width, int at)
{
	return (struct jm_tensor){
		.type = type, .rank = 3, .dim = {BATCH, SEQ, width}, .data = &memory[at]};
}

static void set_node(enum jm_op op, int64_t depth)
{
	bool grad = op == JM_OP_ATTENTION_GRAD;

	memset(&fake, 0, sizeof fake);
	dev = (struct cuda_dev){.prop.major = 9};
	dy = tensor(JM_BF16, HEADS * depth, 0);
	qkv = tensor(JM_BF16, 3 * HEADS * depth, 1);
	y = tensor(JM_BF16, HEADS * depth, 2);
	lse = tensor(JM_F32, SEQ, 3);
	dqkv = tensor(JM_BF16, 3 * HEADS * depth, 4);
	node = (struct jm_node){.op = op, .in = {&qkv, &qkv, &qkv}, .out = {&y, &lse}};
	if (grad)
		node = (struct jm_node){.op = op,
			.in = {&dy, &qkv, &qkv, &qkv, &y, &lse},
			.out = {&dqkv, &dqkv, &dqkv}};
	node.n_in = grad ? 6 : 3;
	node.n_out = grad ? 3 : 2;
	jm_attention_pack(&node, HEADS, HEADS);
	node.attr.attention.scale = 0.5;
}

static const struct cuda_op *row(void)
{
	return &cuda_ops_dnn_attention[node.op == JM_OP_ATTENTION_GRAD];
}

static size_t scratch_bytes(void)
{
	const struct jm_group group = {.n_nodes = 1, .node = {&node}};

	return row()->scratch(&dev, &group);
}

/* Builds, runs and drops the nodes in the way that the fake chooses. */
static void runs_by(const struct cuda_op *op)
{
	struct cuda_exec exec = {
		.n_nodes = op->n_nodes, .node = {node, turn}, .scratch = scratch, .op = op};
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(op->build(&dev, &exec, &err), 0);
	assert_int_equal(op->run(&dev, &exec, &err), 0);
	op->drop(&dev, &exec);
	assert_int_equal(fake.bound, 0);
	cuda_attention_plans_free(&dev);
}

static void runs(void)
{
	runs_by(row());
}

static void set_turned(void)
{
	set_node(JM_OP_ATTENTION_GRAD, 64);
	dqkv.is_virtual = true;
	dqkv.data = NULL;
	turned = tensor(JM_BF16, 3 * HEADS * 64, 5);
	turn = (struct jm_node){.op = JM_OP_ROPE_GRAD, .in = {&dqkv}, .out = {&turned}};
	turn.attr.rope.heads = turn.attr.rope.kv_heads = HEADS;
}

static int takes_turned(void)
{
	const struct jm_group group = {.n_nodes = 2, .node = {&node, &turn}};
	int code = TURNED->takes(&dev, &group, NULL);

	cuda_attention_plans_free(&dev);
	return code;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The first way is taken where none can be timed. */
static void the_first_way_needs_the_least_scratch(void **unused)
{
	(void)unused;
	for (int depth = 64; depth <= 256; depth *= 2) {
		set_node(JM_OP_ATTENTION_GRAD, depth);
		runs();
		assert_string_equal(fake.names[0], "own");
		assert_int_equal(fake.n_ways, 2);
		assert_true(fake.started == 1 && !fake.ran);
	}
}

static void own_kernels_get_the_operands(void **unused)
{
	(void)unused;
	set_node(JM_OP_ATTENTION_GRAD, 64);
	runs();
	assert_ptr_equal(fake.data.dy, dy.data);
	assert_ptr_equal(fake.tiles.y, y.data);
	assert_ptr_equal(fake.tiles.lse, lse.data);
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(fake.data.part[i], (uint16_t *)qkv.data + i * HEADS * 64);
		assert_ptr_equal(fake.data.grad[i], (uint16_t *)dqkv.data + i * HEADS * 64);
	}
	assert_ptr_equal(fake.tiles.rows, scratch);
	assert_true(fake.tiles.scale == 0.5F);
}

/* As a picture attends to a text. */
static void queries_may_be_apart_from_keys(void **unused)
{
	struct jm_tensor grad[3], q, k;
	const int64_t width = HEADS * 64, n = 77;

	(void)unused;
	set_node(JM_OP_ATTENTION_GRAD, 64);
	q = tensor(JM_BF16, width, 1);
	k = tensor(JM_BF16, width, 6);
	k.dim[1] = n;
	for (int i = 0; i < 3; i++) {
		grad[i] = i ? k : q;
		grad[i].data = &memory[3 + i];
		node.in[1 + i] = i ? &k : &q;
		node.out[i] = &grad[i];
	}
	node.attr.attention.keys = n;
	node.attr.attention.q = (struct jm_view){0, SEQ * width, width, 64};
	node.attr.attention.k = node.attr.attention.v = (struct jm_view){0, n * width, width, 64};
	runs();
	assert_string_equal(
		fake.key, "attention/0/2x128/4:4x64/apart-77-256-256-256/grad/repeatable/ways");
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(fake.data.part[i], i ? k.data : q.data);
		assert_ptr_equal(fake.data.grad[i], grad[i].data);
	}
}

static void the_own_kernel_of_attention_gets_the_operands(void **unused)
{
	(void)unused;
	for (int way = 0; way < 2; way++) {
		set_node(JM_OP_ATTENTION, 64);
		fake.forward = true;
		fake.way = way;
		assert_int_equal(scratch_bytes(), way ? WORKSPACE : 0);
		runs();
		assert_string_equal(fake.key, "attention/0/2x128/4:4x64/repeatable/ways");
		assert_int_equal(fake.n_ways, 2);
		assert_string_equal(fake.names[way], way ? "cudnn" : "own");
		assert_true(fake.started == !way && fake.ran == way);
	}
	fake.way = 0;
	runs();
	assert_ptr_equal(fake.attention.y, y.data);
	assert_ptr_equal(fake.attention.lse, lse.data);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(fake.data.part[i], (uint16_t *)qkv.data + i * HEADS * 64);
}

static void only_shapes_of_own_kernels_have_two_ways(void **unused)
{
	(void)unused;
	set_node(JM_OP_ATTENTION_GRAD, 64);
	fake.no_tiles = true;
	runs();
	assert_true(fake.ran == 1 && !fake.n_ways);
	for (int i = 0; i < 2; i++) { /* with a scale of 0 the largest score would be another one */
		set_node(JM_OP_ATTENTION, 64);
		fake.forward = i;
		node.attr.attention.scale *= !i;
		runs();
		assert_true(fake.ran == 1 && !fake.n_ways);
	}
}

static void shapes_of_one_kernel_have_three_ways(void **unused)
{
	(void)unused;
	for (int way = 0; way < 3; way += 2) {
		set_node(JM_OP_ATTENTION_GRAD, 64);
		fake.once = true;
		fake.way = way;
		assert_int_equal(scratch_bytes(), way ? ONCE_SCRATCH : TILES_SCRATCH);
		runs();
		assert_int_equal(fake.n_ways, 3);
		assert_string_equal(fake.names[2], "once");
		assert_true(fake.started == 1 && !fake.ran);
		assert_ptr_equal(fake.tiles.rows, scratch);
		assert_ptr_equal(fake.rows, way ? scratch : NULL);
		assert_ptr_equal(fake.tiles.once.sums, way ? scratch : NULL);
	}
	set_node(JM_OP_ATTENTION_GRAD, 64);
	fake.once = true;
	dev.rough = true;
	assert_int_equal(scratch_bytes(), ONCE_SCRATCH); /* of all, the largest */
	assert_int_equal(fake.n_ways, 0);
	cuda_attention_plans_free(&dev);
}

static void each_shape_has_a_key(void **unused)
{
	(void)unused;
	set_node(JM_OP_ATTENTION_GRAD, 64);
	runs();
	assert_string_equal(fake.key, "attention/0/2x128/4:4x64/grad/repeatable/ways");
	set_node(JM_OP_ATTENTION_GRAD, 128);
	dev.fast = true;
	node.attr.attention.causal = true;
	runs();
	assert_string_equal(fake.key, "attention/0/2x128/4:4x128/causal/grad/ways");
}

static void scratch_is_that_of_the_chosen_way(void **unused)
{
	const size_t delta = BATCH * HEADS * SEQ * sizeof(float);

	(void)unused;
	set_node(JM_OP_ATTENTION_GRAD, 64);
	assert_int_equal(scratch_bytes(), TILES_SCRATCH);
	fake.way = 1;
	assert_int_equal(scratch_bytes(), TILES_SCRATCH); /* a shape keeps its way */
	runs();
	assert_true(fake.started == 1);
	assert_int_equal(scratch_bytes(), delta + WORKSPACE);
	runs();
	assert_true(fake.ran == 1);
	fake.no_tiles = true;
	assert_int_equal(scratch_bytes(), delta + WORKSPACE);
	runs();
	assert_ptr_equal(fake.workspace, scratch + delta);
	set_node(JM_OP_ATTENTION, 64);
	assert_int_equal(scratch_bytes(), WORKSPACE);
	cuda_attention_plans_free(&dev);
}

static void own_kernels_turn_their_results(void **unused)
{
	(void)unused;
	set_turned();
	assert_int_equal(takes_turned(), 0);
	runs_by(TURNED);
	assert_true(fake.started == 1 && !fake.ran && !fake.turned);
	assert_ptr_equal(fake.tiles.angles, angles);
	assert_ptr_equal(fake.data.grad[0], turned.data);
}

static void results_of_cudnn_are_turned_in_place(void **unused)
{
	(void)unused;
	set_turned();
	fake.way = 1;
	runs_by(TURNED);
	assert_true(fake.ran == 1 && !fake.started && fake.turned == 1);
	assert_ptr_equal(fake.turn.x.data, turned.data);
	assert_ptr_equal(fake.turn.y.data, turned.data);
	set_node(JM_OP_ATTENTION_GRAD, 64);
	fake.way = 1;
	runs();
	assert_int_equal(fake.turned, 0);
}

static void only_a_gradient_without_other_readers_is_turned(void **unused)
{
	(void)unused;
	set_turned();
	dqkv.is_virtual = false;
	assert_int_not_equal(takes_turned(), 0);
	set_turned();
	turn.attr.rope.kv_heads = 1;
	assert_int_not_equal(takes_turned(), 0);
	set_turned();
	turn.accumulate = 1;
	assert_int_not_equal(takes_turned(), 0);
}

/* Nothing is timed for a plan that is only an estimate. */
static void a_rough_plan_has_the_most_scratch(void **unused)
{
	(void)unused;
	for (int way = 0; way < 2; way++) {
		size_t exact;

		set_node(JM_OP_ATTENTION_GRAD, 64);
		fake.way = way;
		dev.rough = true;
		assert_int_equal(scratch_bytes(), TILES_SCRATCH); /* of both, the larger */
		assert_int_equal(fake.n_ways, 0);
		dev.rough = false;
		exact = scratch_bytes();
		assert_int_equal(fake.n_ways, 2);
		dev.rough = true;
		assert_int_equal(scratch_bytes(), exact); /* it is known now */
		cuda_attention_plans_free(&dev);
		fake.known = way + 1;
		assert_int_equal(scratch_bytes(), exact);
		cuda_attention_plans_free(&dev);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_way_needs_the_least_scratch),
		cmocka_unit_test(own_kernels_get_the_operands),
		cmocka_unit_test(queries_may_be_apart_from_keys),
		cmocka_unit_test(the_own_kernel_of_attention_gets_the_operands),
		cmocka_unit_test(only_shapes_of_own_kernels_have_two_ways),
		cmocka_unit_test(shapes_of_one_kernel_have_three_ways),
		cmocka_unit_test(each_shape_has_a_key),
		cmocka_unit_test(scratch_is_that_of_the_chosen_way),
		cmocka_unit_test(a_rough_plan_has_the_most_scratch),
		cmocka_unit_test(own_kernels_turn_their_results),
		cmocka_unit_test(results_of_cudnn_are_turned_in_place),
		cmocka_unit_test(only_a_gradient_without_other_readers_is_turned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
