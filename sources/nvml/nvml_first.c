/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml_first.h"
#include "base/clock.h"
#include "base/process/driver_call.h"
#include "nvml_probe.h"

#include <stdlib.h>

/* How long all GPUs together are awaited: well below JM_DRIVER_LIMIT_NS, after which the whole
 * source would be given up. */
#define FIRST_NS (3 * JM_SECOND)

struct question {
	struct jm_nvml nvml;
	struct jm_nvml_gpu gpu;
};

struct jm_nvml_first {
	int n;
	struct first_call {
		struct jm_driver_call *left; /* NULL = it has returned */
		struct question question;
	} call[];
};

/* Everything but the energy, which some drivers take milliseconds to tell. */
static void ask(void *arg)
{
	const struct question *q = arg;

	for (size_t i = 0; i < JM_NVML_GPU_PROBES; i++)
		if (jm_nvml_gpu_probes[i].quantity != JM_Q_ENERGY)
			jm_nvml_answers(&q->nvml, &q->gpu, &jm_nvml_gpu_probes[i]);
}

static void begin(struct first_call *c, const struct jm_nvml *nvml, const struct jm_nvml_gpu *gpu)
{
	c->question = (struct question){*nvml, *gpu};
	if (jm_driver_call(ask, &c->question, 0, &c->left))
		c->left = NULL;
}

static void await(struct first_call *c, int64_t until)
{
	int64_t left_ns = until - jm_clock_now(jm_clock_real());

	if (c->left && jm_driver_call_again(c->left, left_ns > 0 ? left_ns : 0))
		c->left = NULL;
}

struct jm_nvml_first *jm_nvml_first_ask(
	const struct jm_nvml *nvml, const struct jm_nvml_gpus *gpus, bool all)
{
	struct jm_nvml_first *first =
		calloc(1, sizeof(*first) + (size_t)gpus->n * sizeof(first->call[0]));
	int64_t until = jm_clock_now(jm_clock_real()) + FIRST_NS;

	if (!first)
		return NULL;
	first->n = gpus->n;
	for (int i = 0; i < gpus->n; i++)
		if (all || gpus->gpu[i].allocated)
			begin(&first->call[i], nvml, &gpus->gpu[i]);
	for (int i = 0; i < gpus->n; i++)
		await(&first->call[i], until);
	return first;
}

bool jm_nvml_first_waits(const struct jm_nvml_first *first, int gpu)
{
	return first->call[gpu].left;
}

bool jm_nvml_first_done(struct jm_nvml_first *first)
{
	for (int i = 0; first && i < first->n; i++) {
		await(&first->call[i], 0);
		if (first->call[i].left)
			return false;
	}
	free(first);
	return true;
}
