/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of a GPU, and the memory that stays allocated until it is closed. */
#ifndef JM_BACKENDS_GPU_H
#define JM_BACKENDS_GPU_H

#include "cuda.h"

bool cuda_stopwatch_open(struct cuda_stopwatch *w);
void cuda_stopwatch_start(const struct cuda_stopwatch *w, cudaStream_t stream);
double cuda_stopwatch_stop(const struct cuda_stopwatch *w, cudaStream_t stream);
void cuda_stopwatch_close(const struct cuda_stopwatch *w);

/* Turns the status of a call of CUDA into an error: "What failed on cuda:0: reason." */
int cuda_check(const struct cuda_dev *dev, cudaError_t rc, const char *what, struct jm_err *err);
/* Checks for an error after a kernel was started. */
int cuda_started(const struct cuda_dev *dev, enum jm_op op, struct jm_err *err);
/* Work was queued; what: the beginning of a sentence, which stays valid. */
void cuda_queued(struct cuda_dev *dev, const char *what);
/* As cuda_check, of a call that waits for queued work: names the work where only one piece is
 * queued, else the latest. */
int cuda_waited(const struct cuda_dev *dev, cudaError_t rc, struct jm_err *err);
/* After a choice for `op` was timed, whose plan has that key: notes an error that ended the
 * context, after which every call fails. */
void cuda_timed(struct cuda_dev *dev, const char *op, const char *way, const char *key);
/* The error that cuda_timed has noted, in place of one that follows from it; 0 = none. */
int cuda_lost(const struct cuda_dev *dev, struct jm_err *err);
/* Zeroed device memory that is kept until the device is closed; NULL = out of memory. */
void *cuda_keep(struct cuda_dev *dev, size_t bytes);
/* Copies from the host to memory that any queue may use next. */
int cuda_upload(struct cuda_dev *dev, void *to, const void *from, size_t bytes, const char *what,
	struct jm_err *err);
/* Memory that all groups share, one after the other; kept until the device is closed. NULL = out of
 * memory. */
void *cuda_workspace(struct cuda_dev *dev, size_t bytes);

/* Peak operations of products in 16 bits divided by peak bytes of memory; NAN = unknown. */
double cuda_flops_per_byte(const struct cuda_dev *dev);
bool cuda_has_f8(const struct cuda_dev *dev); /* products in 8 bits: Ada, Hopper and later */
/* Dense peaks by chip, from the vendor's data sheets; NAN where the chip is not listed. */
void cuda_props(void *arg, struct jm_device_props *ret);
/* As jm_backend.versions. */
void cuda_versions(void *arg, char *ret, size_t size);

#endif
