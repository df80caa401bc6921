/* SPDX-License-Identifier: Apache-2.0 */
/* Products by cuBLASLt; the algorithm is chosen by timing on random operands, once per shape. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gemm.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/math_library.h"

#define WORKSPACE  ((size_t)32 << 20) /* as NVIDIA advises for Hopper */
#define CANDIDATES 24
#define REPEATS	   4

struct cuda_product {
	struct cuda_gemm gemm;
	cublasLtMatmulDesc_t how;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
	double seconds;
};

static cudaDataType_t type_of(enum jm_dtype type)
{
	switch (type) {
	case JM_BF16:
		return CUDA_R_16BF;
	case JM_F16:
		return CUDA_R_16F;
	case JM_F8E4M3:
		return CUDA_R_8F_E4M3;
	case JM_F8E5M2:
		return CUDA_R_8F_E5M2;
	default:
		return CUDA_R_32F;
	}
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static int set(struct cuda_dev *dev, struct cuda_product *p, cublasLtMatmulDescAttributes_t what,
	const void *value, size_t size, struct jm_err *err)
{
	return cuda_lt_check(dev,
		dev->lt.call.cublasLtMatmulDescSetAttribute(p->how, what, value, size),
		"Describing a product", err);
}

static cublasLtEpilogue_t epilogue_of(const struct cuda_gemm *g)
{
	if (g->then == GEMM_GELU_GRAD)
		return CUBLASLT_EPILOGUE_DGELU;
	if (g->then == GEMM_GELU && g->aux)
		return g->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
	if (g->then == GEMM_GELU)
		return g->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
	if (g->sums)
		return CUBLASLT_EPILOGUE_BGRADB;
	return g->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static int describe_epilogue(struct cuda_dev *dev, struct cuda_product *p, struct jm_err *err)
{
	const struct cuda_gemm *g = &p->gemm;
	cublasLtEpilogue_t epilogue = epilogue_of(g);
	cudaDataType_t bias = g->bias_as_d ? type_of(g->d.type) : CUDA_R_32F;
	const void *vector = g->bias ? g->bias : g->sums;
	int code = set(dev, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, err);

	if (!code && vector)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector, err);
	if (!code && vector)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias, err);
	if (!code && g->aux)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &g->aux,
			sizeof g->aux, err);
	if (!code && g->aux)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &g->d.stride,
			sizeof g->d.stride, err);
	return code;
}

/* As in headers from CUDA 12.9 on. */
#define A_SCALE_MODE ((cublasLtMatmulDescAttributes_t)31)
#define B_SCALE_MODE ((cublasLtMatmulDescAttributes_t)32)
#define OUTER_VECTOR 3

static int describe_row_scales(struct cuda_dev *dev, struct cuda_product *p, struct jm_err *err)
{
	const int32_t mode = OUTER_VECTOR;
	struct jm_err why = JM_ERR_INIT;

	if (!set(dev, p, A_SCALE_MODE, &mode, sizeof mode, &why) &&
		!set(dev, p, B_SCALE_MODE, &mode, sizeof mode, &why))
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"cuBLASLt has no scales for each row, which products of --precision fp8 need in "
		"serving; use that of CUDA 12.9 or newer, or --precision bf16. (%s)",
		why.text);
}

/* The attributes that only products in 8 bits have. */
static int describe_f8(struct cuda_dev *dev, struct cuda_product *p, struct jm_err *err)
{
	const struct cuda_gemm *g = &p->gemm;
	int8_t fast = g->fast_sums;
	int code = 0;

	if (g->a_scale)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->a_scale,
			sizeof g->a_scale, err);
	if (!code && g->b_scale)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->b_scale,
			sizeof g->b_scale, err);
	if (!code && g->scales_rows)
		code = describe_row_scales(dev, p, err);
	if (!code && fast)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast, err);
	return code;
}

static int describe_matrix(struct cuda_dev *dev, const struct cuda_matrix *m, int32_t batches,
	cublasLtMatrixLayout_t *ret, struct jm_err *err)
{
	cublasStatus_t rc = dev->lt.call.cublasLtMatrixLayoutCreate(
		ret, type_of(m->type), (uint64_t)m->rows, (uint64_t)m->columns, m->stride);

	if (!rc && batches > 1)
		rc = dev->lt.call.cublasLtMatrixLayoutSetAttribute(
			*ret, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches);
	if (!rc && batches > 1)
		rc = dev->lt.call.cublasLtMatrixLayoutSetAttribute(*ret,
			CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->each, sizeof m->each);
	return cuda_lt_check(dev, rc, "Describing a matrix", err);
}

static int describe(struct cuda_dev *dev, struct cuda_product *p, struct jm_err *err)
{
	const struct cuda_gemm *g = &p->gemm;
	cublasComputeType_t compute = g->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
	cublasOperation_t a = g->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t b = g->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	int code = cuda_lt_check(dev,
		dev->lt.call.cublasLtMatmulDescCreate(&p->how, compute, CUDA_R_32F),
		"Describing a product", err);

	if (!code)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, err);
	if (!code)
		code = set(dev, p, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, err);
	if (!code)
		code = describe_f8(dev, p, err);
	if (!code)
		code = describe_epilogue(dev, p, err);
	if (!code)
		code = describe_matrix(dev, &g->a, g->batches, &p->a, err);
	if (!code)
		code = describe_matrix(dev, &g->b, g->batches, &p->b, err);
	if (!code)
		code = describe_matrix(dev, &g->d, g->batches, &p->d, err);
	return code;
}

/* ---- candidates ------------------------------------------------------------------------------ */

#define ALIGNED 64 /* bytes; more makes no difference */

/* Of all matrices of a batch. */
static uint32_t alignment_of(const struct cuda_matrix *m)
{
	uintptr_t bits = (uintptr_t)m->data | (uintptr_t)m->each * jm_dtype_bytes(m->type);
	uint32_t n = 1;

	while (n < 256 && bits % (2 * n) == 0)
		n *= 2;
	return n;
}

/* Where an algorithm divides a sum into parts, it adds them in f32: parts in a result's 16 bits
 * would each be rounded. */
static int prefer(struct cuda_dev *dev, const struct cuda_gemm *g, cublasLtMatmulPreference_t pref,
	struct jm_err *err)
{
	const struct {
		cublasLtMatmulPreferenceAttributes_t what;
		uint32_t value;
	} wanted[] = {{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
			      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(&g->a)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(&g->b)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(&g->d)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(&g->d)}};
	const size_t workspace = WORKSPACE;
	int code = cuda_lt_check(dev,
		dev->lt.call.cublasLtMatmulPreferenceSetAttribute(pref,
			CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
		"Choosing an algorithm", err);

	for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !code; i++)
		code = cuda_lt_check(dev,
			dev->lt.call.cublasLtMatmulPreferenceSetAttribute(
				pref, wanted[i].what, &wanted[i].value, sizeof wanted[i].value),
			"Choosing an algorithm", err);
	return code;
}

/* The algorithms that cuBLASLt's heuristics prefer, at most CANDIDATES; 0 = it has none. */
static int find_candidates(
	struct cuda_dev *dev, struct cuda_product *p, cublasLtMatmulHeuristicResult_t *ret)
{
	cublasLtMatmulPreference_t pref;
	int n = 0;

	if (dev->lt.call.cublasLtMatmulPreferenceCreate(&pref))
		return 0;
	if (prefer(dev, &p->gemm, pref, NULL) ||
		dev->lt.call.cublasLtMatmulAlgoGetHeuristic(
			dev->lt.handle, p->how, p->a, p->b, p->d, p->d, pref, CANDIDATES, ret, &n))
		n = 0;
	dev->lt.call.cublasLtMatmulPreferenceDestroy(pref);
	return n;
}

static cublasStatus_t launch(struct cuda_dev *dev, const struct cuda_product *p,
	const struct cuda_gemm *g, const cublasLtMatmulAlgo_t *algo)
{
	const float alpha = 1, beta = g->accumulate ? 1 : 0;

	return dev->lt.call.cublasLtMatmul(dev->lt.handle, p->how, &alpha, g->a.data, p->a,
		g->b.data, p->b, &beta, g->d.data, p->d, g->d.data, p->d, algo,
		dev->workspace->data, WORKSPACE, dev->stream);
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* Separate operands with random values, because the real ones may be parameters. */
static bool stage(struct cuda_dev *dev, struct cuda_matrix *m, int32_t batches)
{
	struct cuda_vec v = {NULL, cuda_type_of(m->type)};
	int64_t count = m->columns * m->stride + (batches > 1 ? (batches - 1) * m->each : 0);

	if (cudaMalloc(&v.data, (size_t)count * jm_dtype_bytes(m->type))) {
		cudaGetLastError();
		return false;
	}
	if (jm_dtype_bytes(m->type) == 1)
		cuda_random_codes(v.data, count, 1, dev->stream);
	else
		cuda_random(v, count, 1, dev->stream);
	m->data = v.data;
	return true;
}

/* Seconds of one run; NAN = the run failed. */
static double time_one(struct cuda_dev *dev, const struct cuda_product *p,
	const struct cuda_gemm *g, const cublasLtMatmulAlgo_t *algo)
{
	struct cuda_stopwatch watch;
	double best = NAN;

	if (!cuda_stopwatch_open(&watch))
		return NAN;
	for (int i = 0; i <= REPEATS; i++) {
		cuda_stopwatch_start(&watch, dev->stream);
		if (launch(dev, p, g, algo))
			break;
		best = fmin(best, i ? cuda_stopwatch_stop(&watch, dev->stream) : NAN);
	}
	cuda_stopwatch_close(&watch);
	return best;
}

/* Chooses the fastest algorithm and sets its seconds; where none can be timed, as without memory,
 * the first one that cuBLASLt lists, with NAN. */
static int choose(struct cuda_dev *dev, struct cuda_product *p,
	const cublasLtMatmulHeuristicResult_t *found, int n, const char *key)
{
	struct cuda_gemm g = p->gemm;
	double least = INFINITY;
	char way[32];
	int best = 0;

	g.a.data = g.b.data = g.d.data = NULL;
	if (stage(dev, &g.a, g.batches) && stage(dev, &g.b, g.batches) &&
		stage(dev, &g.d, g.batches))
		for (int i = 0; i < n; i++) {
			double seconds = time_one(dev, p, &g, &found[i].algo);

			snprintf(way, sizeof way, "cuBLASLt's no. %d", i + 1);
			cuda_timed(dev, "a product", way, key);
			if (seconds < least) {
				least = seconds;
				best = i;
			}
		}
	cudaFree(g.a.data);
	cudaFree(g.b.data);
	cudaFree(g.d.data);
	p->seconds = isfinite(least) ? least : NAN;
	return best;
}

/* ---- the cache of plans ---------------------------------------------------------------------- */

static void write_key(const struct cuda_gemm *g, char *ret, size_t size)
{
	const struct cuda_matrix *m[] = {&g->a, &g->b, &g->d};
	int n = snprintf(ret, size, "product/%lld", (long long)g->k);
	uint32_t least = ALIGNED;
	char alignment[16] = "";

	for (int i = 0; i < 3; i++) {
		uint32_t bytes = alignment_of(m[i]);

		least = bytes < least ? bytes : least;
		n += snprintf(ret + n, size - (size_t)n, "/%lldx%lld:%lld%s%s",
			(long long)m[i]->rows, (long long)m[i]->columns, (long long)m[i]->stride,
			jm_dtype_name(m[i]->type), m[i]->transposed ? "t" : "");
	}
	if (least < ALIGNED)
		snprintf(alignment, sizeof alignment, "a%u", least);
	n += snprintf(ret + n, size - (size_t)n, "/%d%s%s%s%s%s%s", epilogue_of(g), alignment,
		g->accumulate ? "+" : "", g->tf32 ? "tf32" : "", g->bias && g->bias_as_d ? "b" : "",
		g->fast_sums ? "f" : "", g->scales_rows ? "r" : "");
	if (g->batches > 1)
		snprintf(ret + n, size - (size_t)n, "/x%d", g->batches);
}

/* The value in the plan cache is "seconds,algorithm in hex". */
static void keep(struct cuda_dev *dev, const struct cuda_product *p, const char *key)
{
	char value[CUDA_PLAN_VALUE];
	int n = snprintf(value, sizeof value, "%.3g,", p->seconds);

	for (size_t i = 0; i < sizeof p->algo.data / sizeof *p->algo.data; i++)
		n += snprintf(value + n, sizeof value - (size_t)n, "%016llx",
			(unsigned long long)p->algo.data[i]);
	cuda_plan_keep(dev, key, value);
}

static bool recall(struct cuda_dev *dev, struct cuda_product *p, const char *key)
{
	const char *value = cuda_plan_find(dev, key);
	cublasLtMatmulHeuristicResult_t result;
	char *end;

	if (!value)
		return false;
	p->seconds = strtod(value, &end);
	if (*end++ != ',' || isnan(p->seconds))
		return false;
	for (size_t i = 0; i < sizeof p->algo.data / sizeof *p->algo.data; i++, end += 16) {
		unsigned long long word;

		if (sscanf(end, "%16llx", &word) != 1)
			return false;
		p->algo.data[i] = word;
	}
	return !dev->lt.call.cublasLtMatmulAlgoCheck(
		       dev->lt.handle, p->how, p->a, p->b, p->d, p->d, &p->algo, &result) &&
	       result.workspaceSize <= WORKSPACE;
}

/* ---- the product ----------------------------------------------------------------------------- */

static int take_algorithm(struct cuda_dev *dev, struct cuda_product *p, struct jm_err *err)
{
	cublasLtMatmulHeuristicResult_t found[CANDIDATES];
	char key[CUDA_PLAN_KEY];
	int n;

	write_key(&p->gemm, key, sizeof key);
	if (recall(dev, p, key))
		return 0;
	n = find_candidates(dev, p, found);
	if (n < 1)
		return jm_err_set(err, JM_ENOSUP,
			"cuBLASLt has no algorithm for the product %s on cuda:%d.", key,
			dev->index);
	p->algo = found[choose(dev, p, found, n, key)].algo;
	if (cuda_lost(dev, err))
		return dev->lost.code;
	if (!isnan(p->seconds))
		keep(dev, p, key);
	return 0;
}

int cuda_product_new(struct cuda_dev *dev, const struct cuda_gemm *gemm, struct cuda_product **ret,
	struct jm_err *err)
{
	struct cuda_product *p = calloc(1, sizeof *p);
	int code = cuda_lt_open(dev, err);

	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a product.");
	p->gemm = *gemm;
	if (!code && !cuda_workspace(dev, WORKSPACE))
		code = cuda_waited(dev, cudaStreamSynchronize(dev->stream), err);
	if (!code && !dev->workspace)
		code = jm_err_set(err, JM_ENOMEM,
			"cuda:%d has less than the %zu MB of free memory that cuBLASLt needs as "
			"workspace; use a smaller batch.",
			dev->index, WORKSPACE >> 20);
	if (!code)
		code = describe(dev, p, err);
	if (!code)
		code = take_algorithm(dev, p, err);
	if (code)
		cuda_product_free(dev, p);
	else
		*ret = p;
	return code;
}

int cuda_product_run(struct cuda_dev *dev, const struct cuda_product *p, struct jm_err *err)
{
	return cuda_lt_check(dev, launch(dev, p, &p->gemm, &p->algo), "A product", err);
}

double cuda_product_seconds(const struct cuda_product *p)
{
	return p->seconds;
}

void cuda_product_free(struct cuda_dev *dev, struct cuda_product *p)
{
	if (!p)
		return;
	if (p->how)
		dev->lt.call.cublasLtMatmulDescDestroy(p->how);
	for (int i = 0; i < 3; i++) {
		cublasLtMatrixLayout_t layout = i == 0 ? p->a : i == 1 ? p->b : p->d;

		if (layout)
			dev->lt.call.cublasLtMatrixLayoutDestroy(layout);
	}
	free(p);
}
