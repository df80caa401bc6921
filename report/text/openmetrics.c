/* SPDX-License-Identifier: Apache-2.0 */
#include "openmetrics.h"
#include "base/files/output.h"
#include "base/printable.h"
#include "base/text/json.h"
#include "phases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LABELS 16

/* ---- the format ---- */

static void put_escaped(FILE *out, const char *text)
{
	char *tame = strdup(text);

	if (tame)
		jm_text_tame_lines(tame);
	for (const char *c = tame ? tame : ""; *c; c++) {
		if (*c == '\n')
			fputs("\\n", out);
		else if (*c == '"' || *c == '\\')
			fprintf(out, "\\%c", *c);
		else
			fputc(*c, out);
	}
	free(tame);
}

void jm_openmetrics_family(struct jm_openmetrics *o, const char *name, bool counter,
	const char *unit, const char *help)
{
	/* the older format has no families: a counter's family has the name of its samples */
	const char *tail = o->classic && counter ? "_total" : "";

	o->name = name;
	o->counter = counter;
	fprintf(o->out, "# HELP %s%s %s\n", name, tail, help);
	fprintf(o->out, "# TYPE %s%s %s\n", name, tail, counter ? "counter" : "gauge");
	if (!o->classic && *unit)
		fprintf(o->out, "# UNIT %s %s\n", name, unit);
}

void jm_openmetrics_sample(
	struct jm_openmetrics *o, const struct jm_metric_label *label, int n, double value)
{
	const char *before = "{";

	if (!isfinite(value))
		return;
	fprintf(o->out, "%s%s", o->name, o->counter ? "_total" : "");
	for (int i = 0; i < n; i++) {
		if (!*label[i].value)
			continue;
		fprintf(o->out, "%s%s=\"", before, label[i].name);
		put_escaped(o->out, label[i].value);
		fputc('"', o->out);
		before = ",";
	}
	fprintf(o->out, "%s %.15g\n", *before == ',' ? "}" : "", value);
}

void jm_openmetrics_end(struct jm_openmetrics *o)
{
	if (!o->classic)
		fputs("# EOF\n", o->out);
}

/* ---- records ---- */

struct family {
	const char *name;
	bool counter;
	const char *unit, *help;
	const char *key;   /* of a meter of a phase; NULL = of the phase itself */
	const char *of;	   /* key of the phase */
	const char *until; /* the value is the difference of two keys */
};

static const struct family families[] = {
	{"joulemark_energy_joules", true, "joules",
		"Energy that a meter measured in a phase; do not add meters with covered_by.",
		"joules", NULL, NULL},
	{"joulemark_energy_uncertainty_joules", false, "joules",
		"Uncertainty of that energy (95 %).", "error_joules", NULL, NULL},
	{"joulemark_power_mean_watts", false, "watts", "Mean power of a meter in a phase.",
		"watts_mean", NULL, NULL},
	{"joulemark_phase_duration_seconds", false, "seconds", "Length of a phase.", NULL,
		"start_s", "end_s"},
	{"joulemark_items", true, "", "Items that were done in a phase.", NULL, "items", NULL},
};

/* Adds the labels that distinguish this record from others; returns their number. */
static int label_record(
	const json_t *record, struct jm_metric_label *label, char *repeat, size_t size)
{
	const json_t *of_case = json_object_get(record, "case");
	json_int_t number = json_integer_value(json_object_get(of_case, "repeat"));
	const struct jm_metric_label own[] = {
		{"case", jm_json_text(of_case, "id")},
		{"repeat", repeat},
		{"started", jm_json_text(record, "started")},
		{"unit", jm_json_text(record, "unit")},
	};

	snprintf(repeat, size, "%lld", (long long)number);
	if (!number)
		*repeat = '\0';
	memcpy(label, own, sizeof(own));
	return (int)(sizeof(own) / sizeof(own[0]));
}

static void put_meters(struct jm_openmetrics *o, const struct family *f, const json_t *record,
	const json_t *phase, struct jm_metric_label *label, int n)
{
	const json_t *meter;
	size_t i;

	json_array_foreach(json_object_get(phase, "meters"), i, meter)
	{
		const json_t *about = jm_phases_meter(record, jm_json_text(meter, "id"));
		const struct jm_metric_label own[] = {
			{"meter", jm_json_text(meter, "id")},
			{"label", jm_json_text(about, "label")},
			{"device", jm_json_text(about, "device")},
			{"scope", jm_json_text(about, "scope")},
			{"origin", jm_json_text(about, "origin")},
			{"covered_by", jm_json_text(about, "covered_by")},
		};

		memcpy(label + n, own, sizeof(own));
		jm_openmetrics_sample(o, label, n + (int)(sizeof(own) / sizeof(own[0])),
			jm_json_real_of(meter, f->key));
	}
}

/* A phase that occurs several times in a record, as marks make it, has a number from its second
 * time on. */
static int nth(const json_t *phases, size_t index)
{
	const char *name = jm_json_text(json_array_get(phases, index), "name");
	int n = 1;

	for (size_t i = 0; i < index; i++)
		n += !strcmp(jm_json_text(json_array_get(phases, i), "name"), name);
	return n;
}

static void put_record(struct jm_openmetrics *o, const struct family *f, const json_t *record)
{
	struct jm_metric_label label[MAX_LABELS];
	char repeat[32], time[32];
	int n = label_record(record, label, repeat, sizeof(repeat));
	const json_t *phases = json_object_get(record, "phases"), *phase;
	size_t i;

	json_array_foreach(phases, i, phase)
	{
		int number = nth(phases, i);

		snprintf(time, sizeof(time), "%d", number);
		label[n] = (struct jm_metric_label){"phase", jm_json_text(phase, "name")};
		label[n + 1] = (struct jm_metric_label){"time", number > 1 ? time : ""};
		if (f->key)
			put_meters(o, f, record, phase, label, n + 2);
		else
			jm_openmetrics_sample(o, label, n + 2,
				f->until ? jm_json_real_of(phase, f->until) -
						   jm_json_real_of(phase, f->of)
					 : jm_json_real_of(phase, f->of));
	}
}

void jm_openmetrics_records(struct jm_openmetrics *o, const json_t *records)
{
	const json_t *record;
	size_t k;

	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		const struct family *f = &families[i];

		jm_openmetrics_family(o, f->name, f->counter, f->unit, f->help);
		json_array_foreach(records, k, record) put_record(o, f, record);
	}
	jm_openmetrics_end(o);
}

struct file {
	const json_t *records;
	bool classic;
};

static bool put_file(const void *what, FILE *out)
{
	const struct file *file = what;
	struct jm_openmetrics o = {.out = out, .classic = file->classic};

	jm_openmetrics_records(&o, file->records);
	return !ferror(out);
}

int jm_openmetrics_write(const char *path, const json_t *record, struct jm_err *err)
{
	size_t n = strlen(path);
	json_t *records = json_pack("[O]", record);
	const struct file file = {records, n > 5 && !strcmp(path + n - 5, ".prom")};
	int rc;

	if (!records)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the metrics.");
	rc = jm_output_by(path, put_file, &file, err);
	json_decref(records);
	return rc;
}
