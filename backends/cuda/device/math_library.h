/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt and cuDNN, opened at run time: a missing library gives an error message, and the program
 * still starts. JM_CUBLASLT_LIB and JM_CUDNN_LIB name other files.
 */
#ifndef JM_CUDA_MATH_LIBRARY_H
#define JM_CUDA_MATH_LIBRARY_H

#include "joulemark.h"
#include "math_calls.h"

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

#endif
