/* SPDX-License-Identifier: Apache-2.0 */
#include "policy_plan.h"

#include "base/files/output.h"
#include "base/text/json.h"

#include <stdlib.h>
#include <string.h>

struct policy_plan {
	const json_t *policy;
	const char *device;
	char *const *command;
};

/* A double-quoted text of YAML; placeholders of plans begin with a brace. */
static void put_quoted(FILE *f, const char *text)
{
	json_t *one = json_stringn(text, strlen(text));
	char *quoted = one ? json_dumps(one, JSON_ENCODE_ANY) : NULL;

	json_decref(one);
	for (const char *c = quoted ? quoted : "\"\""; *c; c++) {
		if (*c == '{' || *c == '}')
			fputc(*c, f);
		fputc(*c, f);
	}
	free(quoted);
}

static void put_value(FILE *f, const json_t *policy, double value)
{
	const char *unit = jm_json_text(policy, "unit");
	bool hz = !strcmp(unit, "Hz");

	fprintf(f, "%.10g%s", hz ? value / 1e6 : value, hz ? "MHz" : unit);
}

static void put_command(FILE *f, const struct policy_plan *p, const char *name)
{
	fprintf(f, "  - name: %s\n    command: [", name);
	for (char *const *word = p->command; *word; word++) {
		fputs(word == p->command ? "" : ", ", f);
		put_quoted(f, *word);
	}
	fputs("]\n    set:\n", f);
}

/* Is there a phase that has a value of its own? */
static bool has_value(const json_t *phase, const json_t *policy, double *ret)
{
	const json_t *class;
	size_t i;

	json_array_foreach(json_object_get(policy, "classes"), i, class)
	{
		*ret = jm_json_real(json_object_get(class, "value"));
		if (!strcmp(jm_json_text(class, "class"), jm_json_text(phase, "class")))
			return !json_is_true(json_object_get(class, "found")) &&
			       json_integer_value(json_object_get(phase, "occurrences")) >
				       json_integer_value(json_object_get(phase, "too_short"));
	}
	return false;
}

static void put_phases(FILE *f, const json_t *policy)
{
	const json_t *phase;
	size_t i;

	json_array_foreach(json_object_get(policy, "phases"), i, phase)
	{
		char key[200];
		double value;

		if (!has_value(phase, policy, &value))
			continue;
		snprintf(key, sizeof(key), "%s/%s", jm_json_text(phase, "name"),
			jm_json_text(policy, "knob"));
		fputs("      ", f);
		put_quoted(f, key);
		fputs(": ", f);
		put_value(f, policy, value);
		fprintf(f, "  # %s\n", jm_json_text(phase, "class"));
	}
}

static bool put_plan(const void *what, FILE *f)
{
	const struct policy_plan *p = what;

	fprintf(f,
		"# Written by 'joulemark tune --per-phase': the values of %s with the least %s "
		"for\n"
		"# the phases of the command, and the best one for all phases. The reference has "
		"the "
		"setting found.\n"
		"# 'joulemark run' with the name of this file compares them.\n",
		jm_json_text(p->policy, "knob"), jm_json_text(p->policy, "objective"));
	/* the devices of this machine need no key */
	if (p->device && !strncmp(p->device, "sim:", 4))
		fprintf(f, "source: %s\ncontrol: %s\n", p->device, p->device);
	fputs("runs:\n", f);
	if (!json_is_true(json_object_get(p->policy, "one_found"))) {
		put_command(f, p, "one-value");
		fprintf(f, "      %s: ", jm_json_text(p->policy, "knob"));
		put_value(f, p->policy, jm_json_real(json_object_get(p->policy, "one")));
		fputc('\n', f);
	}
	put_command(f, p, "per-phase");
	put_phases(f, p->policy);
	return !ferror(f);
}

int jm_policy_plan_write(const char *path, const json_t *policy, const char *device,
	char *const *command, struct jm_err *err)
{
	const struct policy_plan plan = {policy, device, command};
	const json_t *phase;
	bool any = false;
	double value;
	size_t i;

	json_array_foreach(json_object_get(policy, "phases"), i, phase) any =
		any || has_value(phase, policy, &value);
	if (!any)
		return jm_err_set(err, JM_ENOENT,
			"The policy %s was not written: no phase has a value of its own. %s", path,
			jm_json_text(policy, "why"));
	return jm_output_by(path, put_plan, &plan, err);
}
