/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt and cuDNN, opened at run time: a missing library gives an error message, and the program
 * still starts. One table of symbols each; JM_CUBLASLT_LIB and JM_CUDNN_LIB name other files.
 */
#ifndef JM_CUDA_LIBRARY_H
#define JM_CUDA_LIBRARY_H

#include <cublasLt.h>
#include <cudnn_graph.h>

#include "joulemark.h"

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

struct cuda_dev;

/* Opens the library and makes the handle, if that is not done yet. */
int cuda_lt_open(struct cuda_dev *dev, struct jm_err *err);
int cuda_dnn_open(struct cuda_dev *dev, struct jm_err *err);
/* Opens the library without making a handle. */
int cuda_dnn_load(struct cuda_dnn *dnn, struct jm_err *err);
void cuda_libraries_close(struct cuda_dev *dev);
/* Turns a status into an error; 0 = success. The error includes cuDNN's last message. */
int cuda_lt_check(
	const struct cuda_dev *dev, cublasStatus_t rc, const char *what, struct jm_err *err);
int cuda_dnn_check(
	const struct cuda_dev *dev, cudnnStatus_t rc, const char *what, struct jm_err *err);

#endif
