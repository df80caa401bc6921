/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt and cuDNN: names of the files, a table of symbols for each, version checks and error
 * messages. */
#include <stddef.h>

#include "math_library.h"
#include "cuda.h"
#include "vendor/library.h"

/* The oldest versions that have all functions used here. */
#define LT_OLDEST  120000
#define DNN_OLDEST 91400

static const struct jm_symbol lt_symbols[] = {
#define X(name) {#name, offsetof(struct cuda_lt_calls, name)},
	CUDA_LT_SYMBOLS(X)
#undef X
};

static const struct jm_symbol dnn_symbols[] = {
#define X(name) {#name, offsetof(struct cuda_dnn_calls, name)},
	CUDA_DNN_SYMBOLS(X)
#undef X
};

static const struct jm_library lt_library = {
	.title = "cuBLASLt",
	.variable = "JM_CUBLASLT_LIB",
	.names = {"libcublasLt.so.13", "libcublasLt.so.12",
		"/usr/local/cuda/lib64/libcublasLt.so.13",
		"/usr/local/cuda/lib64/libcublasLt.so.12"},
	.symbols = lt_symbols,
	.n_symbols = sizeof lt_symbols / sizeof *lt_symbols,
	.mend = "install the CUDA toolkit's library cublas, add its folder to LD_LIBRARY_PATH or "
		"name the file in JM_CUBLASLT_LIB",
};

static const struct jm_library dnn_library = {
	.title = "cuDNN",
	.variable = "JM_CUDNN_LIB",
	.names = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"},
	.symbols = dnn_symbols,
	.n_symbols = sizeof dnn_symbols / sizeof *dnn_symbols,
	.mend = "install cuDNN 9.14 or newer, add its folder to LD_LIBRARY_PATH or name the file "
		"in JM_CUDNN_LIB",
};

int cuda_lt_open(struct cuda_dev *dev, struct jm_err *err)
{
	struct cuda_lt *lt = &dev->lt;
	int ret = 0;

	if (lt->handle)
		return 0;
	ret = jm_library_open(&lt_library, &lt->call, err);
	if (ret)
		return ret;
	lt->version = lt->call.cublasLtGetVersion();
	if (lt->version < LT_OLDEST)
		return jm_err_set(err, JM_EVERSION, "cuBLASLt is of version %zu.%zu: %s.",
			lt->version / 10000, lt->version / 100 % 100, lt_library.mend);
	return cuda_lt_check(dev, lt->call.cublasLtCreate(&lt->handle), "cublasLtCreate", err);
}

int cuda_dnn_load(struct cuda_dnn *dnn, struct jm_err *err)
{
	if (jm_library_open(&dnn_library, &dnn->call, err)) {
		if (err)
			err->code = JM_EVERSION; /* none is as bad as one that is too old */
		return JM_EVERSION;
	}
	dnn->version = dnn->call.cudnnGetVersion();
	if (dnn->version < DNN_OLDEST)
		return jm_err_set(err, JM_EVERSION, "cuDNN is of version %zu.%zu: %s.",
			dnn->version / 10000, dnn->version / 100 % 100, dnn_library.mend);
	return 0;
}

static int dnn_check(
	const struct cuda_dev *dev, cudnnStatus_t rc, const char *what, struct jm_err *err)
{
	char more[200] = "";

	if (rc == CUDNN_STATUS_SUCCESS)
		return 0;
	dev->dnn.call.cudnnGetLastErrorString(more, sizeof more);
	return jm_err_set(err, rc / 1000 == 3 ? JM_ENOSUP : JM_EIO,
		"%s of cuDNN failed on cuda:%d: %s (%s).", what, dev->index,
		dev->dnn.call.cudnnGetErrorString(rc), more);
}

int cuda_dnn_open(struct cuda_dev *dev, struct jm_err *err)
{
	struct cuda_dnn *dnn = &dev->dnn;
	int ret = 0;

	if (dnn->handle)
		return 0;
	ret = cuda_dnn_load(dnn, err);
	if (ret)
		return ret;
	ret = dnn_check(dev, dnn->call.cudnnCreate(&dnn->handle), "cudnnCreate", err);
	if (!ret)
		ret = dnn_check(dev, dnn->call.cudnnSetStream(dnn->handle, dev->stream),
			"cudnnSetStream", err);
	return ret;
}

/* The libraries stay loaded: they keep state that their threads may still use. */
void cuda_libraries_close(struct cuda_dev *dev)
{
	if (dev->lt.handle)
		dev->lt.call.cublasLtDestroy(dev->lt.handle);
	if (dev->dnn.handle)
		dev->dnn.call.cudnnDestroy(dev->dnn.handle);
}

int cuda_lt_check(
	const struct cuda_dev *dev, cublasStatus_t rc, const char *what, struct jm_err *err)
{
	if (rc == CUBLAS_STATUS_SUCCESS)
		return 0;
	return jm_err_set(err, rc == CUBLAS_STATUS_ALLOC_FAILED ? JM_ENOMEM : JM_EIO,
		"%s of cuBLASLt failed on cuda:%d: %s.", what, dev->index,
		dev->lt.call.cublasLtGetStatusString(rc));
}
