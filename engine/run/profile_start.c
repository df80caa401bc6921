/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the profile of a program, and measures the memory bandwidth if the device's is unknown. */
#include "profile_start.h"
#include "base/clock.h"
#include "engine/graph/layer.h"
#include "program.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define LONG	   (1 << 24) /* elements, at least */
#define LONGEST	   (1 << 27)
#define LONG_S	   0.25 /* after this time few runs suffice */
#define LEAST_RUNS 3
#define MOST_RUNS  12

static double now_s(void)
{
	return 1e-9 * (double)jm_clock_now(jm_clock_real());
}

/* The elements of a vector, three of which need twice the reported cache size: 0.2 to 1.6 GB. */
static int64_t long_enough(void)
{
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
	int64_t n = cache > 0 ? 2 * (int64_t)cache / 12 : LONG;

	return n < LONG ? LONG : n > LONGEST ? LONGEST : n;
}

/* Writes the memory once: pages that were never written may all be one page of zeros, which fits a
 * cache. */
static int write_once(struct jm_program *p, struct jm_tensor *t)
{
	void *zeros = calloc(1, t->bytes);
	int code = zeros ? jm_program_write(p, t, zeros, NULL) : JM_ENOMEM;

	free(zeros);
	return code;
}

/*
 * An in-place update of long vectors. It reads three and writes two of them, so that the counted
 * bytes are those that move. (Reading alone may be a little faster.)
 */
static struct jm_program *long_update(struct jm_graph *g, struct jm_device *device)
{
	const int64_t n = long_enough(), one = 1;
	struct jm_tensor *grad = jm_graph_input(g, "g", JM_F32, 1, &n);
	struct jm_tensor *rate = jm_graph_input(g, "now", JM_F32, 1, &one);
	struct jm_tensor *p_m[] = {
		jm_graph_input(g, "p", JM_F32, 1, &n), jm_graph_input(g, "m", JM_F32, 1, &n)};
	struct jm_tensor *in[JM_NODE_IN] = {grad, NULL, rate};
	struct jm_program *p = NULL;

	jm_graph_node(g, JM_OP_SGD, in, p_m);
	if (g->err.code || jm_program_plan(g, device, &p, NULL))
		return NULL;
	if (!jm_program_build(p, NULL) && !write_once(p, grad))
		return p;
	jm_program_free(p);
	return NULL;
}

/* Bytes per second of the best of some runs; NAN = unknown. */
static double measure_bytes(struct jm_device *device)
{
	struct jm_graph *g = jm_graph_new(JM_F32);
	struct jm_program *p = g ? long_update(g, device) : NULL;
	double best = NAN, began = now_s();

	for (int i = 0; p && i < MOST_RUNS && (i < LEAST_RUNS || now_s() - began < LONG_S); i++) {
		double start = now_s(), rate;

		if (jm_program_run(p, NULL))
			break;
		rate = p->bytes / (now_s() - start);
		if (!(best > rate))
			best = rate;
	}
	jm_program_free(p);
	jm_graph_free(g);
	return best;
}

static int make_events(struct jm_profile *profile, const struct jm_program *p, struct jm_err *err)
{
	int code = 0;

	for (; profile->n_events <= p->n_units && !code; profile->n_events++)
		code = jm_event_new(p->device, &profile->event[profile->n_events], err);
	return code;
}

int jm_profile_start(struct jm_program *p, struct jm_err *err)
{
	struct jm_profile *profile = calloc(1, sizeof(*profile));
	size_t n = (size_t)p->n_units + 1;
	int code;

	if (profile) {
		profile->seconds = calloc(n, sizeof(*profile->seconds));
		profile->runs = calloc(n, sizeof(*profile->runs));
		profile->event = calloc(n, sizeof(*profile->event));
	}
	if (!profile || !profile->seconds || !profile->runs || !profile->event)
		code = jm_err_set(err, JM_ENOMEM, "Out of memory for a profile.");
	else
		code = make_events(profile, p, err);
	if (code) {
		jm_profile_free(profile);
		return code;
	}
	profile->peak_bytes = p->device->props.peak_bytes;
	if (!(profile->peak_bytes > 0))
		profile->peak_bytes = measure_bytes(p->device);
	p->profile = profile;
	return 0;
}
