/* SPDX-License-Identifier: Apache-2.0 */
#include "jpwr_job.h"
#include "launcher_rank.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- ranks ---- */

int jm_jpwr_job_find(struct jm_jpwr_job *job, bool use_mpi, struct jm_err *err)
{
	*job = (struct jm_jpwr_job){use_mpi, jm_launcher_rank(), jm_launcher_local_rank()};
	if (!use_mpi || job->rank >= 0)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--use-mpi needs a rank, but no launcher has set one (OMPI_COMM_WORLD_RANK, "
		"PMIX_RANK, PMI_RANK, MV2_COMM_WORLD_RANK, SLURM_PROCID); start joulemark by "
		"mpirun or srun, or omit --use-mpi.");
}

bool jm_jpwr_job_measures(const struct jm_jpwr_job *job, const int *ranks, int n)
{
	if (!job->use_mpi)
		return true;
	if (!n)
		return job->local >= 0 ? !job->local : !job->rank;
	for (int i = 0; i < n; i++)
		if (ranks[i] == job->rank)
			return true;
	return false;
}

/* ---- names of files ---- */

/* Appends n bytes; false when they do not fit. */
static bool append(char *out, size_t size, const char *text, size_t n)
{
	size_t used = strlen(out);

	if (used + n >= size)
		return false;
	memcpy(out + used, text, n);
	out[used + n] = '\0';
	return true;
}

/* The value of the variable in "%q{NAME}", which is n bytes long; as in jpwr "None" when it is not
 * set. */
static const char *value_of(struct jm_ctx *ctx, const char *text, size_t n)
{
	char name[256];
	const char *value;

	snprintf(name, sizeof(name), "%.*s", (int)(n > 4 ? n - 4 : 0), text + 3);
	value = secure_getenv(name);
	if (!value)
		jm_log(ctx, JM_WARNING,
			"The variable %s, which --df-suffix names, is not set; the names of files "
			"get 'None' in its place.",
			name);
	return value ? value : "None";
}

static bool expand(struct jm_ctx *ctx, const char *given, char *out, size_t size)
{
	bool fits = true;

	while (fits && *given) {
		const char *end = strncmp(given, "%q{", 3) ? NULL : strchr(given, '}');
		size_t n = end ? (size_t)(end - given) + 1 : 1;
		const char *text = end ? value_of(ctx, given, n) : given;

		fits = append(out, size, text, end ? strlen(text) : 1);
		given += n;
	}
	return fits;
}

int jm_jpwr_job_suffix(struct jm_ctx *ctx, const struct jm_jpwr_job *job, const char *given,
	char *out, size_t size, struct jm_err *err)
{
	char tail[HOST_NAME_MAX + 32], host[HOST_NAME_MAX + 1] = "localhost";
	bool fits = true;

	out[0] = '\0';
	gethostname(host, sizeof(host) - 1);
	snprintf(tail, sizeof(tail), "%s%s.%d", given ? "." : "", host, (int)getpid());
	if (!given && job->use_mpi)
		snprintf(tail, sizeof(tail), "%d", job->rank);
	if (given)
		fits = expand(ctx, given, out, size);
	fits = fits && append(out, size, tail, strlen(tail));
	if (!fits)
		return jm_err_set(err, JM_EUSAGE,
			"--df-suffix is too long for the name of a file once its variables are "
			"replaced; %zu characters are possible.",
			size - 1);
	if (strchr(out, '/'))
		return jm_err_set(err, JM_EUSAGE,
			"--df-suffix gives '%s', which cannot be part of a file's name because it "
			"has a '/'.",
			out);
	return 0;
}
