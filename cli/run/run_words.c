/* SPDX-License-Identifier: Apache-2.0 */
#include "run_words.h"
#include "cli/frame/work_options.h"
#include "cli/settings/hold.h"

#include <string.h>

bool jm_plan_is_file(const char *word)
{
	size_t n = strlen(word);

	return (n > 5 && !strcmp(word + n - 5, ".yaml")) ||
	       (n > 4 && !strcmp(word + n - 4, ".yml"));
}

bool jm_run_begins_command(const struct jm_cli *cli, const char *word)
{
	return !cli->n_args && !jm_work_find(word, NULL) && jm_hold_executable(word);
}

bool jm_run_json_next(const char *word)
{
	return jm_hold_json_next(word) && !jm_work_find(word, NULL) && !jm_plan_is_file(word);
}

void jm_run_quote(const char *word, char *out, size_t size)
{
	bool plain = *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz"
						 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+:@%-")];
	size_t n = 0;

	if (plain) {
		snprintf(out, size, "%s", word);
		return;
	}
	for (out[n++] = '\''; *word && n + 12 < size; word++) {
		unsigned char c = (unsigned char)*word;

		if (c < ' ' || c == 0x7f) /* which a terminal would obey */
			n += (size_t)snprintf(out + n, size - n, "'$'\\%03o''", (unsigned int)c);
		else
			n += (size_t)snprintf(out + n, size - n, c == '\'' ? "'\\''" : "%c", c);
	}
	snprintf(out + n, size - n, "'");
}
