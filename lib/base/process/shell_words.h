/* SPDX-License-Identifier: Apache-2.0 */
/* A command in one text, as in --prepare 'rm -f "my file"': its words as a shell makes them,
 * without a shell. */
#ifndef JM_SHELL_WORDS_H
#define JM_SHELL_WORDS_H

#include "joulemark.h"

/*
 * POSIX wordexp: quotes, $NAME, ~ and patterns of file names. Commands in it ($(...)), and what
 * only a shell can do (| & ; < >), are refused (JM_EUSAGE), as is a text without words. option:
 * names it in the sentence. NULL-terminated; for jm_shell_words_free.
 */
int jm_shell_words(const char *option, const char *text, char ***ret, struct jm_err *err);
void jm_shell_words_free(char **words); /* takes NULL */

#endif
