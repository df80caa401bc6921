/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor_verdict.h"

#include "cli/frame/screen.h"
#include "guard/control.h"
#include "meter/source.h"
#include "report/format/text.h"

#include <stdio.h>
#include <string.h>

/* What was found without any argument. */
struct found {
	char sources[200], estimates[200], knobs[200];
	bool node; /* a meter measures the whole machine */
};

bool jm_doctor_names(const char *names, const char *name)
{
	size_t n = strlen(name), length;

	for (; *names; names += length + strspn(names + length, ", ")) {
		length = strcspn(names, ",");
		if (length == n && !memcmp(names, name, n))
			return true;
	}
	return false;
}

static void add_name(char *names, size_t size, const char *name)
{
	if (!jm_doctor_names(names, name))
		jm_text_append(names, size, ", ", name);
}

static void add_meter(struct found *f, const struct jm_source *source, const struct jm_meter *m)
{
	if (m->scope == JM_SCOPE_CONTEXT)
		return;
	if (m->origin == JM_MEASURED) {
		add_name(f->sources, sizeof(f->sources), source->name);
		f->node = f->node || m->scope == JM_SCOPE_NODE;
	} else {
		add_name(f->estimates, sizeof(f->estimates), source->name);
	}
}

static void try_sources(struct jm_ctx *ctx, const char *stuck, struct found *f)
{
	for (int i = 0; jm_sources[i]; i++) {
		const struct jm_source *source = jm_sources[i];
		struct jm_meters set = {0};
		struct jm_err err = JM_ERR_INIT;
		void *state;

		if (source->on_request || source->origin == JM_SIMULATED ||
			!strcmp(source->name, "null") || jm_doctor_names(stuck, source->name))
			continue;
		if (!jm_source_open(source, ctx, "", &set, &state, &err)) {
			for (int k = 0; k < set.n; k++)
				add_meter(f, source, &set.meter[k]);
			source->close(state);
		}
		jm_meters_done(&set);
	}
}

static void try_controls(struct jm_ctx *ctx, const char *stuck, struct found *f)
{
	for (int i = 0; jm_controls[i]; i++) {
		const struct jm_control *control = jm_controls[i];
		struct jm_knobs set = {0};
		struct jm_err err = JM_ERR_INIT;
		void *state;

		if (control->origin == JM_SIMULATED || jm_doctor_names(stuck, control->name))
			continue;
		if (!control->open(ctx, "", &set, &state, &err)) {
			for (int k = 0; k < set.n; k++)
				add_name(f->knobs, sizeof(f->knobs), set.knob[k].name);
			control->close(state);
		}
		jm_knobs_done(&set);
	}
}

static void print_power(struct jm_cli *cli, const struct found *f, bool broken)
{
	char text[900];

	if (*f->sources)
		snprintf(text, sizeof(text),
			"Power is measured here by %s%s. Next: 'joulemark measure COMMAND'.",
			f->sources,
			f->node ? ", of the whole machine"
				: "; what these meters do not cover (fans, boards, losses of the "
				  "power supply) is not measured");
	else
		snprintf(text, sizeof(text),
			"%s here: no sensor of this machine can be read. Next: %s'joulemark "
			"measure COMMAND' for the estimate; --source for a power meter or PDU on "
			"the network, as in snmp:host=pdu1,kind=apc; 'joulemark run sim --device "
			"sim:h100x4' for a simulated node.",
			*f->estimates ? "Estimates only" : "Nothing is measured or estimated",
			broken ? "the remedies above; " : "");
	jm_text_wrap(cli->out, text, 2, 2, cli->width);
}

static void print_settings(struct jm_cli *cli, const struct found *f)
{
	char text[400];

	if (*f->knobs)
		snprintf(text, sizeof(text),
			"Settings of this machine: %s. 'joulemark get' shows their values and "
			"ranges.",
			f->knobs);
	else
		snprintf(text, sizeof(text),
			"No setting of this machine can be changed; those of a simulated node "
			"can.");
	jm_text_wrap(cli->out, text, 2, 2, cli->width);
}

void jm_doctor_verdict(struct jm_cli *cli, bool broken, const char *stuck)
{
	struct found f = {0};

	try_sources(&cli->ctx, stuck, &f);
	try_controls(&cli->ctx, stuck, &f);
	fprintf(cli->out, "%sVerdict%s\n", jm_screen_code(cli->colour, JM_BOLD),
		jm_screen_code(cli->colour, JM_PLAIN));
	print_power(cli, &f, broken);
	print_settings(cli, &f);
}
