/* SPDX-License-Identifier: Apache-2.0 */
/* The functions for queues that backend.c puts into its table. */
#ifndef JM_CUDA_QUEUE_H
#define JM_CUDA_QUEUE_H

#include "cuda.h"
#include "engine/device/backend_peer.h"

int cuda_copy(void *arg, enum jm_queue queue, void *to, const void *from, size_t bytes,
	enum jm_copy kind, struct jm_err *err);
int cuda_fill(void *arg, enum jm_queue queue, void *to, unsigned char value, size_t bytes,
	struct jm_err *err);
/* The stream of a queue; the third queue is made at the first call. */
int cuda_stream(void *arg, enum jm_queue queue, void **ret, struct jm_err *err);
int cuda_sync(void *arg, struct jm_err *err);
void *cuda_pinned_alloc(void *arg, size_t bytes);
void cuda_pinned_release(void *arg, void *memory);
int cuda_memory_free(void *arg, size_t *ret, struct jm_err *err);
int cuda_event_new(void *arg, void **ret_event, struct jm_err *err);
int cuda_event_record(void *arg, void *event, enum jm_queue queue, struct jm_err *err);
int cuda_event_follow(void *arg, void *event, enum jm_queue queue, struct jm_err *err);
int cuda_event_wait(void *arg, void *event, struct jm_err *err);
int cuda_event_query(void *arg, void *event, struct jm_err *err);
int cuda_event_seconds(void *arg, void *from, void *to, double *ret, struct jm_err *err);
void cuda_event_drop(void *dev, void *event);

extern const struct jm_backend_peer cuda_peer;

#endif
