/* SPDX-License-Identifier: Apache-2.0 */
#include "find_files.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

void jm_find_files(glob_t *ret, const char *pattern, ...)
{
	char text[PATH_MAX];
	va_list words;

	*ret = (glob_t){0};
	va_start(words, pattern);
	vsnprintf(text, sizeof(text), pattern, words);
	va_end(words);
	if (glob(text, 0, NULL, ret)) {
		globfree(ret);
		*ret = (glob_t){0};
	}
}
