/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the host that multiply matrices while a device works, so that processors draw power
 * too; each product is checked. */
#ifndef JM_WORKLOADS_HOST_LOAD_H
#define JM_WORKLOADS_HOST_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "joulemark.h"

#define JM_HOST_LOAD_SIDE 96 /* three matrices fit into a core's second cache */

struct jm_host_load_thread {
	struct jm_host_load *load;
	pthread_t id;
	float y[JM_HOST_LOAD_SIDE][JM_HOST_LOAD_SIDE];
	_Atomic long products;
	_Atomic bool wrong;
};

struct jm_host_load {
	/* y = x w; all threads read the same operands, so all products have the same bits. */
	float x[JM_HOST_LOAD_SIDE][JM_HOST_LOAD_SIDE], w[JM_HOST_LOAD_SIDE][JM_HOST_LOAD_SIDE];
	float first[JM_HOST_LOAD_SIDE][JM_HOST_LOAD_SIDE];
	_Atomic bool stop;
	int n, running;
	struct jm_host_load_thread thread[];
};

/* Operands and the first product. */
int jm_host_load_new(int threads, uint64_t seed, struct jm_host_load **ret, struct jm_err *err);
int jm_host_load_start(struct jm_host_load *load, struct jm_err *err);
/* JM_ERANGE: a product differed from the first one. Takes NULL, as does the next. */
int jm_host_load_check(const struct jm_host_load *load, struct jm_err *err);
void jm_host_load_free(struct jm_host_load *load); /* ends the threads */

#endif
