/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a cuDNN graph: its heuristics list configurations, which are made into plans on
 * demand. */
#include "dnn_graph.h"
#include "dnn_plan.h"

#include <stdio.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;
#define CONFIGS 64 /* at most these many configurations of one mode are tried */
#define KNOBS	32
#define NOTES	16

/* cuDNN 9 deprecates this attribute in favour of device properties, but plans made from those
 * cannot be run. */
#define HANDLE_OF_GRAPH ((cudnnBackendAttributeName_t)800)
#define HANDLE_OF_PLAN	((cudnnBackendAttributeName_t)400)

static bool get(const struct cuda_dnn *d, descriptor from, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t room, int64_t *ret_n, void *ret)
{
	return d->call.cudnnBackendGetAttribute(from, name, type, room, ret_n, ret) ==
	       CUDNN_STATUS_SUCCESS;
}

static descriptor make(const struct cuda_dnn *d, cudnnBackendDescriptorType_t type)
{
	descriptor made = NULL;

	return d->call.cudnnBackendCreateDescriptor(type, &made) ? NULL : made;
}

static void drop(const struct cuda_dnn *d, descriptor old)
{
	if (old)
		d->call.cudnnBackendDestroyDescriptor(old);
}

/* ---- the whole graph and its configurations -------------------------------------------------- */

static void finish_graph(struct dnn_graph *g)
{
	descriptor whole;

	if (g->whole || g->err.code)
		return;
	whole = dnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	dnn_set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops,
		g->op);
	if (g->dnn->handle)
		dnn_set(g, whole, HANDLE_OF_GRAPH, CUDNN_TYPE_HANDLE, 1, &g->dnn->handle);
	dnn_finish(g, whole, "graph");
	if (!g->err.code)
		g->whole = whole;
}

/* All configurations of one mode in cuDNN's order of preference; the caller destroys them. */
static int configs(const struct dnn_graph *g, cudnnBackendHeurMode_t mode, descriptor *ret)
{
	const struct cuda_dnn *d = g->dnn;
	descriptor h = make(d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	int64_t n = 0;
	bool fine = h && !d->call.cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
				 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->whole);

	fine = fine && !d->call.cudnnBackendSetAttribute(
			       h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (fine && d->device)
		fine = !d->call.cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
			CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d->device);
	fine = fine && !d->call.cudnnBackendFinalize(h);
	for (int i = 0; i < CONFIGS; i++)
		ret[i] = fine ? make(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) : NULL;
	if (fine && !get(d, h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
			    CONFIGS, &n, ret))
		n = 0;
	drop(d, h);
	for (int i = (int)n; i < CONFIGS; i++)
		drop(d, ret[i]);
	return (int)n;
}

/* ---- properties of a configuration ----------------------------------------------------------- */

struct traits {
	bool usable, tensor, varies, compiled;
	int64_t engine;
	char name[DNN_NAME];
};

static void read_notes(const struct cuda_dnn *d, descriptor engine, struct traits *ret)
{
	cudnnBackendNumericalNote_t numeric[NOTES];
	cudnnBackendBehaviorNote_t behaviour[NOTES];
	int64_t n = 0;

	if (!get(d, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &n,
		    numeric))
		n = 0;
	for (int64_t i = 0; i < n; i++) {
		ret->tensor |= numeric[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
			       numeric[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
		ret->varies |= numeric[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
	}
	if (!get(d, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, NOTES, &n,
		    behaviour))
		n = 0;
	for (int64_t i = 0; i < n; i++)
		ret->compiled |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
}

/* "e12,2=1,5=3": the engine, then each of its knobs (cuDNN's term) with its value. */
static void read_name(const struct cuda_dnn *d, descriptor config, int64_t engine, char *ret)
{
	descriptor knob[KNOBS];
	int64_t n = 0;
	int at = snprintf(ret, DNN_NAME, "e%lld", (long long)engine);

	for (int i = 0; i < KNOBS; i++)
		knob[i] = make(d, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
	if (!get(d, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS,
		    &n, knob))
		n = 0;
	for (int64_t i = 0; i < n; i++) {
		cudnnBackendKnobType_t type;
		int64_t value, one;

		if (get(d, knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
			    &type) &&
			get(d, knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
				&one, &value) &&
			at < DNN_NAME)
			at += snprintf(ret + at, (size_t)(DNN_NAME - at), ",%d=%lld", (int)type,
				(long long)value);
	}
	for (int i = 0; i < KNOBS; i++)
		drop(d, knob[i]);
}

static struct traits traits_of(const struct cuda_dnn *d, descriptor config)
{
	struct traits ret = {0};
	descriptor engine = make(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	int64_t one, index = -1;

	if (get(d, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
		    &engine) &&
		get(d, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &one, &index)) {
		ret.usable = true;
		ret.engine = index;
		read_notes(d, engine, &ret);
		read_name(d, config, index, ret.name);
	}
	drop(d, engine);
	return ret;
}

static bool fits(const struct traits *t, const struct dnn_want *want)
{
	return t->usable && !(want->refused && t->engine == want->refused) &&
	       !(want->exact && t->tensor) && !(want->repeatable && t->varies) &&
	       !(want->ready && t->compiled) && (!want->name || strcmp(want->name, t->name) == 0);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool finish_plan(
	const struct cuda_dnn *d, descriptor config, size_t limit, struct dnn_plan *ret)
{
	descriptor plan = make(d, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	int64_t bytes = 0, one;
	bool fine = plan &&
		    !d->call.cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
			    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);

	if (fine && d->handle)
		fine = !d->call.cudnnBackendSetAttribute(
			plan, HANDLE_OF_PLAN, CUDNN_TYPE_HANDLE, 1, &d->handle);
	if (fine && d->device)
		fine = !d->call.cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
			CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d->device);
	fine = fine && !d->call.cudnnBackendFinalize(plan) &&
	       get(d, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one,
		       &bytes) &&
	       (size_t)bytes <= limit;
	if (!fine) {
		drop(d, plan);
		return false;
	}
	ret->descriptor = plan;
	ret->workspace = (size_t)bytes;
	return true;
}

/* Two modes of the heuristics can list the same configuration. */
static bool is_known(const struct dnn_plan *plan, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(plan[i].name, name) == 0)
			return true;
	return false;
}

static int plans_of_mode(const struct dnn_graph *g, cudnnBackendHeurMode_t mode,
	const struct dnn_want *want, struct dnn_plan *ret, int n, int max)
{
	descriptor config[CONFIGS];
	int found = configs(g, mode, config);

	for (int i = 0; i < found; i++) {
		struct traits t = {0};

		if (n < max)
			t = traits_of(g->dnn, config[i]);
		if (fits(&t, want) && !is_known(ret, n, t.name) &&
			finish_plan(g->dnn, config[i], want->workspace, &ret[n])) {
			ret[n].compiled = t.compiled;
			memcpy(ret[n++].name, t.name, sizeof t.name);
		}
		drop(g->dnn, config[i]);
	}
	return n;
}

int dnn_plans(struct dnn_graph *g, const struct dnn_want *want, struct dnn_plan *ret, int max,
	struct jm_err *err)
{
	int n = 0;

	finish_graph(g);
	if (g->err.code) {
		jm_err_set(err, g->err.code, "%s", g->err.text);
		return 0;
	}
	memset(ret, 0, sizeof *ret * (size_t)max);
	/* one place is left for a fallback */
	n = plans_of_mode(g, CUDNN_HEUR_MODE_A, want, ret, n, max - (want->all && max > 1));
	if (!want->preferred && (!n || want->name || want->all))
		n = plans_of_mode(g, CUDNN_HEUR_MODE_FALLBACK, want, ret, n, max);
	if (!n)
		jm_err_set(err, JM_ENOSUP,
			"cuDNN %zu has no engine for these operations, types and shapes%s%s.",
			g->dnn->version, want->repeatable ? " that repeats its bits" : "",
			want->exact ? " in f32" : "");
	return n;
}

void dnn_plan_drop(const struct cuda_dnn *d, struct dnn_plan *plan)
{
	drop(d, plan->descriptor);
	*plan = (struct dnn_plan){0};
}

/* ---- runs ------------------------------------------------------------------------------------ */

int dnn_bind(const struct cuda_dnn *d, const struct dnn_plan *plan, int n, const int64_t *id,
	void *const *data, void *workspace, struct dnn_run *ret, struct jm_err *err)
{
	descriptor pack = NULL;
	cudnnStatus_t s =
		d->call.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

	if (!s)
		s = d->call.cudnnBackendSetAttribute(
			pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, id);
	if (!s)
		s = d->call.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
			CUDNN_TYPE_VOID_PTR, n, (const void *)data);
	if (!s)
		s = d->call.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
			CUDNN_TYPE_VOID_PTR, 1, &workspace);
	if (!s)
		s = d->call.cudnnBackendFinalize(pack);
	if (s) {
		drop(d, pack);
		return dnn_fail(d, s, "cuDNN does not accept the memory of a plan", err);
	}
	ret->plan = plan->descriptor;
	ret->pack = pack;
	return 0;
}

int dnn_run(const struct cuda_dnn *d, const struct dnn_run *run, struct jm_err *err)
{
	cudnnStatus_t s = d->call.cudnnBackendExecute(d->handle, run->plan, run->pack);

	return s ? dnn_fail(d, s, "cuDNN does not run a plan", err) : 0;
}

void dnn_unbind(const struct cuda_dnn *d, struct dnn_run *run)
{
	drop(d, run->pack);
	*run = (struct dnn_run){0};
}
