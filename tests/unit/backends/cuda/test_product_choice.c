/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm of cuBLASLt a product of backend cuda takes, and which choices are kept for other
 * processes, without a GPU: the functions of CUDA and cuBLASLt that the product calls are below.
 */
#include "backends/cuda/ops/gemm.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/device/math_library.h"
#include "kit/test.h"
#include "backends/cuda/device/gpu.h"

#define FOUND 3 /* algorithms, of which the second is the fastest */

/* ---- fakes ----------------------------------------------------------------------------------- */

static struct fake {
	bool no_memory, no_timing;
	bool no_workspace, faults;
	int found;					 /* algorithms */
	int staged;					 /* pieces of memory that are held */
	uint64_t ran;					 /* the algorithm that ran last */
	char key[CUDA_PLAN_KEY], value[CUDA_PLAN_VALUE]; /* of the plan cache */
} fake;

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	if (fake.no_memory)
		return cudaErrorMemoryAllocation;
	*memory = malloc(bytes);
	fake.staged++;
	return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
	fake.staged -= memory != NULL;
	free(memory);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	return cudaErrorIllegalAddress;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

int cuda_waited(const struct cuda_dev *dev, cudaError_t rc, struct jm_err *err)
{
	(void)dev;
	return rc ? jm_err_set(err, JM_EGONE, "Work before it failed.") : 0;
}

/* The second algorithm is the one that ends the context. */
void cuda_timed(struct cuda_dev *dev, const char *op, const char *way, const char *key)
{
	(void)op;
	if (fake.faults && fake.ran == 2)
		jm_err_set(&dev->lost, JM_EGONE, "The fault of '%s' (%s).", way, key);
}

int cuda_lost(const struct cuda_dev *dev, struct jm_err *err)
{
	if (dev->lost.code)
		*err = dev->lost;
	return dev->lost.code;
}

static cublasStatus_t create_how(
	cublasLtMatmulDesc_t *ret, cublasComputeType_t compute, cudaDataType_t type)
{
	(void)compute, (void)type;
	*ret = NULL;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_how(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t what,
	const void *value, size_t size)
{
	(void)how, (void)what, (void)value, (void)size;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t create_layout(cublasLtMatrixLayout_t *ret, cudaDataType_t type, uint64_t rows,
	uint64_t columns, int64_t stride)
{
	(void)type, (void)rows, (void)columns, (void)stride;
	*ret = NULL;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t create_preference(cublasLtMatmulPreference_t *ret)
{
	*ret = NULL;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference,
	cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t size)
{
	(void)preference, (void)what, (void)value, (void)size;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy_preference(cublasLtMatmulPreference_t preference)
{
	(void)preference;
	return CUBLAS_STATUS_SUCCESS;
}

/* Algorithms 1, 2 and so on. */
static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t how,
	cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
	cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
	cublasLtMatmulHeuristicResult_t ret[], int *ret_n)
{
	(void)handle, (void)how, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)most;
	for (int i = 0; i < fake.found; i++) {
		memset(&ret[i], 0, sizeof ret[i]);
		ret[i].algo.data[0] = (uint64_t)i + 1;
	}
	*ret_n = fake.found;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check(cublasLtHandle_t handle, cublasLtMatmulDesc_t how,
	cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
	cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
	cublasLtMatmulHeuristicResult_t *ret)
{
	(void)handle, (void)how, (void)a, (void)b, (void)c, (void)d, (void)algo;
	memset(ret, 0, sizeof *ret);
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t run(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha,
	const void *a_data, cublasLtMatrixLayout_t a, const void *b_data, cublasLtMatrixLayout_t b,
	const void *beta, const void *c_data, cublasLtMatrixLayout_t c, void *d_data,
	cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t size,
	cudaStream_t stream)
{
	(void)handle, (void)how, (void)alpha, (void)a_data, (void)a, (void)b_data, (void)b;
	(void)beta, (void)c_data, (void)c, (void)d_data, (void)d, (void)workspace, (void)size;
	(void)stream;
	fake.ran = algo->data[0];
	return CUBLAS_STATUS_SUCCESS;
}

int cuda_lt_open(struct cuda_dev *dev, struct jm_err *err)
{
	(void)err;
	dev->lt.call.cublasLtMatmulDescCreate = create_how;
	dev->lt.call.cublasLtMatmulDescSetAttribute = set_how;
	dev->lt.call.cublasLtMatrixLayoutCreate = create_layout;
	dev->lt.call.cublasLtMatmulPreferenceCreate = create_preference;
	dev->lt.call.cublasLtMatmulPreferenceSetAttribute = set_preference;
	dev->lt.call.cublasLtMatmulPreferenceDestroy = destroy_preference;
	dev->lt.call.cublasLtMatmulAlgoGetHeuristic = heuristic;
	dev->lt.call.cublasLtMatmulAlgoCheck = check;
	dev->lt.call.cublasLtMatmul = run;
	return 0;
}

int cuda_lt_check(
	const struct cuda_dev *dev, cublasStatus_t rc, const char *what, struct jm_err *err)
{
	(void)dev, (void)what, (void)err;
	return (int)rc;
}

void *cuda_workspace(struct cuda_dev *dev, size_t bytes)
{
	static struct cuda_block block;

	(void)bytes;
	return dev->workspace = fake.no_workspace ? NULL : &block;
}

bool cuda_stopwatch_open(struct cuda_stopwatch *w)
{
	(void)w;
	return !fake.no_timing;
}

void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
}

double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream)
{
	(void)w, (void)stream;
	return fake.ran == 2 ? 0.5 : 1;
}

void cuda_stopwatch_close(const struct cuda_stopwatch *w)
{
	(void)w;
}

void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	(void)x, (void)n, (void)seed, (void)stream;
}

void cuda_random_codes(void *x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	(void)x, (void)n, (void)seed, (void)stream;
}

const char *cuda_plan_find(struct cuda_dev *dev, const char *key)
{
	(void)dev;
	return strcmp(key, fake.key) ? NULL : fake.value;
}

void cuda_plan_keep(struct cuda_dev *dev, const char *key, const char *value)
{
	(void)dev;
	snprintf(fake.key, sizeof fake.key, "%s", key);
	snprintf(fake.value, sizeof fake.value, "%s", value);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static size_t offset[3]; /* bytes before the operands */

/* The algorithm that a product runs by. */
static uint64_t algorithm(void)
{
	static _Alignas(256) char memory[3][512];
	struct cuda_dev dev = {0};
	struct cuda_gemm gemm = {.k = 8};
	struct cuda_matrix *m[] = {&gemm.a, &gemm.b, &gemm.d};
	struct cuda_product *p = NULL;
	struct jm_err err = JM_ERR_INIT;

	for (int i = 0; i < 3; i++)
		*m[i] = (struct cuda_matrix){memory[i] + offset[i], JM_F32, 8, 8, 8, false, 0};
	assert_int_equal(cuda_product_new(&dev, &gemm, &p, &err), 0);
	assert_int_equal(cuda_product_run(&dev, p, &err), 0);
	cuda_product_free(&dev, p);
	assert_int_equal(fake.staged, 0);
	return fake.ran;
}

static void the_fastest_is_kept(void **unused)
{
	(void)unused;
	fake = (struct fake){.found = FOUND};
	assert_int_equal(algorithm(), 2);
	assert_true(fake.value[0]);
	fake.no_memory = true;
	assert_int_equal(algorithm(), 2); /* as known */
}

/* Memory that is missing now may be there in the next run, which then times. */
static void what_could_not_be_timed_is_not_kept(void **unused)
{
	(void)unused;
	for (int i = 0; i < 2; i++) {
		fake = (struct fake){.found = FOUND, .no_memory = !i, .no_timing = i};
		assert_int_equal(algorithm(), 1);
		assert_int_equal(fake.value[0], 0);
		fake.no_memory = fake.no_timing = false;
		assert_int_equal(algorithm(), 2);
		assert_true(fake.value[0]);
	}
}

static void fails(int code, const char *says)
{
	struct cuda_dev dev = {0};
	struct cuda_gemm gemm = {.k = 8,
		.a = {NULL, JM_F32, 8, 8, 8, false, 0},
		.b = {NULL, JM_F32, 8, 8, 8, false, 0},
		.d = {NULL, JM_F32, 8, 8, 8, false, 0}};
	struct cuda_product *p = NULL;
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(cuda_product_new(&dev, &gemm, &p, &err), code);
	assert_sentence(&err, code);
	assert_non_null(strstr(err.text, says));
	assert_null(p);
	assert_int_equal(fake.staged, 0);
	assert_string_equal(fake.value, "");
}

/* What is measured after it says nothing, so nothing is kept. */
static void an_algorithm_that_ends_the_context_is_the_error(void **unused)
{
	(void)unused;
	fake = (struct fake){.found = FOUND, .faults = true};
	fails(JM_EGONE, "fault of 'cuBLASLt's no. 2' (product/8/");
}

/* Each call fails after a fault: memory is not what is missing. */
static void work_that_failed_before_is_no_lack_of_memory(void **unused)
{
	(void)unused;
	fake = (struct fake){.found = FOUND, .no_workspace = true};
	fails(JM_EGONE, "Work before it failed");
}

/* As caches of earlier builds have it. */
static void a_choice_without_a_time_is_made_again(void **unused)
{
	(void)unused;
	fake = (struct fake){.found = FOUND};
	algorithm();
	snprintf(fake.value, sizeof fake.value, "nan,%0128d", 3);
	assert_int_equal(algorithm(), 2);
	assert_memory_equal(fake.value, "0.5,", 4);
}

/* Its time is compared with those of other ways, and what is kept is not looked for again. */
static void an_only_algorithm_is_timed_and_kept(void **unused)
{
	(void)unused;
	fake = (struct fake){.found = 1, .no_memory = true};
	assert_int_equal(algorithm(), 1);
	assert_string_equal(fake.value, "");
	fake = (struct fake){.found = 1};
	assert_int_equal(algorithm(), 1);
	assert_string_not_equal(fake.value, "");
}

/* The key of the choice for a product with an operand so many bytes from a multiple of 256. */
static void key_at(int operand, size_t bytes, char ret[CUDA_PLAN_KEY])
{
	offset[operand] = bytes;
	algorithm();
	offset[operand] = 0;
	snprintf(ret, CUDA_PLAN_KEY, "%s", fake.key);
}

/* An algorithm may need the alignment that the operands had when it was chosen. */
static void each_alignment_of_operands_has_a_key(void **unused)
{
	char whole[CUDA_PLAN_KEY], some[CUDA_PLAN_KEY], less[CUDA_PLAN_KEY];

	(void)unused;
	fake = (struct fake){.found = FOUND};
	key_at(0, 0, whole);
	for (int i = 0; i < 3; i++) {
		key_at(i, 64, some);
		assert_string_equal(some, whole);
		key_at(i, 32, some);
		assert_string_not_equal(some, whole);
		key_at(i, 16, less);
		assert_string_not_equal(less, some);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_fastest_is_kept),
		cmocka_unit_test(what_could_not_be_timed_is_not_kept),
		cmocka_unit_test(an_algorithm_that_ends_the_context_is_the_error),
		cmocka_unit_test(work_that_failed_before_is_no_lack_of_memory),
		cmocka_unit_test(a_choice_without_a_time_is_made_again),
		cmocka_unit_test(each_alignment_of_operands_has_a_key),
		cmocka_unit_test(an_only_algorithm_is_timed_and_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
