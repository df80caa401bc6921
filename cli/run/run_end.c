/* SPDX-License-Identifier: Apache-2.0 */
/* The end of `run`: its exit status, the JSON, the table, and which commands go on from there. */
#include "run_end.h"
#include "base/files/output.h"
#include "base/files/state_folder.h"
#include "cli/frame/interrupts.h"
#include "cli/frame/screen.h"
#include "report/report.h"
#include "run_options.h"
#include "run_profile.h"
#include "result/record.h"
#include "run_words.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_CASE_FAILED 1

void jm_run_give_to_caller(const char *path)
{
	struct stat st;
	uid_t uid;
	gid_t gid;

	if (!jm_sudo_caller(&uid, &gid) || stat(path, &st) || st.st_uid)
		return;
	if (chown(path, uid, gid))
		return; /* it stays root's, which is no reason to stop */
}

bool jm_run_json_on_stdout(const struct jm_run_call *r)
{
	const char *path = r->given.json;

	return path && !strcmp(path, "-");
}

static int write_json(struct jm_run_call *r)
{
	const char *path = r->given.json;
	bool single = jm_planned_cases(r) == 1;
	const json_t *value = single ? json_array_get(r->records, 0) : r->records;
	int rc;

	if (!path || !value)
		return 0;
	rc = jm_output_json(path, value, &r->cli->err);
	if (!rc && !jm_run_json_on_stdout(r))
		jm_run_give_to_caller(path);
	return rc;
}

static int count_failed(const struct jm_run_call *r)
{
	const json_t *record;
	size_t i;
	int n = 0;

	json_array_foreach(r->records, i, record)
	{
		n += !jm_record_is_ok(record);
	}
	return n;
}

/* Has a device failed, rather than the work? A command's own status may be any number. */
static bool device_failed(const struct jm_run_call *r)
{
	const json_t *record;
	size_t i;

	json_array_foreach(r->records, i, record)
	{
		if (!json_is_array(json_object_get(record, "command")) &&
			json_integer_value(json_object_get(record, "exit_status")) ==
				JM_EXIT_FAILURE)
			return true;
	}
	return false;
}

static double added_watts(const struct jm_run_call *r)
{
	const json_t *how = r->n ? json_object_get(r->planned[0].request, "how") : NULL;

	return json_number_value(json_object_get(how, "add_watts"));
}

static bool counts_idle_gpus(const struct jm_run_call *r)
{
	const json_t *how = r->n ? json_object_get(r->planned[0].request, "how") : NULL;

	return json_is_true(json_object_get(how, "idle_gpus"));
}

static void print_table(struct jm_run_call *r)
{
	struct jm_err err = JM_ERR_INIT;
	const struct jm_cli *cli = r->cli;
	FILE *out = jm_run_json_on_stdout(r) && !cli->output ? stderr : cli->out;
	const struct jm_report_options o = {.width = cli->width,
		.add_watts = added_watts(r),
		.idle_gpus = counts_idle_gpus(r),
		.bold = cli->colour && out == stdout,
		.told = json_array_size(r->records) == 1 && r->n_told == 1 &&
			(out == stderr || (isatty(STDERR_FILENO) && isatty(fileno(out)))),
		.columns = r->given.columns};
	char *text = NULL;

	if (!json_array_size(r->records))
		return;
	if (jm_report_render(r->records, JM_REPORT_TABLE, &o, &text, &err))
		fprintf(stderr, "joulemark: The table cannot be printed: %s\n", err.text);
	else
		fprintf(out, "%s%s", cli->output ? "" : "\n", text);
	jm_run_print_profiles(out, r->records, cli->width);
	fflush(out);
	free(text);
}

/* " plan.yaml"; "" if the store contains the plan. */
static void what_to_type(const struct jm_run_call *r, char *out, size_t size)
{
	*out = '\0';
	if (!r->file.n || size < 2)
		return;
	*out = ' ';
	jm_run_quote(r->cli->args[0], out + 1, size - 1);
}

static void print_next(const struct jm_run_call *r, int failed, bool whole)
{
	char store[PATH_MAX], kept[PATH_MAX], what[PATH_MAX + 1];
	/* the report ends in an empty line */
	const char *apart = json_array_size(r->records) ? "" : "\n";

	if (r->cli->quiet || r->given.job || (r->store_is_lost && !*r->kept))
		return;
	if (!r->given.store) {
		if (jm_planned_cases(r) > 1)
			fprintf(stderr,
				"%sThe records were not stored; --store FILE stores them.\n",
				apart);
		return;
	}
	jm_run_quote(r->store_is_lost ? r->kept : r->given.store, store, sizeof(store));
	jm_run_quote(r->kept, kept, sizeof(kept));
	fprintf(stderr, "%sNext:\n", apart);
	what_to_type(r, what, sizeof(what));
	if (!whole && !r->store_is_lost)
		fprintf(stderr, "  joulemark run%s --store %s%s          # the rest\n", what, store,
			*what ? "" : " --resume");
	if (failed && !r->store_is_lost)
		fprintf(stderr, "  joulemark run%s --store %s%s --retry  # %d failed\n", what,
			store, *what ? "" : " --resume", failed);
	fprintf(stderr, "  joulemark report %s", store);
	if (*r->kept && !r->store_is_lost)
		fprintf(stderr, " %s", kept);
	if (added_watts(r) > 0)
		fprintf(stderr, " --add-watts %g", added_watts(r));
	if (counts_idle_gpus(r))
		fprintf(stderr, " --idle-gpus");
	fprintf(stderr, " --html report.html\n");
}

/* Of this runner. */
static int own_cases(const struct jm_run_call *r)
{
	int n = 0;

	for (int i = 0; i < r->n; i++)
		n += jm_part_cases(&r->given.sweep, r->planned[i].plan.n) *
		     jm_shard_blocks(&r->given.sweep, r->planned[i].plan.repeat);
	return n;
}

/* Records of repeats that are this runner's; a store may have those of others too. */
static int own_records(const struct jm_run_call *r)
{
	const struct jm_run_options *o = &r->given.sweep;
	const json_t *record;
	size_t i;
	int n = 0;

	json_array_foreach(r->records, i, record)
	{
		json_int_t repeat = json_integer_value(
			json_object_get(json_object_get(record, "case"), "repeat"));

		n += o->shards < 2 || (repeat - 1) % o->shards == o->shard - 1;
	}
	return n;
}

/* How many blocks a plan has that ends when its intervals are narrow is unknown in a call that
 * repeats single cases. */
static bool is_length_unknown(const struct jm_run_call *r)
{
	bool adaptive = false;

	for (int i = 0; i < r->n; i++)
		adaptive = adaptive || r->planned[i].plan.until > 0;
	return adaptive && (r->given.sweep.only_failed || r->given.sweep.rerun);
}

/* Records that the store did not take, or that were lost with it, go to a file beside it. */
static void keep_beside(struct jm_run_call *r, const json_t *records)
{
	struct jm_err err = JM_ERR_INIT;
	char text[PATH_MAX + 200];

	if (!json_array_size(records))
		return;
	if (jm_output_json_beside(r->given.store, records, r->kept, &err)) {
		*r->kept = '\0';
		jm_screen_say("", err.text);
		return;
	}
	jm_run_give_to_caller(r->kept);
	snprintf(text, sizeof(text),
		"%zu record%s that the store does not have %s in %s, which 'joulemark report' "
		"reads.",
		json_array_size(records), json_array_size(records) == 1 ? "" : "s",
		json_array_size(records) == 1 ? "is" : "are", r->kept);
	jm_screen_say("", text);
}

/* Closes the store; one that was removed or replaced has lost the records of earlier calls, too. */
static int end_store(struct jm_run_call *r, int rc)
{
	struct jm_err err = JM_ERR_INIT;
	int lost = jm_store_close(r->store, &err);

	r->store = NULL;
	r->store_is_lost = lost != 0;
	if (lost && (rc == JM_EINTR || rc == JM_ECHILD))
		jm_screen_say("", err.text);
	else if (lost && !rc)
		rc = jm_err_set(&r->cli->err, lost, "%s", err.text);
	keep_beside(r, lost ? r->records : r->unstored);
	return rc;
}

int jm_run_finish(struct jm_run_call *r, int rc)
{
	bool whole = own_records(r) >= own_cases(r) || is_length_unknown(r);
	int failed = count_failed(r), status = failed ? EXIT_CASE_FAILED : 0;
	struct jm_err first;

	rc = end_store(r, rc);
	first = r->cli->err;
	for (int i = 0; i < r->n; i++)
		if (r->planned[i].failed)
			status = EXIT_CASE_FAILED;
	if (device_failed(r))
		status = JM_EXIT_FAILURE;

	if (rc == JM_EINTR)
		status = 128 + jm_last_interrupt();
	else if (rc == JM_ECHILD && failed) /* --fail-fast */
		jm_screen_say("", first.text);
	else if (rc)
		status = jm_cli_fail(r->cli);
	r->cli->err = (struct jm_err)JM_ERR_INIT;
	if (write_json(r))
		status = jm_cli_fail(r->cli);
	print_table(r);
	print_next(r, failed, whole);
	return status;
}
