/* SPDX-License-Identifier: Apache-2.0 */
#include "srun.h"
#include "base/net/keyed_hash.h"
#include "base/net/meet.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "JM_STARTED_BY_SRUN" /* in the environment of the tasks */

/* The words of this call, each with a 0 behind it; NULL: they cannot be read. */
static char *own_words(size_t *ret_n)
{
	FILE *f = fopen("/proc/self/cmdline", "re");
	char *text = NULL;
	size_t size = 0, n = 0;

	while (f && getdelim(&text, &size, EOF, f) > 0)
		n = (size_t)ftell(f);
	if (f)
		fclose(f);
	*ret_n = n;
	if (!n)
		free(text);
	return n ? text : NULL;
}

/* "srun --kill-on-bad-exit=1 PROGRAM ..." with the words of this call behind the first; NULL: out
 * of memory. */
static char **words_of_srun(char *program, char *words, size_t n)
{
	char **argv = calloc(n + 4, sizeof(*argv));
	size_t k = 3;

	if (!argv)
		return NULL;
	argv[0] = (char *)(uintptr_t) "srun";
	argv[1] = (char *)(uintptr_t) "--kill-on-bad-exit=1";
	argv[2] = program;
	for (size_t at = strlen(words) + 1; at < n; at += strlen(words + at) + 1)
		argv[k++] = words + at;
	return argv;
}

static int share_secret(struct jm_err *err)
{
	unsigned char key[JM_KEY_BYTES];
	char hex[2 * JM_KEY_BYTES + 1];

	if (jm_key_new(key, err))
		return err->code;
	for (int i = 0; i < JM_KEY_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", key[i]);
	if (!setenv("JM_GANG_SECRET", hex, 1) && !setenv(MARK, "1", 1))
		return 0;
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the environment of the ranks.");
}

int jm_run_by_srun(struct jm_err *err)
{
	char program[PATH_MAX], *words, **argv = NULL;
	ssize_t length;
	size_t n;

	if (secure_getenv(MARK)) {
		unsetenv(MARK);
		return 0;
	}
	length = readlink("/proc/self/exe", program, sizeof(program) - 1);
	words = own_words(&n);
	if (length > 0 && words) {
		program[length] = '\0';
		argv = words_of_srun(program, words, n);
	}
	if (argv && !share_secret(err))
		execvp("srun", argv);
	jm_err_set(err, JM_EIO,
		"srun, which starts the ranks, cannot be executed: %s. It is a part of Slurm; "
		"--launcher local starts ranks on this host, and --launcher started uses those "
		"that something else has started.",
		strerror(errno));
	free(argv);
	free(words);
	return err->code;
}
