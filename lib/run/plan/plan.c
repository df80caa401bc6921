/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to the cases of a block, and the order of the blocks. */
#include "plan.h"

#include "base/text/keys.h"
#include "guard/setting.h"
#include "measure/command/item_kind.h"
#include "meter/meter.h"
#include "result/record.h"
#include "repeat_until.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CASES 100000
#define ID_BYTES  (JM_ID_MAX - 1)

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the plan.");
}

/* The name that a setting has among a case's parameters: "gpu.power", "decode/gpu.power@GPU-8f". */
static void setting_name(const json_t *axis, char *out, size_t size)
{
	const char *selector = jm_json_text(axis, "selector"), *phase = jm_json_text(axis, "phase");

	snprintf(out, size, "%s%s%s%s%s", phase, *phase ? "/" : "", jm_json_text(axis, "knob"),
		*selector ? "@" : "", selector);
}

bool jm_plan_other_node(const json_t *parameters, const char *device)
{
	const char *node = json_string_value(json_object_get(parameters, "device"));

	if (!node || !jm_case_simulated(node) || !jm_case_simulated(device))
		return false;
	return strncmp(device, node, strlen(node)) != 0 || device[strlen(node)] != '/';
}

/* Is the value the one found on every device of the axis that the case runs on? */
static bool is_as_found(
	const json_t *found, const json_t *axis, const json_t *parameters, const char *value)
{
	const char *knob = json_string_value(json_object_get(axis, "knob"));
	const char *selector = json_string_value(json_object_get(axis, "selector"));
	const json_t *one;
	size_t i;
	bool any = false;

	json_array_foreach(found, i, one)
	{
		const char *device = json_string_value(json_object_get(one, "device"));
		const char *was = json_string_value(json_object_get(one, "value"));

		if (strcmp(json_string_value(json_object_get(one, "knob")), knob) != 0)
			continue;
		if ((selector && !jm_selector_means(selector, device)) ||
			jm_plan_other_node(parameters, device))
			continue;
		if (!was || strcmp(was, value) != 0)
			return false;
		any = true;
	}
	return any;
}

static int add_case(struct jm_plan *plan, json_t *parameters, bool reference, struct jm_err *err)
{
	struct jm_plan_case *grown;

	if (plan->n >= MAX_CASES)
		return jm_err_set(err, JM_ERANGE,
			"The plan has more than %d cases; sweep fewer values.", MAX_CASES);
	grown = reallocarray(plan->cases, (size_t)plan->n + 1, sizeof(*grown));
	if (!grown)
		return no_memory(err);
	plan->cases = grown;
	grown += plan->n;
	grown->reference = reference;
	grown->parameters = json_deep_copy(parameters);
	if (!grown->parameters)
		return no_memory(err);
	plan->n++;
	return jm_json_hash(grown->parameters, grown->id, err);
}

json_t *jm_plan_part(const json_t *what, size_t i)
{
	json_t *parts = json_object_get(what, "parts");

	if (parts)
		return json_array_get(parts, i);
	return i ? NULL : (json_t *)(uintptr_t)what;
}

struct expansion {
	struct jm_plan *plan;
	const json_t *what, *found;
	json_t *parameters; /* of the case that is being made */
	bool have_reference;
};

/* Does one of the plan's exclusions name all of these settings? */
static bool is_excluded(const json_t *what, const json_t *settings)
{
	const json_t *one, *text;
	size_t i, k;

	json_array_foreach(json_object_get(what, "exclude"), i, one)
	{
		json_t *names = json_object_get(one, "settings"), *texts;
		bool all = true;
		const char *name;

		json_object_foreach(names, name, texts)
		{
			bool any = false;

			json_array_foreach(texts, k, text)
			{
				any = any || json_equal(text, json_object_get(settings, name));
			}
			all = all && any;
		}
		if (all)
			return true;
	}
	return false;
}

/* Expands the settings from axis i on; as_found: do all those before it equal the values found? */
static int expand_settings(struct expansion *x, size_t i, bool as_found, struct jm_err *err)
{
	const json_t *axes = json_object_get(x->what, "settings"), *value;
	const json_t *axis = json_array_get(axes, i);
	json_t *settings = json_object_get(x->parameters, "settings");
	char name[256];
	size_t k;
	int rc = 0;

	if (i == json_array_size(axes)) {
		bool reference = as_found && i && !x->have_reference;

		if (is_excluded(x->what, settings))
			return 0;
		x->have_reference |= reference;
		return add_case(x->plan, x->parameters, reference, err);
	}
	setting_name(axis, name, sizeof(name));
	json_array_foreach(json_object_get(axis, "values"), k, value)
	{
		const char *text = json_string_value(value);

		if (json_object_set_new(settings, name, json_string(text)))
			return no_memory(err);
		rc = expand_settings(x, i + 1,
			as_found && is_as_found(x->found, axis, x->parameters, text), err);
		if (rc)
			break;
	}
	json_object_del(settings, name);
	return rc;
}

/* The reference, if no point of the sweep equals it. */
static int add_as_found(struct expansion *x, struct jm_err *err)
{
	const json_t *axis;
	json_t *settings = json_object_get(x->parameters, "settings");
	char name[256];
	size_t i;
	int rc;

	json_array_foreach(json_object_get(x->what, "settings"), i, axis)
	{
		setting_name(axis, name, sizeof(name));
		if (json_object_set_new(settings, name, json_string(JM_AS_FOUND)))
			return no_memory(err);
	}
	rc = add_case(x->plan, x->parameters, true, err);
	json_object_clear(settings);
	return rc;
}

static int expand_point(struct expansion *x, struct jm_err *err)
{
	bool swept = json_array_size(json_object_get(x->what, "settings")) > 0;
	int rc;

	x->have_reference = false;
	rc = expand_settings(x, 0, true, err);
	if (rc || !swept || x->have_reference)
		return rc;
	return add_as_found(x, err);
}

/* The axes besides settings: device, precision, then the options by name. */
static int expand_options(struct expansion *x, void *iter, struct jm_err *err)
{
	json_t *options = json_object_get(x->parameters, "options");
	json_t *all = json_object_get(x->what, "options");
	const char *name;
	const json_t *value;
	size_t k;
	int rc = 0;

	if (!iter)
		return expand_point(x, err);
	name = json_object_iter_key(iter);
	json_array_foreach(json_object_iter_value(iter), k, value)
	{
		if (json_object_set(options, name, (json_t *)value))
			return no_memory(err);
		rc = expand_options(x, json_object_iter_next(all, iter), err);
		if (rc)
			break;
	}
	return rc;
}

static int expand_list(struct expansion *x, int which, struct jm_err *err)
{
	static const char *const lists[] = {"device", "precision"};
	const json_t *list, *value;
	size_t k;
	int rc = 0;

	if (which == 2)
		return expand_options(
			x, json_object_iter(json_object_get(x->what, "options")), err);
	list = json_object_get(x->what, lists[which]);
	if (!list)
		return expand_list(x, which + 1, err);
	json_array_foreach(list, k, value)
	{
		if (json_object_set(x->parameters, lists[which], (json_t *)value))
			return no_memory(err);
		rc = expand_list(x, which + 1, err);
		if (rc)
			break;
	}
	return rc;
}

/* Copies the parameters that all cases of a part share. */
static int expand_part(struct jm_plan *plan, const json_t *what, struct jm_err *err)
{
	static const char *const shared[] = {"workload", "command", "environment", "throughput",
		"warmup", "steps", "seconds", "epochs", "epoch_steps"};
	struct expansion x = {.plan = plan,
		.what = what,
		.found = json_object_get(plan->request, "found"),
		.parameters = json_pack("{s:{}, s:{}}", "options", "settings")};
	int rc = 0;

	if (!x.parameters)
		return no_memory(err);
	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
		json_t *value = json_object_get(x.what, shared[i]);

		if (value && json_object_set(x.parameters, shared[i], value))
			rc = no_memory(err);
	}
	if (!rc)
		rc = expand_list(&x, 0, err);
	json_decref(x.parameters);
	return rc;
}

static int expand(struct jm_plan *plan, struct jm_err *err)
{
	const json_t *what = json_object_get(plan->request, "what"), *part;
	int rc = 0;

	for (size_t i = 0; !rc && (part = jm_plan_part(what, i)); i++)
		rc = expand_part(plan, part, err);
	if (!rc && !plan->n)
		rc = jm_err_set(err, JM_EUSAGE,
			"The plan has no case: every combination is excluded; remove a row of "
			"'exclude'.");
	return rc;
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two cases of a plan with the same parameters would be the same record. */
static int find_prefix(struct jm_plan *plan, struct jm_err *err)
{
	const char **ids = calloc((size_t)plan->n + 1, sizeof(*ids));
	int rc = 0;

	if (!ids)
		return no_memory(err);
	for (int i = 0; i < plan->n; i++)
		ids[i] = plan->cases[i].id;
	qsort(ids, (size_t)plan->n, sizeof(*ids), compare_ids);
	plan->prefix = 4;
	for (int i = 1; i < plan->n && !rc; i++) {
		if (!strcmp(ids[i - 1], ids[i]))
			rc = jm_err_set(err, JM_EUSAGE,
				"Two cases of the plan are equal (%.8s): a value is given twice, "
				"or no key uses a variable that has several values; remove that "
				"value or variable.",
				ids[i]);
		while (plan->prefix < JM_CASE_ID - 1 &&
			!strncmp(ids[i - 1], ids[i], (size_t)plan->prefix))
			plan->prefix++;
	}
	free(ids);
	return rc;
}

/* A request may come from a damaged store, or from one that another program wrote. */
static const struct jm_key axis_keys[] = {
	{.name = "knob",
		.type = JM_KEY_TEXT,
		.flags = JM_KEY_REQUIRED | JM_KEY_NOT_EMPTY,
		.max = 31},
	{.name = "selector", .type = JM_KEY_TEXT, .max = ID_BYTES},
	{.name = "phase", .type = JM_KEY_TEXT, .max = JM_PHASE_NAME - 1},
	{.name = "unit", .type = JM_KEY_TEXT, .max = 7},
	{.name = "values", .type = JM_KEY_TEXTS, .flags = JM_KEY_REQUIRED | JM_KEY_NOT_EMPTY},
	{0},
};

static const struct jm_key found_keys[] = {
	{.name = "knob", .type = JM_KEY_TEXT, .flags = JM_KEY_REQUIRED, .max = 31},
	{.name = "device", .type = JM_KEY_TEXT, .flags = JM_KEY_REQUIRED, .max = ID_BYTES},
	{.name = "unit", .type = JM_KEY_TEXT, .max = 7},
	{.name = "value", .type = JM_KEY_TEXT, .flags = JM_KEY_NULL, .max = 63},
	{0},
};

static const struct jm_key throughput_keys[] = {
	{.name = "regex", .type = JM_KEY_TEXT},
	{.name = "json", .type = JM_KEY_TEXT},
	{.name = "kind", .type = JM_KEY_WORD, .words = jm_item_kind_names},
	{.name = "unit", .type = JM_KEY_TEXT},
	{0},
};

static const struct jm_key exclude_keys[] = {
	{.name = "settings", .type = JM_KEY_LISTS, .flags = JM_KEY_REQUIRED},
	{0},
};

static const struct jm_key part_keys[] = {
	{.name = "workload", .type = JM_KEY_TEXT, .flags = JM_KEY_NOT_EMPTY},
	{.name = "command", .type = JM_KEY_TEXTS, .flags = JM_KEY_NOT_EMPTY},
	{.name = "environment", .type = JM_KEY_OBJECT},
	{.name = "throughput", .type = JM_KEY_OBJECT, .keys = throughput_keys},
	{.name = "device", .type = JM_KEY_TEXTS, .flags = JM_KEY_NOT_EMPTY},
	{.name = "precision", .type = JM_KEY_TEXTS, .flags = JM_KEY_NOT_EMPTY},
	{.name = "options", .type = JM_KEY_LISTS},
	{.name = "settings", .type = JM_KEY_LIST, .keys = axis_keys},
	{.name = "exclude", .type = JM_KEY_LIST, .keys = exclude_keys},
	{.name = "warmup", .type = JM_KEY_TEXT, .max = 63},
	{.name = "steps", .type = JM_KEY_INTEGER, .min = 1, .max = 1e9},
	{.name = "seconds", .type = JM_KEY_NUMBER, .min = 0.001, .max = 1e7},
	{.name = "epochs", .type = JM_KEY_INTEGER, .min = 1, .max = 1e6},
	{.name = "epoch_steps", .type = JM_KEY_INTEGER, .min = 1, .max = 1e9},
	{0},
};

static const struct jm_key parts_keys[] = {
	{.name = "parts",
		.type = JM_KEY_LIST,
		.flags = JM_KEY_REQUIRED | JM_KEY_NOT_EMPTY,
		.max = MAX_CASES,
		.keys = part_keys},
	{0},
};

static const struct jm_key run_keys[] = {
	{.name = "run", .type = JM_KEY_TEXT, .max = 63},
	{.name = "tags", .type = JM_KEY_TEXTS, .flags = JM_KEY_NOT_EMPTY},
	{.name = "template", .type = JM_KEY_TEXTS, .flags = JM_KEY_NOT_EMPTY},
	{0},
};

static const char *const order_words[] = {"random", "given", NULL};

#define RETRIES(name, word, text) {word, JM_KEY_INTEGER, .min = 0, .max = 100},
static const struct jm_key retries_keys[] = {JM_FAILURES(RETRIES){0}};

static const struct jm_key how_keys[] = {
	{.name = "sources", .type = JM_KEY_TEXTS},
	{.name = "control", .type = JM_KEY_TEXT},
	{.name = "interval_s", .type = JM_KEY_NUMBER, .min = 0.0001, .max = 60},
	{.name = "timeout_s", .type = JM_KEY_NUMBER, .min = 0.01, .max = 1e7},
	{.name = "selftest_s", .type = JM_KEY_NUMBER, .min = 0, .max = 3600},
	{.name = "steady_s", .type = JM_KEY_NUMBER, .min = 1, .max = 1e5},
	{.name = "real_time", .type = JM_KEY_FLAG},
	{.name = "until_interval", .type = JM_KEY_NUMBER, .min = 1e-6, .max = 1},
	{.name = "max_repeat", .type = JM_KEY_INTEGER, .min = 1, .max = 10000},
	{.name = "idle_gpus", .type = JM_KEY_FLAG},
	{.name = "add_watts", .type = JM_KEY_NUMBER, .min = 0, .max = 1e6},
	{.name = "cooldown_s", .type = JM_KEY_NUMBER, .min = 0, .max = 1e5},
	{.name = "order", .type = JM_KEY_WORD, .words = order_words},
	{.name = "retries", .type = JM_KEY_OBJECT, .keys = retries_keys},
	{0},
};

#define REQUEST_KEYS(keys_of_what)                                                                 \
	{.name = "what", .type = JM_KEY_OBJECT, .flags = JM_KEY_REQUIRED, .keys = (keys_of_what)}, \
		{.name = "found", .type = JM_KEY_LIST, .keys = found_keys},                        \
		{.name = "how", .type = JM_KEY_OBJECT, .keys = how_keys},                          \
		{.name = "run", .type = JM_KEY_OBJECT, .keys = run_keys},                          \
		{.name = "repeat",                                                                 \
			.type = JM_KEY_INTEGER,                                                    \
			.flags = JM_KEY_REQUIRED,                                                  \
			.min = 1,                                                                  \
			.max = 10000},                                                             \
		{.name = "seed",                                                                   \
			.type = JM_KEY_INTEGER,                                                    \
			.flags = JM_KEY_REQUIRED,                                                  \
			.min = 0,                                                                  \
			.max = 9e15},                                                              \
	{                                                                                          \
		0                                                                                  \
	}

static const struct jm_key request_keys[] = {REQUEST_KEYS(part_keys)};
static const struct jm_key request_of_parts_keys[] = {REQUEST_KEYS(parts_keys)};

static int check_part(const json_t *work, const char *what, struct jm_err *err)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach(json_object_get(work, "environment"), name, value)
	{
		if (!rc && !json_is_string(value))
			rc = jm_err_set(err, JM_EFORMAT,
				"The content of %s is damaged, or is not joulemark's: "
				"environment.%s is not a text.",
				what, name);
	}
	if (!rc && !json_object_get(work, "workload") == !json_object_get(work, "command"))
		rc = jm_err_set(err, JM_EFORMAT,
			"The content of %s is damaged, or is not joulemark's: either a workload or "
			"a command belongs there.",
			what);
	if (!rc && json_object_get(work, "command") &&
		(json_object_get(work, "device") || json_object_get(work, "precision")))
		rc = jm_err_set(err, JM_EFORMAT,
			"The content of %s has a device or a precision for an outside command, "
			"which chooses both by itself; remove them.",
			what);
	return rc;
}

int jm_plan_check(const json_t *request, const char *what, struct jm_err *err)
{
	const json_t *work = json_object_get(request, "what"), *part;
	bool parts = json_object_get(work, "parts") != NULL;
	int rc = jm_keys_check(parts ? request_of_parts_keys : request_keys, request, what, err);

	for (size_t i = 0; !rc && (part = jm_plan_part(work, i)); i++)
		rc = check_part(part, what, err);
	return rc;
}

static void take_how(struct jm_plan *plan, const json_t *how)
{
	const char *order = json_string_value(json_object_get(how, "order"));
	int most = (int)json_integer_value(json_object_get(how, "max_repeat"));

	plan->least_repeat = plan->repeat;
	plan->until = json_number_value(json_object_get(how, "until_interval"));
	plan->cooldown_s = json_number_value(json_object_get(how, "cooldown_s"));
	plan->in_order = order && !strcmp(order, "given");
	if (plan->until > 0) {
		if (plan->least_repeat < JM_UNTIL_LEAST)
			plan->least_repeat = JM_UNTIL_LEAST;
		plan->repeat = most > plan->least_repeat ? most : plan->least_repeat;
	}
}

int jm_plan_new(const json_t *request, struct jm_plan *ret, struct jm_err *err)
{
	struct jm_plan plan = {.request = NULL};
	int rc = jm_plan_check(request, "the plan", err);

	if (rc)
		return rc;
	plan.request = json_deep_copy(request);
	if (!plan.request)
		return no_memory(err);
	plan.repeat = (int)json_integer_value(json_object_get(request, "repeat"));
	plan.seed = (uint64_t)json_integer_value(json_object_get(request, "seed"));
	take_how(&plan, json_object_get(request, "how"));
	rc = jm_json_hash(json_object_get(request, "what"), plan.key, err);
	if (!rc)
		rc = expand(&plan, err);
	if (!rc)
		rc = find_prefix(&plan, err);
	if (rc)
		jm_plan_done(&plan);
	else
		*ret = plan;
	return rc;
}

void jm_plan_done(struct jm_plan *plan)
{
	for (int i = 0; i < plan->n; i++)
		json_decref(plan->cases[i].parameters);
	free(plan->cases);
	json_decref(plan->request);
	*plan = (struct jm_plan){0};
}

/* SplitMix64, Steele, Lea and Flood, OOPSLA 2014 (doi:10.1145/2660193.2660195) */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

void jm_plan_order(const struct jm_plan *plan, int block, int *ret_order)
{
	uint64_t state = plan->seed, mixed;

	mixed = next_random(&state) + (uint64_t)block;
	for (int i = 0; i < plan->n; i++) {
		int k = plan->in_order ? i : (int)(next_random(&mixed) % (uint64_t)(i + 1));

		ret_order[i] = i;
		ret_order[i] = ret_order[k];
		ret_order[k] = i;
	}
}

uint64_t jm_plan_seed(const struct jm_plan *plan, int repeat)
{
	return plan->seed + (uint64_t)(repeat - 1);
}
