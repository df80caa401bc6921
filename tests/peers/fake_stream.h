/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of a queue that backend_later.c returns; nccl_fake.c and later_lanes.c accept it. */
#ifndef JM_FAKE_STREAM_H
#define JM_FAKE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

struct jm_fake_stream {
	/* Calls work(arg) when all that the queue holds now is done. 0: it will. */
	int (*put)(const struct jm_fake_stream *s, void (*work)(void *arg), void *arg);
	/* Are these bytes within one allocation of the device's memory? */
	bool (*owns)(const struct jm_fake_stream *s, const void *from, size_t bytes);
	void *dev;
	int queue;
	int index; /* of the device */
};

int jm_fake_index_of(void *dev);
/* Of the queue for transfers. */
const struct jm_fake_stream *jm_fake_stream_of(void *dev);
extern const struct jm_lanes later_lanes;

#endif
