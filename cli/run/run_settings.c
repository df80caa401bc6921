/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a request: what --set says, read with the knobs that there are. */
#include "run_settings.h"
#include "cli/settings/set_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int no_memory(struct jm_cli *cli)
{
	return jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the plan.");
}

static int check_twice(
	struct jm_cli *cli, const json_t *settings, const struct jm_axis *axis, const char *phase)
{
	const json_t *other;
	size_t i;

	json_array_foreach(settings, i, other)
	{
		if (!strcmp(json_string_value(json_object_get(other, "knob")), axis->knob) &&
			!strcmp(json_string_value(json_object_get(other, "selector")),
				axis->selector) &&
			!strcmp(jm_json_text(other, "phase"), phase))
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--set %s%s%s is given twice; write its values in one list.", phase,
				*phase ? "/" : "", axis->knob);
	}
	return 0;
}

/* The knobs of simulated nodes are those of the case's node; the machine's are the same for all
 * devices. */
static int check_devices(struct jm_cli *cli, const json_t *devices)
{
	const json_t *device;
	size_t i, simulated = 0;

	json_array_foreach(devices, i, device)
	{
		simulated += jm_case_simulated(json_string_value(device));
	}
	if (!simulated || simulated == json_array_size(devices))
		return 0;
	return jm_err_set(&cli->err, JM_EUSAGE,
		"--set cannot sweep simulated nodes and real devices in one plan; give --device "
		"either simulated nodes or real devices.");
}

static bool is_one_of(const char *word, const char *const *words)
{
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words;
}

/* "decode" of decode/gpu.power=300W; "" = none. A workload has its phases, a command those that it
 * marks. */
static int read_phase(
	struct jm_cli *cli, const json_t *what, const char *text, char *out, size_t size)
{
	static const char *const of_work[] = {"warmup", "steady", "verify", NULL};
	static const char *const whole[] = {"command", "marked", "settle", NULL};
	const char *knob = jm_case_knob(text, out, size);
	size_t n = (size_t)(knob - text);

	if (!n)
		return 0;
	if (n == 1 || n > size)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--set %.80s: the name of a phase, before the slash, has 1 to %zu bytes.",
			text, size - 1);
	if (json_object_get(what, "workload") && !is_one_of(out, of_work))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--set %.80s: a workload has no phase '%s'; it has warmup, steady and "
			"verify.",
			text, out);
	if (!json_object_get(what, "workload") && is_one_of(out, whole))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--set %.80s: '%s' is not a phase that a command marks; write %s for the "
			"whole command, or the name that 'joulemark mark' is given.",
			text, out, knob);
	return 0;
}

static int add_axis(struct jm_cli *cli, const struct jm_knobs *knobs, const json_t *what,
	const char *text, json_t *settings)
{
	char phase[JM_PHASE_NAME];
	struct jm_axis axis;
	int rc = read_phase(cli, what, text, phase, sizeof(phase));

	if (!rc)
		rc = jm_axis_parse(jm_case_knob(text, NULL, 0), knobs, &axis, &cli->err);
	if (rc)
		return rc;
	rc = check_twice(cli, settings, &axis, phase);
	if (!rc && json_array_append_new(settings, jm_set_axis_json(&axis, phase)))
		rc = no_memory(cli);
	jm_axis_done(&axis);
	return rc;
}

static int add_axes(struct jm_cli *cli, const struct jm_knobs *knobs, const json_t *what,
	const json_t *set, json_t *settings)
{
	const json_t *text;
	size_t i;
	int rc = 0;

	json_array_foreach(set, i, text)
	{
		if (!rc)
			rc = add_axis(cli, knobs, what, json_string_value(text), settings);
	}
	return rc;
}

/* One name of an exclusion, {"gpu.power": ["300", "0.4kW"]}, in the words of the settings. */
static int exclude_setting(struct jm_cli *cli, const struct jm_knobs *knobs, const char *name,
	const json_t *texts, json_t *ret)
{
	const json_t *text;
	json_t *values = json_array();
	size_t i;
	int rc = json_object_set_new(ret, name, values) ? no_memory(cli) : 0;

	json_array_foreach(texts, i, text)
	{
		char line[400];
		struct jm_axis axis;
		json_t *one;

		snprintf(line, sizeof(line), "%s=%s", jm_case_knob(name, NULL, 0),
			json_string_value(text));
		if (!rc)
			rc = jm_axis_parse(line, knobs, &axis, &cli->err);
		if (rc)
			return rc;
		one = jm_set_axis_json(&axis, "");
		jm_axis_done(&axis);
		if (json_array_extend(values, json_object_get(one, "values")))
			rc = no_memory(cli);
		json_decref(one);
	}
	return rc;
}

static int add_exclusions(
	struct jm_cli *cli, const struct jm_knobs *knobs, const json_t *exclude, json_t *what)
{
	json_t *list = json_array(), *one;
	size_t i;
	int rc = json_object_set_new(what, "exclude", list) ? no_memory(cli) : 0;

	json_array_foreach((json_t *)(uintptr_t)exclude, i, one)
	{
		json_t *settings = json_object(), *texts;
		const char *name;

		if (!rc && json_array_append_new(list, json_pack("{s:o}", "settings", settings)))
			rc = no_memory(cli);
		json_object_foreach(one, name, texts)
		{
			if (!rc)
				rc = exclude_setting(cli, knobs, name, texts, settings);
		}
	}
	return rc;
}

static int add_settings(struct jm_cli *cli, const struct jm_knobs *knobs, json_t *what)
{
	json_t *settings = json_array(), *set = json_incref(json_object_get(what, "set"));
	json_t *exclude = json_incref(json_object_get(what, "exclude"));
	int rc = json_object_set_new(what, "settings", settings) ? no_memory(cli) : 0;

	if (!rc)
		rc = check_devices(cli, json_object_get(what, "device"));
	if (!rc)
		rc = add_axes(cli, knobs, what, set, settings);
	if (!rc && exclude)
		rc = add_exclusions(cli, knobs, exclude, what);
	json_object_del(what, "set");
	json_decref(set);
	json_decref(exclude);
	return rc;
}

int jm_run_request_settings(struct jm_cli *cli, const struct jm_knobs *knobs, json_t *request)
{
	json_t *what = json_object_get(request, "what"), *part;
	int rc = 0;

	for (size_t i = 0; !rc && (part = jm_plan_part(what, i)); i++)
		if (json_object_get(part, "set"))
			rc = add_settings(cli, knobs, part);
	return rc;
}

/* "W" of gpu.power=200:700+100W: the letters at the end, in the base unit. */
static const char *unit_of(const char *text)
{
	static const char *const units[][2] = {
		{"W", "W"}, {"kW", "W"}, {"Hz", "Hz"}, {"kHz", "Hz"}, {"MHz", "Hz"}, {"GHz", "Hz"}};
	size_t n = strlen(text), letters = 0;

	while (letters < n && !strchr("0123456789.,:=+*", text[n - 1 - letters]))
		letters++;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(text + n - letters, units[i][0]))
			return units[i][1];
	return "";
}

/* The words among the values of a setting, which its knob may have as choices. */
static void assume_words(const char *text, char *out, size_t size)
{
	const char *at = strchr(text, '=');
	size_t used = 0;

	for (at = at ? at + 1 : ""; *at; at += strcspn(at, ","), at += *at == ',')
		if (islower((unsigned char)*at) && used < size)
			used += (size_t)snprintf(out + used, size - used, "%s%.*s", used ? " " : "",
				(int)strcspn(at, ","), at);
}

/* text: NULL = no knob */
static int assume_knob(const char *text, struct jm_knobs *knobs, struct jm_err *err)
{
	struct jm_knob knob = {.min = -INFINITY,
		.max = INFINITY,
		.fallback = jm_knob_value_of(0),
		.kind = JM_KNOB_RANGE,
		.unlockable = true};
	size_t n;

	if (!text)
		return 0;
	text = jm_case_knob(text, NULL, 0);
	n = strcspn(text, "@=");
	memcpy(knob.name, text, n < sizeof(knob.name) ? n : sizeof(knob.name) - 1);
	snprintf(knob.unit, sizeof(knob.unit), "%s", unit_of(text));
	if (text[n] == '@')
		snprintf(knob.device, sizeof(knob.device), "%.*s", (int)strcspn(text + n + 1, "="),
			text + n + 1);
	assume_words(text, knob.choices, sizeof(knob.choices));
	return jm_knobs_add(knobs, &knob, err) < 0 ? err->code : 0;
}

int jm_run_assume_knobs(const json_t *request, struct jm_knobs *ret, struct jm_err *err)
{
	const json_t *what = json_object_get(request, "what"), *part, *text;
	size_t i;
	int rc = 0;

	for (size_t k = 0; (part = jm_plan_part(what, k)); k++)
		json_array_foreach(json_object_get(part, "set"), i, text)
		{
			if (!rc)
				rc = assume_knob(json_string_value(text), ret, err);
		}
	return rc;
}

bool jm_run_request_sets(const json_t *request, const char *key)
{
	const json_t *what = json_object_get(request, "what"), *part;
	bool any = false;

	for (size_t i = 0; (part = jm_plan_part(what, i)); i++)
		any = any || json_array_size(json_object_get(part, key));
	return any;
}

static bool is_named(const char *list, const char *word)
{
	const char *at = strstr(list, word);
	size_t n = strlen(word);

	return at && (at == list || at[-1] == ',') && (!at[n] || at[n] == ',');
}

const char *jm_run_controls(const char *control, const json_t *request, char *out, size_t size)
{
	const json_t *what = json_object_get(request, "what"), *part, *device;
	size_t i, used = 0;

	*out = '\0';
	if (!control)
		control = json_string_value(
			json_object_get(json_object_get(request, "how"), "control"));
	if (control)
		return control;
	for (size_t k = 0; (part = jm_plan_part(what, k)); k++)
		json_array_foreach(json_object_get(part, "device"), i, device)
		{
			const char *name = json_string_value(device);

			if (jm_case_simulated(name) && used < size && !is_named(out, name))
				used += (size_t)snprintf(
					out + used, size - used, "%s%s", used ? "," : "", name);
		}
	return used ? out : NULL;
}
