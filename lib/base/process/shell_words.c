/* SPDX-License-Identifier: Apache-2.0 */
#include "shell_words.h"

#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

static int refuse(const char *option, const char *text, int code, struct jm_err *err)
{
	if (code == WRDE_NOSPACE)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the words of --%s.", option);
	if (code == WRDE_SYNTAX)
		return jm_err_set(err, JM_EUSAGE,
			"--%s '%.200s' ends within quotes or brackets; close them.", option, text);
	return jm_err_set(err, JM_EUSAGE,
		"--%s '%.200s' has signs that only a shell understands (| & ; < > ( ) { } or a "
		"command in it); quote them, or give \"sh -c '...'\".",
		option, text);
}

int jm_shell_words(const char *option, const char *text, char ***ret, struct jm_err *err)
{
	wordexp_t found = {0};
	char **words;
	int code = wordexp(text, &found, WRDE_NOCMD);

	if (code) {
		if (code == WRDE_NOSPACE)
			wordfree(&found);
		return refuse(option, text, code, err);
	}
	words = found.we_wordc ? calloc(found.we_wordc + 1, sizeof(*words)) : NULL;
	for (size_t i = 0; words && i < found.we_wordc; i++) {
		words[i] = found.we_wordv[i];
		found.we_wordv[i] = NULL;
	}
	code = found.we_wordc ? JM_ENOMEM : JM_EUSAGE;
	wordfree(&found);
	if (!words)
		return code == JM_EUSAGE ? jm_err_set(err, code, "--%s has no command.", option)
					 : jm_err_set(err, code,
						   "Out of memory for the words of --%s.", option);
	*ret = words;
	return 0;
}

void jm_shell_words_free(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free((void *)words);
}
