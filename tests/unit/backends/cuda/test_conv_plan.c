/* SPDX-License-Identifier: Apache-2.0 */
/* Which of cuDNN's plans a convolution of backend cuda takes, without a GPU: the functions of CUDA
 * and cuDNN that are called are below. */
#include "backends/cuda/choose/conv_plan.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/math_library.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "kit/test.h"

/* ---- fakes ----------------------------------------------------------------------------------- */

static struct fake {
	bool ready;	   /* cuDNN prefers an engine that is compiled */
	double seconds[2]; /* of the plans that are found */
	int asked;	   /* how often plans were found */
	const struct dnn_plan *bound;
	const char *faults; /* the plan that ends the context */
	double added;	    /* seconds of a plan that also adds an image */
	size_t allocated;
	char kept[CUDA_PLAN_VALUE];
	const char *known; /* the value in the plan cache */
} fake;

static const char *const names[] = {"first", "fallback", "added"};
static struct dnn_graph graph;

int cuda_dnn_open(struct cuda_dev *dev, struct jm_err *err)
{
	(void)dev, (void)err;
	return 0;
}

struct dnn_graph *dnn_conv_graph(const struct cuda_dnn *dnn, enum dnn_pattern pattern,
	const struct dnn_conv_shape *shape, struct dnn_conv_ids *ret)
{
	(void)dnn, (void)shape;
	*ret = (struct dnn_conv_ids){.x = 1, .w = 2, .y = 3};
	graph.n_tensors = pattern;
	return &graph;
}

void dnn_graph_free(struct dnn_graph *g)
{
	(void)g;
}

/* The first engine is compiled at run time, unless `ready`. */
int dnn_plans(struct dnn_graph *g, const struct dnn_want *want, struct dnn_plan *ret, int max,
	struct jm_err *err)
{
	int n = 0;

	(void)err;
	if (fake.ready || !want->ready)
		snprintf(ret[n++].name, DNN_NAME, "%s",
			g->n_tensors == DNN_PATTERN_CONV_ADD ? names[2] : names[0]);
	if (n < max && !want->preferred && (want->all || !n))
		snprintf(ret[n++].name, DNN_NAME, "%s", names[1]);
	fake.asked += n > 0;
	return n;
}

void dnn_plan_drop(const struct cuda_dnn *d, struct dnn_plan *plan)
{
	(void)d, (void)plan;
}

int dnn_bind(const struct cuda_dnn *d, const struct dnn_plan *plan, int n, const int64_t *id,
	void *const *data, void *workspace, struct dnn_run *ret, struct jm_err *err)
{
	(void)d, (void)n, (void)id, (void)data, (void)workspace, (void)ret, (void)err;
	fake.bound = plan;
	return 0;
}

int dnn_run(const struct cuda_dnn *d, const struct dnn_run *run, struct jm_err *err)
{
	(void)d, (void)run, (void)err;
	return 0;
}

void dnn_unbind(const struct cuda_dnn *d, struct dnn_run *run)
{
	(void)d, (void)run;
}

const char *cuda_plan_find(struct cuda_dev *dev, const char *key)
{
	(void)dev;
	return strncmp(key, "added/", 6) ? NULL : fake.known;
}

void cuda_plan_keep(struct cuda_dev *dev, const char *key, const char *value)
{
	(void)dev, (void)key;
	snprintf(fake.kept, sizeof fake.kept, "%s", value);
}

bool cuda_stopwatch_open(struct cuda_stopwatch *w)
{
	(void)w;
	return true;
}

void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
}

double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
	if (!strcmp(fake.bound->name, names[2]))
		return fake.added;
	return fake.seconds[strcmp(fake.bound->name, names[0]) != 0];
}

void cuda_stopwatch_close(const struct cuda_stopwatch *w)
{
	(void)w;
}

void cuda_timed(struct cuda_dev *dev, const char *op, const char *way, const char *key)
{
	(void)op;
	if (fake.faults && !strcmp(way, fake.faults))
		jm_err_set(&dev->lost, JM_EGONE, "The fault of '%s' (%s).", way, key);
}

int cuda_lost(const struct cuda_dev *dev, struct jm_err *err)
{
	if (dev->lost.code)
		*err = dev->lost;
	return dev->lost.code;
}

double cuda_median(double *seconds, int n)
{
	return seconds[n / 2];
}

void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	(void)x, (void)n, (void)seed, (void)stream;
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	*memory = malloc(bytes);
	fake.allocated += bytes;
	return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
	free(memory);
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	(void)memory, (void)value, (void)bytes, (void)stream;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* ---- tests ----------------------------------------------------------------------------------- */

/* The plan that is chosen and kept; "" = the only one. */
static void chooses(double first, double fallback, const char *want)
{
	const struct cuda_conv_key key = {
		.shape = {.x = {1, 1, 1, 1}, .w = {1, 1, 1, 1}, .y = {1, 1, 1, 1}}};
	struct cuda_dev dev = {0};
	struct jm_err err = JM_ERR_INIT;
	struct cuda_conv_plan *p;

	fake.seconds[0] = first;
	fake.seconds[1] = fallback;
	fake.asked = 0;
	fake.kept[0] = 0;
	p = cuda_conv_plan(&dev, &key, &err);
	assert_non_null(p);
	assert_int_equal(cuda_conv_tune(&dev, p, &err), 0);
	assert_string_equal(fake.kept, want);
	cuda_conv_drop(&dev);
}

static void a_fallback_is_timed_beside_engines_that_cudnn_compiles(void **unused)
{
	(void)unused;
	fake = (struct fake){0};
	chooses(1, 2, "first");
	assert_int_equal(fake.asked, 1);
	chooses(2, 1, "fallback");
}

static void a_fallback_is_not_asked_for_where_an_engine_is_ready(void **unused)
{
	(void)unused;
	fake = (struct fake){.ready = true};
	chooses(2, 1, "");
	assert_int_equal(fake.asked, 1);
}

/* The plan behind it is the faster one, but was not timed. */
static void a_plan_that_ends_the_context_is_the_error(void **unused)
{
	const struct cuda_conv_key key = {
		.shape = {.x = {1, 1, 1, 1}, .w = {1, 1, 1, 1}, .y = {1, 1, 1, 1}}};
	struct cuda_dev dev = {0};
	struct jm_err err = JM_ERR_INIT;
	struct cuda_conv_plan *p;

	(void)unused;
	fake = (struct fake){.faults = "fallback", .seconds = {1, NAN}};
	p = cuda_conv_plan(&dev, &key, &err);
	assert_non_null(p);
	assert_int_equal(cuda_conv_tune(&dev, p, &err), JM_EGONE);
	assert_sentence(&err, JM_EGONE);
	assert_non_null(strstr(err.text, "fault of 'fallback' (conv/"));
	assert_string_equal(fake.kept, "");
	cuda_conv_drop(&dev);
}

/* Is a convolution that adds an image faster than one in 3 s without it and `more` seconds? */
static bool joins(double added, double more, bool rough)
{
	struct cuda_conv_key key = {.pattern = DNN_PATTERN_CONV_ADD,
		.shape = {.x = {1, 1, 1, 1},
			.w = {1, 1, 1, 1},
			.y = {2, 1, 30, 50},
			.type = CUDNN_DATA_HALF}};
	struct cuda_conv_key other = key;
	struct cuda_dev dev = {.rough = rough};
	bool fine;

	other.pattern = DNN_PATTERN_CONV_BIAS;
	fake.ready = true;
	fake.seconds[0] = 3;
	fake.added = added;
	fake.kept[0] = 0;
	fine = cuda_conv_is_faster(&dev, "added", &key, &other, more);
	cuda_conv_drop(&dev);
	return fine;
}

static void what_a_pass_takes_counts_beside_the_convolution_that_replaces_it(void **unused)
{
	(void)unused;
	fake = (struct fake){0};
	assert_true(joins(3.5, 1, false));
	assert_string_equal(fake.kept, "1,3.5,4");
	assert_false(joins(3.5, 0.25, false));
	assert_string_equal(fake.kept, "0,3.5,3.25");
	/* two images of 2 x 30 x 50 in 16 bits for the first, one for the second */
	fake.allocated = 0;
	joins(3.5, 1, false);
	assert_in_range(fake.allocated, 3 * 6000, 4 * 6000 - 1);
}

static void nothing_is_timed_for_estimates_or_what_is_known(void **unused)
{
	(void)unused;
	fake = (struct fake){0};
	assert_true(joins(9, 0, true));
	fake.known = "0,2,1";
	assert_false(joins(1, 1, false));
	fake.known = "1,1,2";
	assert_true(joins(9, 0, false));
	assert_int_equal(fake.allocated, 0);
	fake.known = NULL;
	assert_true(joins(NAN, 0, false)); /* cannot be timed */
	assert_string_equal(fake.kept, "");
}

/* A layer with a bias is not timed in place of one without, and neither are their gradients. */
static void ways_with_a_bias_have_a_key_of_their_own(void **unused)
{
	const struct cuda_conv_key key = {.shape = {.x = {8, 64, 16, 16}, .w = {64, 64, 3, 3}}};
	const enum jm_op ops[] = {JM_OP_CONV, JM_OP_CONV_WGRAD};
	struct cuda_dev dev = {.dnn = {.version = 91900}};

	(void)unused;
	for (int i = 0; i < 2; i++) {
		struct jm_node n = {.op = ops[i]};
		char text[2][CUDA_PLAN_KEY], expected[CUDA_PLAN_KEY];
		struct jm_tensor bias;

		cuda_conv_way_text(&dev, &n, &key, text[0]);
		(i ? n.out : n.in)[i ? 1 : 2] = &bias;
		cuda_conv_way_text(&dev, &n, &key, text[1]);
		cuda_conv_key_text(&dev, "way", &key, expected);
		assert_string_equal(text[0], expected);
		cuda_conv_key_text(&dev, "way-bias", &key, expected);
		assert_string_equal(text[1], expected);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fallback_is_timed_beside_engines_that_cudnn_compiles),
		cmocka_unit_test(a_fallback_is_not_asked_for_where_an_engine_is_ready),
		cmocka_unit_test(a_plan_that_ends_the_context_is_the_error),
		cmocka_unit_test(what_a_pass_takes_counts_beside_the_convolution_that_replaces_it),
		cmocka_unit_test(ways_with_a_bias_have_a_key_of_their_own),
		cmocka_unit_test(nothing_is_timed_for_estimates_or_what_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
