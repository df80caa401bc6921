/* SPDX-License-Identifier: Apache-2.0 */
/* In place of top_ncurses.c where the headers of ncurses are missing. */
#include "top_screen.h"

int jm_top_screen_open(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"'top' is not available, because joulemark was built without the headers of "
		"ncurses; install libncurses-dev and build again, or use 'joulemark watch'.");
}

int jm_top_screen_width(void)
{
	return 0;
}

int jm_top_screen_height(void)
{
	return 1;
}

bool jm_top_screen_utf8(void)
{
	return false;
}

void jm_top_screen_draw(const char *lines, int first, const char *keys)
{
	(void)lines;
	(void)first;
	(void)keys;
}

enum jm_top_key jm_top_screen_key(void)
{
	return JM_TOP_QUIT;
}

void jm_top_screen_close(void)
{
}
