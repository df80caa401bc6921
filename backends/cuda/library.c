/* SPDX-License-Identifier: Apache-2.0 */
/* Opens cuBLASLt and cuDNN: a table of symbols for each, version checks and error messages. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

/* The oldest versions that have all functions used here. */
#define LT_OLDEST  120000
#define DNN_OLDEST 91400

struct symbol {
	const char *name;
	size_t offset;
};

struct library {
	const char *title, *variable;
	const char *names[8]; /* tried in this order; the loader's default folders come first */
	const struct symbol *symbols;
	size_t n_symbols;
	const char *mend;
};

static const struct symbol lt_symbols[] = {
#define X(name) {#name, offsetof(struct cuda_lt_calls, name)},
	CUDA_LT_SYMBOLS(X)
#undef X
};

static const struct symbol dnn_symbols[] = {
#define X(name) {#name, offsetof(struct cuda_dnn_calls, name)},
	CUDA_DNN_SYMBOLS(X)
#undef X
};

static const struct library lt_library = {
	"cuBLASLt",
	"JM_CUBLASLT_LIB",
	{"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13",
		"/usr/local/cuda/lib64/libcublasLt.so.12"},
	lt_symbols,
	sizeof lt_symbols / sizeof *lt_symbols,
	"install the CUDA toolkit's library cublas, add its folder to LD_LIBRARY_PATH or name the "
	"file in JM_CUBLASLT_LIB",
};

static const struct library dnn_library = {
	"cuDNN",
	"JM_CUDNN_LIB",
	{"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"},
	dnn_symbols,
	sizeof dnn_symbols / sizeof *dnn_symbols,
	"install cuDNN 9.14 or newer, add its folder to LD_LIBRARY_PATH or name the file in "
	"JM_CUDNN_LIB",
};

static void *load(const struct library *l, struct jm_err *err)
{
	const char *given = secure_getenv(l->variable);
	void *library = given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;
	char reason[300] = "";

	snprintf(reason, sizeof reason, "%s", library ? "" : dlerror() ?: "it is not installed");
	for (int i = 0; !given && !library && l->names[i]; i++) {
		library = dlopen(l->names[i], RTLD_NOW | RTLD_LOCAL);
		if (!library && !i)
			snprintf(reason, sizeof reason, "%s", dlerror());
	}
	if (!library)
		jm_err_set(
			err, JM_ENOSUP, "%s cannot be loaded (%s): %s.", l->title, reason, l->mend);
	return library;
}

/* dlsym returns a function as a pointer to data; POSIX guarantees that the conversion works. */
static int resolve(const struct library *l, void *library, void *calls, struct jm_err *err)
{
	for (size_t i = 0; i < l->n_symbols; i++) {
		void *found = dlsym(library, l->symbols[i].name);

		if (!found)
			return jm_err_set(err, JM_EVERSION,
				"%s has no function %s, so it is not a version that can be used: "
				"%s.",
				l->title, l->symbols[i].name, l->mend);
		memcpy((char *)calls + l->symbols[i].offset, &found, sizeof found);
	}
	return 0;
}

static int open_library(
	const struct library *l, void **ret_library, void *calls, struct jm_err *err)
{
	if (!*ret_library)
		*ret_library = load(l, err);
	if (!*ret_library)
		return JM_ENOSUP;
	return resolve(l, *ret_library, calls, err);
}

int cuda_lt_open(struct cuda_dev *dev, struct jm_err *err)
{
	struct cuda_lt *lt = &dev->lt;
	int ret = 0;

	if (lt->handle)
		return 0;
	ret = open_library(&lt_library, &lt->library, &lt->call, err);
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
	int ret = open_library(&dnn_library, &dnn->library, &dnn->call, err);

	if (ret)
		return ret;
	dnn->version = dnn->call.cudnnGetVersion();
	if (dnn->version < DNN_OLDEST)
		return jm_err_set(err, JM_EVERSION, "cuDNN is of version %zu.%zu: %s.",
			dnn->version / 10000, dnn->version / 100 % 100, dnn_library.mend);
	return 0;
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
	ret = cuda_dnn_check(dev, dnn->call.cudnnCreate(&dnn->handle), "cudnnCreate", err);
	if (!ret)
		ret = cuda_dnn_check(dev, dnn->call.cudnnSetStream(dnn->handle, dev->stream),
			"cudnnSetStream", err);
	return ret;
}

/* The libraries stay loaded, because their own threads may still use their state. */
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

int cuda_dnn_check(
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
