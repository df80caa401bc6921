/* SPDX-License-Identifier: Apache-2.0 */
#include "run_job.h"
#include "run/slurm/submission.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the job says already: which cases are run and how, and which of them. */
static int check_alone(struct jm_cli *cli)
{
	static const char *const others[] = {
		"shard", "resume", "rerun", "only-failed", "platform", "tag", "found"};

	if (cli->n_args || cli->command || cli->n_extra)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--job runs what was submitted; omit the plan, workload or command.");
	for (const struct jm_value *v = cli->values.value; v < cli->values.value + cli->values.n;
		v++) {
		const struct jm_option *o = v->option;
		bool refused = !(o->use & JM_OPTION_OF_CALL);

		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
			refused = refused || !strcmp(o->name, others[i]);
		if (refused && v->given)
			return jm_err_set(&cli->err, JM_EUSAGE,
				"--job says which cases are run and how, including --%s; omit that "
				"option.",
				o->name);
	}
	return 0;
}

/* "FILE:17" */
static int split(struct jm_cli *cli, const char *text, char *path, size_t size, int *ret_job)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? strspn(colon + 1, "0123456789") : 0;

	if (!n || n > 8 || colon[1 + n] || colon == text || (size_t)(colon - text) >= size)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--job takes a file of 'joulemark submit' and the number of a job, as in "
			"KEY.json:17, not '%s'.",
			text);
	snprintf(path, size, "%.*s", (int)(colon - text), text);
	*ret_job = (int)strtol(colon + 1, NULL, 10);
	return 0;
}

static int choose(
	struct jm_cli *cli, const struct jm_submission *s, int job, struct jm_run_options *o)
{
	int blocks = (int)json_integer_value(json_object_get(s->request, "repeat"));

	o->shard = job / s->parts + 1;
	o->shards = blocks;
	o->part = job % s->parts;
	o->parts = s->parts;
	if (o->shard <= blocks)
		return 0;
	return jm_err_set(&cli->err, JM_EUSAGE,
		"--job %d: this run has the jobs 0 to %d; give one of them.", job,
		blocks * s->parts - 1);
}

int jm_run_job_read(
	struct jm_cli *cli, const char *text, struct jm_run_options *o, json_t **ret_request)
{
	struct jm_submission s = {0};
	char path[PATH_MAX];
	int job = 0, rc = check_alone(cli);

	if (!rc)
		rc = split(cli, text, path, sizeof(path), &job);
	if (!rc)
		rc = jm_submission_read(path, &s, &cli->err);
	if (!rc)
		rc = choose(cli, &s, job, o);
	if (!rc && chdir(s.work_folder))
		rc = jm_err_set(&cli->err, JM_EIO,
			"The folder in which the plan was submitted, %s, is not on this host: %s. "
			"Submit in a folder that all hosts share.",
			s.work_folder, strerror(errno));
	if (!rc)
		*ret_request = json_incref(s.request);
	jm_submission_done(&s);
	return rc;
}
