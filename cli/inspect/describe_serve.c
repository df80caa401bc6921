/* SPDX-License-Identifier: Apache-2.0 */
#include "describe_serve.h"

#include "base/text/json.h"
#include "base/text/number.h"
#include "describe_several.h"
#include "engine/run/served_model.h"
#include "report/format/text.h"

/* With so many pages. */
static int plan_pages(struct describe_plan *plan, int64_t pages, struct jm_err *err)
{
	struct describe_serve *s = &plan->serve;
	struct jm_step_shape shape = s->shape;
	struct jm_served_model cache;
	int code;

	shape.pages = pages;
	code = jm_served_plan(&plan->training, &shape, &plan->device, &cache, err);

	if (!code) {
		s->parameters = jm_graph_parameters(cache.program[0]->graph);
		s->page_bytes = jm_served_page_bytes(&cache);
		s->weight_bytes = cache.program[0]->class_bytes[JM_CLASS_PARAM];
		s->peak_bytes = jm_served_peak(&cache, &s->arena_bytes);
		s->pages = pages;
	}
	jm_served_close(&cache);
	return code;
}

/* The memory that may be used, and the tokens of a request. */
static int choose(struct describe_plan *plan, struct jm_err *err)
{
	struct describe_serve *s = &plan->serve;
	int64_t context = jm_dim(&plan->dims, "context");
	int code;

	s->budget = s->memory > 0 ? (size_t)(s->memory * 1e9) : plan->device.props.memory_bytes;
	s->request_tokens = s->request_tokens ? s->request_tokens : context;
	if (s->request_tokens > context)
		return jm_err_set(err, JM_EUSAGE,
			"A request of %lld tokens exceeds the model's context of %lld; give fewer "
			"--request-tokens.",
			(long long)s->request_tokens, (long long)context);
	code = jm_served_shape(s->step_tokens, s->running, s->request_tokens, &s->shape, err);
	s->shape.narrow_cache = s->kv == JM_CACHE_F8E4M3;
	if (code || s->budget)
		return code;
	return jm_err_set(err, JM_EUSAGE,
		"The memory of device %s is not known; give it with --memory.",
		plan->device.backend->name);
}

int describe_serve_plan(struct describe_plan *plan, struct jm_err *err)
{
	struct describe_serve *s = &plan->serve;
	size_t fixed;
	int code;

	if (!plan->training.model->step)
		return jm_err_set(err, JM_EUSAGE,
			"Model %s cannot be served; --serve is for llama and its presets.",
			plan->training.model->name);
	plan->training.pure = true; /* as run serve has it: no f32 masters */
	code = choose(plan, err);
	if (!code)
		code = plan_pages(plan, s->shape.pages_each, err);
	if (code)
		return code;
	if (!s->page_bytes)
		return jm_err_set(err, JM_EBUG, "Model %s has no cache in its steps.", plan->name);
	fixed = s->peak_bytes - (size_t)s->pages * s->page_bytes;
	if (fixed + s->page_bytes > s->budget)
		return jm_err_set(err, JM_ERANGE,
			"Serving %s needs %.*f GB before the first page of its cache, and %.*f GB "
			"may be used; give more --memory, fewer --step-tokens or a narrower "
			"--precision.",
			plan->name, JM_GB(fixed), JM_GB(s->budget));
	return plan_pages(plan, (int64_t)((s->budget - fixed) / s->page_bytes), err);
}

static void print_count(FILE *out, const char *what, int64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	jm_text_apart(text, sizeof(text));
	fprintf(out, "  %-28s %8s\n", what, text);
}

static const char *cache_type(const struct describe_plan *plan)
{
	return jm_cache_type_name(plan->serve.kv, plan->training.precision);
}

static int64_t requests(const struct describe_serve *s)
{
	return s->pages / s->shape.pages_each;
}

void describe_serve_print(const struct describe_plan *plan, FILE *out)
{
	const struct describe_serve *s = &plan->serve;
	char what[64];

	fprintf(out, "%s, served in %s, %d requests in steps of up to %d tokens, on %s\n\n",
		plan->name, plan->precision, s->running, s->step_tokens,
		plan->device.backend->name);
	describe_print(out, "parameters", (double)s->parameters, "");
	fprintf(out, "memory:\n");
	describe_print(out, "may be used", (double)s->budget, "B");
	describe_print(out, "weights", (double)s->weight_bytes, "B");
	describe_print(out, "planned over a step", (double)s->arena_bytes, "B");
	describe_print(out, "cache", (double)s->page_bytes * (double)s->pages, "B");
	fprintf(out, "cache, in %s:\n", cache_type(plan));
	describe_print(out, "a token", (double)s->page_bytes / JM_PAGE_TOKENS, "B");
	snprintf(what, sizeof(what), "pages of %d tokens", JM_PAGE_TOKENS);
	print_count(out, what, s->pages);
	print_count(out, "tokens", s->pages * JM_PAGE_TOKENS);
	snprintf(what, sizeof(what), "requests of %lld tokens", (long long)s->request_tokens);
	print_count(out, what, requests(s));
}

json_t *describe_serve_json(const struct describe_plan *plan)
{
	const struct describe_serve *s = &plan->serve;
	json_t *json = json_object();

	jm_json_set_text(&json, "schema", "joulemark.describe-serve/1");
	jm_json_set_text(&json, "model", plan->name);
	jm_json_set_text(&json, "precision", plan->precision);
	jm_json_set_text(&json, "device", plan->device.backend->name);
	jm_json_set_text(&json, "cache_type", cache_type(plan));
	jm_json_set_int(&json, "running", s->running);
	jm_json_set_int(&json, "step_tokens", s->step_tokens);
	jm_json_set_int(&json, "request_tokens", s->request_tokens);
	jm_json_set_int(&json, "parameters", s->parameters);
	jm_json_set_int(&json, "memory_bytes", s->budget);
	jm_json_set_int(&json, "parameter_bytes", s->weight_bytes);
	jm_json_set_int(&json, "arena_bytes", s->arena_bytes);
	jm_json_set_int(&json, "peak_bytes", s->peak_bytes);
	jm_json_set_int(&json, "page_bytes", s->page_bytes);
	jm_json_set_int(&json, "cache_pages", s->pages);
	jm_json_set_int(&json, "cache_tokens", s->pages * JM_PAGE_TOKENS);
	jm_json_set_int(&json, "requests", requests(s));
	return json;
}
