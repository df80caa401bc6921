/* SPDX-License-Identifier: Apache-2.0 */
/* newterm and not initscr, which ends the program where the terminal is unknown. Signals are caught before; ncurses then
 * leaves their handlers as they are and adds its own for the size and for stopping (Ctrl-Z). */
#include "top_screen.h"

#include <curses.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static SCREEN *screen;

int jm_top_screen_open(struct jm_err *err)
{
	const char *term = secure_getenv("TERM");

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return jm_err_set(err, JM_EUSAGE,
			"'top' needs a terminal for its standard input and output; without one, "
			"'joulemark watch' prints lines.");
	setlocale(LC_CTYPE, ""); /* for characters beyond ASCII */
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return jm_err_set(err, JM_EUSAGE,
			"The terminal '%s' (TERM) is not known to ncurses; set TERM to the type of "
			"this terminal, such as xterm-256color, or use 'joulemark watch'.",
			term ? term : "");
	set_term(screen);
	cbreak();
	noecho();
	curs_set(0);
	nodelay(stdscr, TRUE);
	keypad(stdscr, TRUE);
	return 0;
}

int jm_top_screen_width(void)
{
	return COLS;
}

static void draw_line(int row, const char *line, int n, bool title)
{
	if (title)
		attron(A_REVERSE);
	mvaddnstr(row, 0, line, n);
	if (title)
		attroff(A_REVERSE);
}

void jm_top_screen_draw(const char *lines, int head)
{
	erase();
	for (int row = 0; *lines && row < LINES; row++) {
		size_t n = strcspn(lines, "\n");

		draw_line(row, lines, (int)n, row == head);
		lines += n + (lines[n] != '\0');
	}
	if (*lines && LINES > 0)
		mvaddnstr(LINES - 1, 0, "... (more lines)", COLS);
	refresh();
}

enum jm_top_key jm_top_screen_key(void)
{
	enum jm_top_key key = JM_TOP_NONE;
	int c;

	while ((c = getch()) != ERR) {
		if (c == 'q' || c == 'Q')
			return JM_TOP_QUIT;
		if (c == KEY_RESIZE || c == '\f')
			key = JM_TOP_REDRAW;
		if (c == '\f')
			clearok(stdscr, TRUE);
	}
	return key;
}

void jm_top_screen_close(void)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen);
	screen = NULL;
}
