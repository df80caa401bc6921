/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the host that multiply matrices and, in turns, read, check and write their part of the
 * host's memory while a device works, so that processors and memory draw power, too. */
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
	uint64_t *words;       /* of the host's memory; NULL = none */
	size_t at;	       /* the word that is next */
	uint64_t flip;	       /* of the words from there on; the others have the complement */
	_Atomic size_t filled; /* words that have been written */
	_Atomic long products, passes; /* passes: through all words */
	_Atomic bool wrong, changed;   /* a product, a word */
};

struct jm_host_load {
	/* y = x w; all threads read the same operands, so all products have the same bits. */
	float x[JM_HOST_LOAD_SIDE][JM_HOST_LOAD_SIDE], w[JM_HOST_LOAD_SIDE][JM_HOST_LOAD_SIDE];
	float first[JM_HOST_LOAD_SIDE][JM_HOST_LOAD_SIDE];
	_Atomic bool stop;
	size_t n_words; /* of each thread */
	int n, running;
	struct jm_host_load_thread thread[];
};

/* Operands and the first product. bytes: of the memory that all threads together walk through; 0 =
 * none */
int jm_host_load_new(
	int threads, size_t bytes, uint64_t seed, struct jm_host_load **ret, struct jm_err *err);
int jm_host_load_start(struct jm_host_load *load, struct jm_err *err);
/* Has each thread written all its memory? Until then it multiplies nothing. */
bool jm_host_load_is_filled(const struct jm_host_load *load);
/* JM_ERANGE: a product differed from the first one, or a word from what was written. Takes NULL, as
 * does the next. */
int jm_host_load_check(const struct jm_host_load *load, struct jm_err *err);
void jm_host_load_free(struct jm_host_load *load); /* ends the threads */

#endif
