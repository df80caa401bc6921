/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is computed and no device is used: a shell asks at each press of a key. */
#include "option_values.h"
#include "work_options.h"

#include "base/files/store_file.h"
#include "engine/device/backend_find.h"
#include "guard/control.h"
#include "meter/source.h"
#include "report/judge/series_table.h"
#include "store/store.h"
#include "store/store_run.h"
#include "vendor/nvml_gpus.h"

#include <jansson.h>
#include <string.h>

/* A node of each simulated GPU. */
static const char *const simulated[] = {"sim:h100x4", "sim:h200x4", "sim:mi300xx4"};

/* ---- devices, knobs ---- */

static void put_gpus(FILE *out)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_nvml_gpus gpus;
	struct jm_nvml nvml;

	if (jm_nvml_open(&nvml, &err))
		return;
	if (!jm_nvml_gpus_open(&nvml, &gpus, &err)) {
		for (int i = 0; i < gpus.n_allocated; i++)
			fprintf(out, "cuda:%d\n", i);
		jm_nvml_gpus_done(&gpus);
	}
	jm_nvml_close(&nvml);
}

static void put_devices(struct jm_cli *cli, FILE *out)
{
	const char *name;

	(void)cli;
	for (size_t i = 0; (name = jm_backend_name(i)); i++) {
		struct jm_err err = JM_ERR_INIT;

		if (strcmp(name, "cuda") != 0 && !jm_device_check(name, &err))
			fprintf(out, "%s\n", name);
	}
	put_gpus(out);
	for (size_t i = 0; i < sizeof(simulated) / sizeof(simulated[0]); i++)
		fprintf(out, "%s\n", simulated[i]);
}

/* Each name once: "gpu.power=". */
static void put_knobs_of(const struct jm_knobs *set, FILE *out)
{
	for (int i = 0; i < set->n; i++) {
		bool first = true;

		for (int k = 0; k < i; k++)
			first = first && strcmp(set->knob[k].name, set->knob[i].name) != 0;
		if (first)
			fprintf(out, "%s=\n", set->knob[i].name);
	}
}

/* Those of this machine; where it has none, those of a simulated node. */
static void put_knobs(struct jm_cli *cli, FILE *out)
{
	bool any = false;

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; jm_controls[i]; i++) {
			const struct jm_control *c = jm_controls[i];
			struct jm_err err = JM_ERR_INIT;
			struct jm_knobs set = {0};
			void *state;

			if ((c->origin == JM_SIMULATED) != pass || (pass && any))
				continue;
			if (!c->open(&cli->ctx, pass ? strchr(simulated[0], ':') + 1 : "", &set,
				    &state, &err)) {
				put_knobs_of(&set, out);
				any = any || set.n;
				c->close(state);
			}
			jm_knobs_done(&set);
		}
}

/* ---- names ---- */

static void put_models(struct jm_cli *cli, FILE *out)
{
	(void)cli;
	for (int i = 0; jm_models[i]; i++) {
		fprintf(out, "%s\n", jm_models[i]->name);
		for (const struct jm_preset *p = jm_models[i]->presets; p && p->name; p++)
			fprintf(out, "%s\n", p->name);
	}
}

static void put_columns(struct jm_cli *cli, FILE *out)
{
	const char *name;

	(void)cli;
	for (size_t i = 0; (name = jm_series_table_column(i)); i++)
		fprintf(out, "%s\n", name);
}

static void put_sources(struct jm_cli *cli, FILE *out)
{
	(void)cli;
	for (int i = 0; jm_sources[i]; i++)
		fprintf(out, "%s\n", jm_sources[i]->name);
}

static void put_controls(struct jm_cli *cli, FILE *out)
{
	(void)cli;
	for (int i = 0; jm_controls[i]; i++)
		fprintf(out, "%s\n", jm_controls[i]->name);
}

static void put_precisions(struct jm_cli *cli, FILE *out)
{
	(void)cli;
	for (int i = 0; jm_precision_names[i]; i++)
		fprintf(out, "%s\n", jm_precision_names[i]);
}

static const struct {
	const char *option;
	void (*put)(struct jm_cli *cli, FILE *out);
} rows[] = {
	{"device", put_devices},
	{"set", put_knobs},
	{"model", put_models},
	{"columns", put_columns},
	{"source", put_sources},
	{"control", put_controls},
	{"precision", put_precisions},
};

/* ---- fields of a store ---- */

static void put_fields(const json_t *object, FILE *out)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, key, value)
	{
		if (json_is_object(value))
			put_fields(value, out);
		else
			fprintf(out, "%.*s=\n", (int)strcspn(key, "@"), key);
	}
}

/* One record is enough: its case has the fields of all. */
static int put_record(void *arg, json_t *record, struct jm_err *err)
{
	static const char *const others[] = {"id", "repeat", "block", "reference", "host"};
	FILE *out = arg;

	put_fields(json_object_get(json_object_get(record, "case"), "parameters"), out);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		fprintf(out, "%s=\n", others[i]);
	return jm_err_set(err, JM_EINTR, "One is enough.");
}

static void put_store(const char *path, FILE *out)
{
	struct jm_err err = JM_ERR_INIT, ended = JM_ERR_INIT;
	struct jm_store *store;

	if (!jm_store_is(path) || jm_store_open(path, JM_STORE_READ, &store, &err))
		return;
	jm_store_records(store, true, put_record, out, &ended);
	jm_store_close(store, NULL);
}

/* ---- together ---- */

static const struct jm_option *row_of(const char *option, const struct jm_command *cmd)
{
	const struct jm_option *row = cmd ? jm_option_find(cmd->options, option) : NULL;

	return row ? row : jm_work_options_find(option);
}

void jm_option_values_print(
	struct jm_cli *cli, const char *option, const struct jm_command *cmd, FILE *out)
{
	size_t n = strlen(option);
	const struct jm_option *row;
	char path[4096];

	if (n && option[n - 1] == ':' && n < sizeof(path)) {
		snprintf(path, sizeof(path), "%.*s", (int)n - 1, option);
		put_store(path, out);
		return;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].option, option)) {
			rows[i].put(cli, out);
			return;
		}
	row = row_of(option, cmd);
	for (int i = 0; row && row->choices && row->choices[i]; i++)
		fprintf(out, "%s\n", row->choices[i]);
}
