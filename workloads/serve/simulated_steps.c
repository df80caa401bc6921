/* SPDX-License-Identifier: Apache-2.0 */
#include "simulated_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/backend_find.h"
#include "engine/graph/graph.h"
#include "sim/registers.h"
#include "workloads/parts/gang.h"

#define PREFIX "sim:" /* of the names of simulated nodes */
/* The least time of a step, assumed: to start one graph of kernels and to end it. Without it a
 * network of no size would make millions of steps in a second. */
#define STEP_NS (JM_MILLISECOND / 100)

/* What a step consists of: one after the other, each as that response of the node. */
enum { MEMORY, PRODUCTS, PARTS };
static const struct {
	const char *response;
	double per_item; /* bytes, FLOPs of an item of the response */
} parts[PARTS] = {{"stream", 1e9}, {"product", 1e12}};

struct jm_simulated_steps {
	struct jm_sim_registers *registers;
	int response[PARTS];
	struct jm_sim_curve rate[PARTS];
	int under;	/* the part whose load the node is under; -1 = none */
	int64_t end_ns; /* of the latest step */
};

bool jm_simulated_wanted(const struct serve *s)
{
	return !strncmp(s->work->device, PREFIX, strlen(PREFIX));
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check(const struct serve *s, struct jm_err *err)
{
	enum jm_dtype type = s->training.precision;
	const char *refused = s->source.from	   ? "from"
			      : s->answers_file	   ? "answers"
			      : s->listen	   ? "listen"
			      : s->profile	   ? "profile-rows"
			      : s->work->world > 1 ? "ranks"
						   : NULL;

	if (refused)
		return jm_err_set(err, JM_EUSAGE,
			"A simulated GPU computes no tokens and serves alone; omit --%s.", refused);
	if (s->training.fp8 || (type != JM_BF16 && type != JM_F16))
		return jm_err_set(err, JM_EUSAGE,
			"Products of a simulated GPU are in 16 bits; give --precision bf16.");
	return 0;
}

static int choose(struct jm_simulated_steps *m, struct jm_err *err)
{
	const struct jm_sim_name *node = jm_sim_registers_name(m->registers);

	if (node->n > 1)
		return jm_err_set(err, JM_EUSAGE,
			"Serving is simulated on one GPU, and the node %s has %d; give --device "
			"sim:%sx1.",
			node->text, node->n, node->gpu->name);
	for (int k = 0; k < PARTS; k++) {
		m->response[k] = jm_sim_response_find(node->gpu, parts[k].response, err);
		if (m->response[k] < 0)
			return m->response[k];
		jm_sim_rate_curve(node->gpu, &node->gpu->response[m->response[k]], &m->rate[k]);
	}
	return 0;
}

int jm_simulated_open(struct serve *s, struct jm_err *err)
{
	struct jm_simulated_steps *m;
	int code = check(s, err);

	if (code)
		return code;
	m = s->simulated = calloc(1, sizeof(*m));
	if (!m)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the simulated GPU.");
	m->under = -1;
	code = jm_sim_registers_open(
		s->work->ctx, s->work->device + strlen(PREFIX), &m->registers, err);
	if (!code)
		code = choose(m, err);
	if (!code)
		code = jm_device_open("ref", 1, &s->device, err);
	/* simulated time begins at 0, which stands for "not yet" in times of requests */
	if (!code)
		jm_sleep_until(s->work->sleeper, JM_MILLISECOND);
	return code;
}

void jm_simulated_close(struct serve *s)
{
	if (s->simulated)
		jm_sim_registers_close(s->simulated->registers);
	free(s->simulated);
	s->simulated = NULL;
}

size_t jm_simulated_memory(const struct serve *s)
{
	const struct jm_sim_gpu *gpu = jm_sim_registers_name(s->simulated->registers)->gpu;

	return (size_t)(gpu->memory_bytes * (1 - JM_ROOM_RESERVE));
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Bytes of the weights that each step reads: the table of the tokens only if it is also that of
 * the classifier. */
static double weight_bytes(const struct jm_graph *g)
{
	double bytes = 0;

	for (int i = 0; i < g->n_nodes; i++)
		for (int k = 0; k < g->node[i]->n_in; k++) {
			const struct jm_tensor *t = g->node[i]->in[k];

			if (t && t->class == JM_CLASS_PARAM && g->node[i]->op != JM_OP_EMBED)
				bytes += (double)t->bytes;
		}
	return bytes;
}

/* Rows of padding are multiplied like others. */
static double flops_of(const struct serve *s, const struct jm_serve_flight *f)
{
	double padding = (double)(s->served.size[f->size] - f->rows);

	return f->flops_prompts + f->flops_answers + padding * s->row_flops[f->size].row;
}

static double bytes_of(const struct serve *s, const struct jm_serve_flight *f)
{
	double token = (double)jm_served_page_bytes(&s->served) / JM_PAGE_TOKENS;

	return weight_bytes(s->served.program[0]->graph) + f->cached * token;
}

static int wait_for(struct serve *s, int64_t end_ns, struct jm_err *err)
{
	if (jm_sleep_until(s->work->sleeper, end_ns))
		return jm_err_set(err, JM_EINTR, "The simulated step was interrupted.");
	return 0;
}

/* Puts the node under the load of this part until its amount is done. */
static int pass(struct serve *s, int part, double amount, struct jm_err *err)
{
	struct jm_simulated_steps *m = s->simulated;
	const struct jm_sim_gpu *gpu = jm_sim_registers_name(m->registers)->gpu;
	const struct jm_sim_response *response = &gpu->response[m->response[part]];
	const struct jm_sim_limits limits = jm_sim_registers_limits(m->registers, 0);
	double rate = parts[part].per_item *
		      jm_sim_common_rate(gpu, response, &m->rate[part], &limits, 1);
	const struct jm_sim_load load = {.response = m->response[part], .seed = s->work->seed};
	int code = m->under == part ? 0 : jm_sim_registers_load(m->registers, &load, err);

	if (code)
		return code;
	m->under = part;
	m->end_ns += llround(amount / rate * 1e9);
	return wait_for(s, m->end_ns, err);
}

int jm_simulated_await(struct serve *s, struct jm_err *err)
{
	struct jm_simulated_steps *m = s->simulated;
	const struct jm_serve_flight *f = &s->flight[0];
	int64_t least_ns;
	int code;

	s->served.idle_s =
		m->end_ns ? fmax(0, (double)(f->begin_ns - m->end_ns) / 1e9) : (double)NAN;
	m->end_ns = jm_later(m->end_ns, f->begin_ns);
	least_ns = m->end_ns + STEP_NS;
	code = pass(s, MEMORY, bytes_of(s, f), err);
	if (!code)
		code = pass(s, PRODUCTS, flops_of(s, f), err);
	m->end_ns = jm_later(m->end_ns, least_ns);
	return code ? code : wait_for(s, m->end_ns, err);
}

void jm_simulated_rest(struct serve *s)
{
	struct jm_simulated_steps *m = s->simulated;

	if (!m || m->under < 0)
		return;
	jm_sim_registers_unload(m->registers);
	m->under = -1;
}
