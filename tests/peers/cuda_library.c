/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake cuBLASLt (JM_CUBLASLT_LIB) or, with -DDNN, cuDNN (JM_CUDNN_LIB): it has every function
 * that backend cuda looks up, but they do nothing. JM_FAKE_LT_VERSION, JM_FAKE_DNN_VERSION: the
 * version that it reports, such as 130100. JM_FAKE_DNN_WORKSPACE: a graph has one plan, which needs
 * that many bytes; without it a graph has none. JM_FAKE_LT_ALGORITHMS: how many algorithms a
 * product has (0).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define NOTHING(name)                                                                              \
	API int name(void);                                                                        \
	API int name(void)                                                                         \
	{                                                                                          \
		return 0;                                                                          \
	}
#define VERSION(name, variable, fallback)                                                          \
	API size_t name(void);                                                                     \
	API size_t name(void)                                                                      \
	{                                                                                          \
		const char *given = getenv(variable);                                              \
                                                                                                   \
		return given ? (size_t)strtol(given, NULL, 10) : fallback;                         \
	}

#ifdef DNN
VERSION(cudnnGetVersion, "JM_FAKE_DNN_VERSION", 91900)
NOTHING(cudnnCreate)
NOTHING(cudnnDestroy)
NOTHING(cudnnSetStream)
NOTHING(cudnnGetErrorString)
NOTHING(cudnnGetLastErrorString)
NOTHING(cudnnBackendDestroyDescriptor)
NOTHING(cudnnBackendSetAttribute)

/* Values of cudnnBackendAttributeName_t. */
#define ENGINEHEUR_RESULTS	      202
#define EXECUTION_PLAN_WORKSPACE_SIZE 402

API int cudnnBackendCreateDescriptor(int type, void **ret);
API int cudnnBackendCreateDescriptor(int type, void **ret)
{
	static int one;

	(void)type;
	*ret = getenv("JM_FAKE_DNN_WORKSPACE") ? &one : NULL;
	return 0;
}

API int cudnnBackendGetAttribute(
	void *from, int name, int type, int64_t room, int64_t *ret_n, void *ret);
API int cudnnBackendGetAttribute(
	void *from, int name, int type, int64_t room, int64_t *ret_n, void *ret)
{
	const char *given = getenv("JM_FAKE_DNN_WORKSPACE");

	(void)from, (void)type, (void)room;
	if (given && name == ENGINEHEUR_RESULTS)
		*ret_n = 1;
	if (given && name == EXECUTION_PLAN_WORKSPACE_SIZE)
		*(int64_t *)ret = strtoll(given, NULL, 10);
	return 0;
}

NOTHING(cudnnBackendFinalize)
NOTHING(cudnnBackendExecute)
#else
/* Of a cublasLtMatmulHeuristicResult_t: algorithm, workspace, state, waves, 4 reserved numbers. */
#define RESULT_BYTES (64 + 8 + 4 + 4 + 16)

VERSION(cublasLtGetVersion, "JM_FAKE_LT_VERSION", 130100)
/* A handle that is not NULL counts as open. */
API int cublasLtCreate(void **handle);
API int cublasLtCreate(void **handle)
{
	static int one;

	*handle = &one;
	return 0;
}
NOTHING(cublasLtDestroy)
NOTHING(cublasLtGetStatusString)
NOTHING(cublasLtMatmul)
API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *how, void *a, void *b, void *c, void *d,
	void *preference, int most, void *results, int *ret_n);
API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *how, void *a, void *b, void *c, void *d,
	void *preference, int most, void *results, int *ret_n)
{
	const char *given = getenv("JM_FAKE_LT_ALGORITHMS");
	int n = given ? atoi(given) : 0;

	(void)handle, (void)how, (void)a, (void)b, (void)c, (void)d, (void)preference;
	*ret_n = n < most ? n : most;
	memset(results, 0, (size_t)*ret_n * RESULT_BYTES);
	return 0;
}

/* It needs no workspace. */
API int cublasLtMatmulAlgoCheck(void *handle, void *how, void *a, void *b, void *c, void *d,
	const void *algorithm, void *result);
API int cublasLtMatmulAlgoCheck(void *handle, void *how, void *a, void *b, void *c, void *d,
	const void *algorithm, void *result)
{
	(void)handle, (void)how, (void)a, (void)b, (void)c, (void)d, (void)algorithm;
	memset(result, 0, RESULT_BYTES);
	return 0;
}

NOTHING(cublasLtMatmulDescCreate)
NOTHING(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescSetAttribute)
NOTHING(cublasLtMatmulPreferenceCreate)
NOTHING(cublasLtMatmulPreferenceDestroy)
NOTHING(cublasLtMatmulPreferenceSetAttribute)
NOTHING(cublasLtMatrixLayoutCreate)
NOTHING(cublasLtMatrixLayoutDestroy)
NOTHING(cublasLtMatrixLayoutSetAttribute)
#endif
