/* SPDX-License-Identifier: Apache-2.0 */
/* What squeue prints, and the files in the folder of a submission. */
#include "fuzz.h"
#include "fuzz_folder.h"
#include "run/slurm/submission.h"

#include <stdio.h>
#include <string.h>

#define KEY "0123456789abcdef0123456789abcdef"

static void check_queue(const struct jm_slurm_queue *q)
{
	for (int i = 0; i < q->n; i++) {
		const struct jm_slurm_job *j = &q->job[i];

		if (strlen(j->key) != JM_SLURM_KEY - 1 || j->index >= JM_SLURM_GROUP ||
			j->group < 0 || j->array <= 0)
			abort();
	}
}

static void put(const char *folder, const char *name, const uint8_t *data, size_t size)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/" KEY "%s", folder, name);
	f = fopen(path, "w");
	if (!f || fwrite(data, 1, size, f) != size || fclose(f))
		abort();
}

static void read_jobs(const char *folder, const struct jm_slurm_queue *q)
{
	struct jm_job jobs[3];
	char why[700];

	if (jm_jobs_read(folder, KEY, KEY, q, jobs, 3, NULL))
		return;
	for (int i = 0; i < 3; i++)
		jm_job_why(folder, KEY, i, &jobs[i], why, sizeof(why));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const files[] = {
		".json", ".0.sent", ".0.0.start", ".0.1.end", ".0.1.log", ".0.1.db"};
	const char *folder = fuzz_folder();
	char *text = fuzz_text(data, size), path[4096];
	struct jm_slurm_queue q = {0};
	struct jm_submission s;

	if (!jm_slurm_queue_parse(text, &q, NULL))
		check_queue(&q);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		put(folder, files[i], data, size);
	read_jobs(folder, &q);
	snprintf(path, sizeof(path), "%s/" KEY ".json", folder);
	if (!jm_submission_read(path, &s, NULL))
		jm_submission_done(&s);
	jm_slurm_queue_done(&q);
	free(text);
	return 0;
}
