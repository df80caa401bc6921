/* SPDX-License-Identifier: Apache-2.0 */
#include "policy_plan.h"

#include "base/files/output.h"
#include "base/text/json.h"
#include "guard/control.h"

#include <stdlib.h>
#include <string.h>

struct policy_plan {
	const json_t *policy;
	const char *knob, *device;
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
	fputs("]\n", f);
}

static void put_key(FILE *f, const struct policy_plan *p, const char *phase, const json_t *value)
{
	char key[64 + 32 + JM_ID_MAX];

	snprintf(key, sizeof(key), "%s%s%s", phase ? phase : "", phase ? "/" : "", p->knob);
	fputs("      ", f);
	put_quoted(f, key);
	fputs(": ", f);
	put_value(f, p->policy, jm_json_real(value));
}

/* The values that are held; the other phases have the setting found. */
static void put_phases(FILE *f, const struct policy_plan *p)
{
	const json_t *phase;
	bool first = true;
	size_t i;

	json_array_foreach(json_object_get(p->policy, "phases"), i, phase)
	{
		if (json_is_true(json_object_get(phase, "found")))
			continue;
		fputs(first ? "    set:\n" : "", f);
		first = false;
		put_key(f, p, jm_json_text(phase, "name"), json_object_get(phase, "value"));
		fprintf(f, "  # %s\n", jm_json_text(phase, "class"));
	}
}

static bool put_plan(const void *what, FILE *f)
{
	const struct policy_plan *p = what;

	fprintf(f,
		"# Written by 'joulemark tune --per-phase': the values of %s with the least %s "
		"for\n"
		"# the phases of the command, and the best one for all phases. The reference keeps "
		"the setting from before the search.\n"
		"# 'joulemark run' with the name of this file compares them.\n",
		p->knob, jm_json_text(p->policy, "objective"));
	if (!json_is_true(json_object_get(p->policy, "held")))
		fprintf(f,
			"# No values were held, so all phases keep the setting from before the "
			"search: %s\n",
			jm_json_text(p->policy, "why"));
	/* the devices of this machine need no key */
	if (p->device && !strncmp(p->device, "sim:", 4))
		fprintf(f, "source: %s\ncontrol: %s\n", p->device, p->device);
	fputs("runs:\n", f);
	if (!json_is_true(json_object_get(p->policy, "one_found"))) {
		put_command(f, p, "one-value");
		fputs("    set:\n", f);
		put_key(f, p, NULL, json_object_get(p->policy, "one"));
		fputc('\n', f);
	}
	put_command(f, p, "per-phase");
	put_phases(f, p);
	return !ferror(f);
}

int jm_policy_plan_write(const char *path, const json_t *policy, const char *knob,
	const char *device, char *const *command, struct jm_err *err)
{
	char name[32 + JM_ID_MAX];
	const struct policy_plan plan = {policy, name, device, command};

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(knob, "="), knob);
	if (!strcmp(jm_json_text(policy, "choice"), "open"))
		return jm_err_set(err, JM_ENOENT,
			"The policy %s was not written: no phase has a value of its own. %s", path,
			jm_json_text(policy, "why"));
	return jm_output_by(path, put_plan, &plan, err);
}
