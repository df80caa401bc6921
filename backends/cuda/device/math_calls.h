/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt and cuDNN as they are opened at run time: one table of symbols each. */
#ifndef JM_CUDA_MATH_CALLS_H
#define JM_CUDA_MATH_CALLS_H

#include <cublasLt.h>
#include <cudnn_graph.h>

#define CUDA_LT_SYMBOLS(X)                                                                         \
	X(cublasLtCreate)                                                                          \
	X(cublasLtDestroy)                                                                         \
	X(cublasLtGetVersion)                                                                      \
	X(cublasLtGetStatusString)                                                                 \
	X(cublasLtMatmul)                                                                          \
	X(cublasLtMatmulAlgoGetHeuristic)                                                          \
	X(cublasLtMatmulAlgoCheck)                                                                 \
	X(cublasLtMatmulDescCreate)                                                                \
	X(cublasLtMatmulDescDestroy)                                                               \
	X(cublasLtMatmulDescSetAttribute)                                                          \
	X(cublasLtMatmulPreferenceCreate)                                                          \
	X(cublasLtMatmulPreferenceDestroy)                                                         \
	X(cublasLtMatmulPreferenceSetAttribute)                                                    \
	X(cublasLtMatrixLayoutCreate)                                                              \
	X(cublasLtMatrixLayoutDestroy)                                                             \
	X(cublasLtMatrixLayoutSetAttribute)

#define CUDA_DNN_SYMBOLS(X)                                                                        \
	X(cudnnCreate)                                                                             \
	X(cudnnDestroy)                                                                            \
	X(cudnnSetStream)                                                                          \
	X(cudnnGetVersion)                                                                         \
	X(cudnnGetErrorString)                                                                     \
	X(cudnnGetLastErrorString)                                                                 \
	X(cudnnBackendCreateDescriptor)                                                            \
	X(cudnnBackendDestroyDescriptor)                                                           \
	X(cudnnBackendSetAttribute)                                                                \
	X(cudnnBackendGetAttribute)                                                                \
	X(cudnnBackendFinalize)                                                                    \
	X(cudnnBackendExecute)

#define X(name) __typeof__(&name) name;
struct cuda_lt_calls {
	CUDA_LT_SYMBOLS(X)
};
struct cuda_dnn_calls {
	CUDA_DNN_SYMBOLS(X)
};
#undef X

struct cuda_lt {
	struct cuda_lt_calls call;
	cublasLtHandle_t handle; /* NULL until it is opened */
	size_t version;		 /* 130100 = 13.1.0 */
};

struct cuda_dnn {
	struct cuda_dnn_calls call;
	cudnnHandle_t handle;		 /* NULL until it is opened */
	size_t version;			 /* 91400 = 9.14.0 */
	cudnnBackendDescriptor_t device; /* of a GPU that is only described; replaces the handle */
};

#endif
