/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm.h"
#include "base/clock.h"
#include "base/files/private_file.h"
#include "base/files/state_folder.h"
#include "base/grow.h"
#include "base/printable.h"
#include "base/process/command_output.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MOST   (64 << 20) /* bytes of an answer */
#define FORMAT "%k|%K|%F|%T|%N|%r"
#define ANSWER "queue" /* the last answer: "TIME_NS USABLE", then the lines of squeue */

/* ---- the answer of squeue ---- */

/* Copies up to the next '|' or the end of the line, as printable text, and returns what follows the
 * '|'. */
static const char *take_field(const char *at, char *out, size_t size)
{
	size_t n = strcspn(at, "|\n");

	snprintf(out, size, "%.*s", n > INT_MAX ? INT_MAX : (int)n, at);
	jm_text_tame(out);
	return at + n + (at[n] == '|');
}

static bool take_key(const char **at, char out[JM_SLURM_KEY])
{
	size_t n = strspn(*at, "0123456789abcdef");

	if (n != JM_SLURM_KEY - 1 || (*at)[n] != ':')
		return false;
	memcpy(out, *at, n);
	out[n] = '\0';
	*at += n + 1;
	return true;
}

/* "0" to "999"; -1 = none of these */
static int small_number(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n && n < 7 && !text[n] ? (int)strtol(text, NULL, 10) : -1;
}

/* Is the line one of our jobs? */
static bool parse_line(const char *line, struct jm_slurm_job *ret)
{
	static const char mark[] = "joulemark:";
	char comment[128], index[32], array[32];
	const char *at = comment;

	*ret = (struct jm_slurm_job){0};
	line = take_field(line, comment, sizeof(comment));
	line = take_field(line, index, sizeof(index));
	line = take_field(line, array, sizeof(array));
	line = take_field(line, ret->state, sizeof(ret->state));
	line = take_field(line, ret->node, sizeof(ret->node));
	take_field(line, ret->reason, sizeof(ret->reason));
	if (strncmp(at, mark, sizeof(mark) - 1) != 0)
		return false;
	at += sizeof(mark) - 1;
	if (!take_key(&at, ret->folder) || !take_key(&at, ret->key))
		return false;
	ret->group = small_number(at);
	ret->index = small_number(index);
	ret->array = strtol(array, NULL, 10);
	return ret->group >= 0 && ret->index < JM_SLURM_GROUP && ret->array > 0;
}

int jm_slurm_queue_parse(const char *text, struct jm_slurm_queue *ret, struct jm_err *err)
{
	struct jm_slurm_queue q = {0};

	for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		struct jm_slurm_job *grown, job;

		if (!parse_line(at, &job))
			continue;
		grown = q.n < q.room ? q.job : jm_grow(q.job, &q.room, sizeof(*q.job));
		if (!grown) {
			jm_slurm_queue_done(&q);
			return jm_err_set(err, JM_ENOMEM, "Out of memory for the jobs of Slurm.");
		}
		q.job = grown;
		q.job[q.n++] = job;
	}
	*ret = q;
	return 0;
}

void jm_slurm_queue_done(struct jm_slurm_queue *q)
{
	free(q->job);
	*q = (struct jm_slurm_queue){0};
}

/* ---- its commands ---- */

static int fail(const char *command, int status, char *text, struct jm_err *err)
{
	char *rest = text, lines[601] = "";
	size_t n = 0;

	/* the message of an error is one line */
	for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
		if (*line && n < sizeof(lines))
			n += (size_t)snprintf(
				lines + n, sizeof(lines) - n, "%s%s", n ? "; " : "", line);
	jm_text_tame(lines);
	return jm_err_set(err, JM_EIO, "'%s' of Slurm ended with status %d: %s", command, status,
		n ? lines : "it printed nothing.");
}

static int call(const struct jm_ctx *ctx, char *const *argv, char **ret_text, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	int status, rc;

	*ret_text = NULL;
	rc = jm_command_output(ctx, argv, MOST, ret_text, &status, &why);
	if (rc == JM_ENOENT)
		return jm_err_set(err, rc,
			"There is no command '%s' here, which is a part of Slurm; call this on a "
			"host from which jobs are submitted, or run the plan with 'joulemark run'.",
			argv[0]);
	if (rc)
		return jm_err_set(err, rc, "%s", why.text);
	if (!status)
		return 0;
	fail(argv[0], status, *ret_text, err);
	free(*ret_text);
	*ret_text = NULL;
	return err->code ? err->code : JM_EBUG;
}

static int64_t now_ns(void)
{
	return jm_clock_wall(jm_clock_real());
}

/* The folder where the answer is kept, locked until it is closed. */
static int open_folder(const struct jm_ctx *ctx, int *ret_folder, int *ret_lock, struct jm_err *err)
{
	char path[PATH_MAX];
	int rc = jm_state_folder(ctx, "slurm", path, sizeof(path), err);

	if (!rc)
		rc = jm_private_folder(path, 0700, ret_folder, err);
	if (rc)
		return rc;
	rc = jm_private_open(*ret_folder, "lock", O_RDWR | O_CREAT, ret_lock, err);
	while (!rc && flock(*ret_lock, LOCK_EX))
		if (errno != EINTR)
			rc = jm_err_set(
				err, JM_EIO, "Cannot lock %s/lock: %s.", path, strerror(errno));
	if (rc)
		close(*ret_folder);
	return rc;
}

static int keep_answer(
	int folder, int64_t time_ns, bool usable, const char *text, struct jm_err *err)
{
	size_t n = strlen(text) + 64;
	char *all = malloc(n);
	int rc;

	if (!all)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the jobs of Slurm.");
	snprintf(all, n, "%lld %d\n%s", (long long)time_ns, usable, text);
	rc = jm_private_publish(folder, ANSWER, all, strlen(all), 0600, err);
	free(all);
	return rc;
}

/* The last query: when it was, and its answer, NULL if it must not be used again. The caller frees
 * *ret_file. */
static int64_t last_answer(int folder, char **ret_file, const char **ret_lines)
{
	long long time_ns = 0;
	int usable = 0, head = 0;
	size_t n;

	*ret_file = NULL;
	*ret_lines = NULL;
	if (jm_private_read(folder, ANSWER, MOST + 64, ret_file, &n, NULL))
		return 0;
	if (sscanf(*ret_file, "%lld %d\n%n", &time_ns, &usable, &head) == 2 && usable && head)
		*ret_lines = *ret_file + head;
	return time_ns;
}

static int query(
	const struct jm_ctx *ctx, int folder, int64_t last_ns, char **ret_text, struct jm_err *err)
{
	static char *const argv[] = {(char *)"squeue", (char *)"--noheader", (char *)"--array",
		(char *)"--me", (char *)"--format=" FORMAT, NULL};
	int64_t age = now_ns() - last_ns, period = JM_SLURM_PERIOD * JM_SECOND;
	struct timespec wait = {0};
	int rc;

	if (age < period) {
		/* also where the clock was set back */
		int64_t left = age < 0 ? period : period - age;

		wait.tv_sec = left / 1000000000;
		wait.tv_nsec = left % 1000000000;
		nanosleep(&wait, NULL);
	}
	/* a query that failed, as when the controller is restarted, counts as well */
	rc = keep_answer(folder, now_ns(), false, "", err);
	return rc ? rc : call(ctx, argv, ret_text, err);
}

int jm_slurm_queue_read(const struct jm_ctx *ctx, struct jm_slurm_queue *ret, struct jm_err *err)
{
	char *file = NULL, *text = NULL;
	const char *lines = NULL;
	int64_t last_ns = 0, age;
	int folder, lock, rc = open_folder(ctx, &folder, &lock, err);

	if (rc)
		return rc;
	last_ns = last_answer(folder, &file, &lines);
	age = now_ns() - last_ns;
	if (!lines || age < 0 || age >= JM_SLURM_PERIOD * JM_SECOND) {
		rc = query(ctx, folder, last_ns, &text, err);
		if (!rc)
			rc = keep_answer(folder, now_ns(), true, text, err);
		lines = text;
	}
	if (!rc)
		rc = jm_slurm_queue_parse(lines, ret, err);
	free(file);
	free(text);
	close(lock);
	close(folder);
	return rc;
}

/* The number of the job: the line that is a number, or a number and the name of a cluster. */
static long number_of(const char *text)
{
	for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		size_t n = strspn(at, "0123456789");

		if (n && n < 12 && strchr("\n;", at[n]))
			return strtol(at, NULL, 10);
	}
	return 0;
}

/* A command that changes the queue, after which the last answer must not be used again. */
static int call_change(
	const struct jm_ctx *ctx, char *const *argv, char **ret_text, struct jm_err *err)
{
	char *file = NULL;
	const char *lines;
	int folder, lock, rc = open_folder(ctx, &folder, &lock, err);

	*ret_text = NULL;
	if (rc)
		return rc;
	rc = keep_answer(folder, last_answer(folder, &file, &lines), false, "", err);
	if (!rc)
		rc = call(ctx, argv, ret_text, err);
	free(file);
	close(lock);
	close(folder);
	return rc;
}

int jm_slurm_submit(
	const struct jm_ctx *ctx, char *const *words, long *ret_array, struct jm_err *err)
{
	char **argv, *text;
	int n = 0, rc;

	while (words[n])
		n++;
	argv = calloc((size_t)n + 3, sizeof(*argv));
	if (!argv)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the words of sbatch.");
	argv[0] = (char *)(uintptr_t) "sbatch";
	argv[1] = (char *)(uintptr_t) "--parsable";
	memcpy(argv + 2, words, (size_t)n * sizeof(*words));
	rc = call_change(ctx, argv, &text, err);
	free(argv);
	if (rc)
		return rc;
	*ret_array = number_of(text);
	if (*ret_array <= 0)
		rc = fail("sbatch", 0, text, err);
	free(text);
	return rc;
}

/* ---- scancel ---- */

static bool had_before(const struct jm_slurm_queue *q, const char *folder, int i)
{
	for (int k = 0; k < i; k++)
		if (q->job[k].array == q->job[i].array && !strcmp(q->job[k].folder, folder))
			return true;
	return false;
}

int jm_slurm_cancel(const struct jm_ctx *ctx, const struct jm_slurm_queue *q, const char *folder,
	int *ret_n, struct jm_err *err)
{
	char(*number)[24] = calloc((size_t)q->n + 1, sizeof(*number)), *text = NULL;
	char **argv = calloc((size_t)q->n + 2, sizeof(*argv));
	int n = 0, rc = 0;

	*ret_n = 0;
	if (!number || !argv)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for the words of scancel.");
	for (int i = 0; i < q->n && !rc; i++) {
		if (strcmp(q->job[i].folder, folder) != 0)
			continue;
		++*ret_n;
		if (had_before(q, folder, i))
			continue;
		snprintf(number[n], sizeof(number[n]), "%ld", q->job[i].array);
		argv[n + 1] = number[n];
		n++;
	}
	if (!rc && n) {
		argv[0] = (char *)(uintptr_t) "scancel";
		rc = call_change(ctx, argv, &text, err);
	}
	free(text);
	free(number);
	free(argv);
	return rc;
}
