/* SPDX-License-Identifier: Apache-2.0 */
#include "command_output.h"
#include "child_process.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* In the child: a reason that it gives on stderr belongs to its output. */
static int join_stderr(void *arg)
{
	(void)arg;
	return dup2(STDOUT_FILENO, STDERR_FILENO) < 0 ? -1 : 0;
}

/* -1: the end of the output, or `most` bytes of it. */
static ssize_t read_some(int fd, char *to, size_t room)
{
	ssize_t n;

	do
		n = read(fd, to, room);
	while (n < 0 && errno == EINTR);
	return n > 0 ? n : -1;
}

static int read_all(int fd, size_t most, char **text, size_t *n, struct jm_err *err)
{
	size_t room = 0;
	ssize_t got = 0;

	for (*n = 0; got >= 0 && *n <= most; *n += got > 0 ? (size_t)got : 0) {
		if (*n + 1 >= room) {
			char *grown = realloc(*text, room = 2 * room + 4096);

			if (!grown)
				return jm_err_set(err, JM_ENOMEM,
					"Out of memory for the output of a command.");
			*text = grown;
		}
		got = read_some(fd, *text + *n, room - *n - 1);
	}
	(*text)[*n] = '\0';
	return 0;
}

int jm_command_output(const struct jm_ctx *ctx, char *const *argv, size_t most, char **ret_text,
	int *ret_status, struct jm_err *err)
{
	const struct jm_proc_options o = {
		.argv = argv, .capture = true, .before_exec = join_stderr};
	struct jm_proc proc;
	char *text = NULL;
	size_t n;
	int rc = jm_proc_start(&proc, ctx, &o, err);

	if (rc)
		return rc;
	rc = read_all(proc.out_fd, most, &text, &n, err);
	if (!rc && n > most)
		rc = jm_err_set(err, JM_ERANGE, "'%s' printed more than %zu bytes.", argv[0], most);
	if (!rc)
		rc = jm_proc_reap(&proc, ctx, err);
	if (rc) {
		free(text);
	} else {
		*ret_text = text;
		*ret_status = proc.status;
	}
	jm_proc_done(&proc);
	return rc;
}
