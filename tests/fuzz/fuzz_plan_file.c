/* SPDX-License-Identifier: Apache-2.0 */
/* A plan file that is accepted has points on its axes, as many as were counted, each with its
 * texts. */
#include "fuzz.h"
#include "run/plan/plan_file.h"
#include "run/plan/plan_points.h"
#include "run/plan/plan_text.h"

#include <stdio.h>
#include <unistd.h>

#define MOST_POINTS 200

static const struct jm_option rows[] = {
	{.name = "device", .type = JM_TEXT, .use = JM_OPTION_SWEPT | JM_OPTION_OF_WORK},
	{.name = "set", .type = JM_TEXT, .repeat = true},
	{.name = "env", .type = JM_TEXT, .repeat = true, .use = JM_OPTION_OF_COMMAND},
	{.name = "repeat", .type = JM_INT, .min = 1, .max = 100},
	{.name = "resume", .type = JM_FLAG, .use = JM_OPTION_OF_CALL},
	{0},
};

static bool applies(void *arg, const char *work, const char *option)
{
	(void)arg;
	return work && option[0] != 'x';
}

static void check_texts(const struct jm_plan_run *run, const struct jm_plan_point *at)
{
	for (int i = 0; i < run->n_keys; i++) {
		struct jm_err err = JM_ERR_INIT;
		json_t *texts = json_array();

		if (strcmp(run->key[i].name, "command") != 0)
			fuzz_check(jm_plan_texts(run, at, &run->key[i], texts, &err), &err);
		else
			fuzz_check(jm_plan_command(run, at, texts, &err), &err);
		json_decref(texts);
	}
}

static void check_run(const struct jm_plan_run *run)
{
	struct jm_plan_point at;
	bool exact;
	double most = jm_plan_count(run, &exact);
	int n = 0;

	if (!exact)
		return; /* it may take long to find one that is not excluded */
	for (bool ok = jm_plan_first(run, &at); ok && n < MOST_POINTS;
		ok = jm_plan_next(run, &at)) {
		struct jm_err err = JM_ERR_INIT;
		json_t *excluded = json_array();

		for (int d = 0; d < run->n_dials; d++)
			assert(at.at[d] >= 0 && at.at[d] < run->dial_n[d]);
		check_texts(run, &at);
		fuzz_check(jm_plan_excluded_settings(run, &at, excluded, &err), &err);
		json_decref(excluded);
		n++;
	}
	assert(n <= most);
}

static void check(const struct jm_plan_file *file)
{
	for (int i = 0; i < file->n && i < 3; i++) {
		for (int k = 0; k < file->run[i].n_after; k++)
			assert(file->run[i].after[k] < i);
		assert(*file->run[i].name);
		check_run(&file->run[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char path[64];
	const struct jm_plan_file_options o = {.rows = rows, .applies = applies};
	struct jm_err err = JM_ERR_INIT;
	struct jm_plan_file file;
	FILE *f;
	int rc;

	snprintf(path, sizeof(path), "fuzz-plan-%d.yaml", (int)getpid());
	f = fopen(path, "we");
	if (!f)
		abort();
	fwrite(data, 1, size, f);
	fclose(f);
	rc = jm_plan_file_load(path, &o, &file, &err);
	unlink(path);
	fuzz_check(rc, &err);
	if (!rc) {
		check(&file);
		jm_plan_file_done(&file);
	}
	return 0;
}
