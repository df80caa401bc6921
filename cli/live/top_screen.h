/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of `top`: by ncurses (top_ncurses.c), or a build without it (no_ncurses.c). */
#ifndef JM_TOP_SCREEN_H
#define JM_TOP_SCREEN_H

#include "joulemark.h"

enum jm_top_key { JM_TOP_NONE, JM_TOP_REDRAW, JM_TOP_QUIT };

/* JM_EUSAGE: no terminal, or one that cannot be drawn on; JM_ENOTSUP: built without ncurses. */
int jm_top_screen_open(struct jm_err *err);
int jm_top_screen_width(void);
/* Lines ended by newlines, those that fit; the line `head` is the one with the titles. */
void jm_top_screen_draw(const char *lines, int head);
/* What was pressed, or that the size has changed; waits for nothing. */
enum jm_top_key jm_top_screen_key(void);
/* Gives the terminal back as it was. Harmless when it was not opened. */
void jm_top_screen_close(void);

#endif
