/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of `top`: by ncurses (top_ncurses.c), or a build without it (no_ncurses.c). */
#ifndef JM_TOP_SCREEN_H
#define JM_TOP_SCREEN_H

#include "joulemark.h"

enum jm_top_key {
	JM_TOP_NONE,
	JM_TOP_REDRAW,
	JM_TOP_QUIT,
	JM_TOP_HELP,
	JM_TOP_SORT,
	JM_TOP_FREEZE,
	JM_TOP_UP,
	JM_TOP_DOWN,
	JM_TOP_PAGE_UP,
	JM_TOP_PAGE_DOWN
};

/* JM_EUSAGE: no terminal, or one that cannot be drawn on; JM_ENOTSUP: built without ncurses. */
int jm_top_screen_open(struct jm_err *err);
int jm_top_screen_width(void);
/* Lines of the text that fit above the last one, which is that of the keys. */
int jm_top_screen_height(void);
/* The terminal shows characters beyond ASCII. */
bool jm_top_screen_utf8(void);
/* Lines ended by newlines, from line `first` on, those that fit; lines that begin with JM_TOP_TITLE
 * are titles. The last line of the terminal has the keys. */
void jm_top_screen_draw(const char *lines, int first, const char *keys);
/* What was pressed next, or that the size has changed; waits for nothing. */
enum jm_top_key jm_top_screen_key(void);
/* Gives the terminal back as it was. Harmless when it was not opened. */
void jm_top_screen_close(void);

#endif
