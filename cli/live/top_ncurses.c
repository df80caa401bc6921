/* SPDX-License-Identifier: Apache-2.0 */
/* newterm and not initscr, which ends the program where the terminal is unknown. Signals are caught
 * before; ncurses then leaves their handlers as they are and adds its own for the size and for
 * stopping (Ctrl-Z). */
#include "top_screen.h"
#include "top_table.h"

#include <curses.h>
#include <langinfo.h>
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

int jm_top_screen_height(void)
{
	return LINES > 1 ? LINES - 1 : 1;
}

bool jm_top_screen_utf8(void)
{
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

static void draw_line(int row, const char *line, int n, bool reverse)
{
	if (reverse)
		attron(A_REVERSE);
	mvaddnstr(row, 0, line, n);
	if (reverse)
		attroff(A_REVERSE);
}

void jm_top_screen_draw(const char *lines, int first, const char *keys)
{
	erase();
	for (int row = -first; *lines && row < jm_top_screen_height(); row++) {
		bool title = *lines == JM_TOP_TITLE;
		size_t n = strcspn(lines, "\n");

		if (row >= 0)
			draw_line(row, lines + title, (int)n - title, title);
		lines += n + (lines[n] != '\0');
	}
	if (LINES > 1) {
		attron(A_BOLD);
		mvaddnstr(LINES - 1, 0, keys, COLS);
		attroff(A_BOLD);
	}
	refresh();
}

enum jm_top_key jm_top_screen_key(void)
{
	static const struct {
		int c;
		enum jm_top_key key;
	} keys[] = {
		{'q', JM_TOP_QUIT},
		{'Q', JM_TOP_QUIT},
		{'?', JM_TOP_HELP},
		{'h', JM_TOP_HELP},
		{'s', JM_TOP_SORT},
		{'f', JM_TOP_FREEZE},
		{KEY_UP, JM_TOP_UP},
		{KEY_DOWN, JM_TOP_DOWN},
		{KEY_PPAGE, JM_TOP_PAGE_UP},
		{KEY_NPAGE, JM_TOP_PAGE_DOWN},
		{KEY_RESIZE, JM_TOP_REDRAW},
		{'\f', JM_TOP_REDRAW},
	};
	int c;

	while ((c = getch()) != ERR) {
		if (c == '\f')
			clearok(stdscr, TRUE);
		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			if (keys[i].c == c)
				return keys[i].key;
	}
	return JM_TOP_NONE;
}

void jm_top_screen_close(void)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen);
	screen = NULL;
}
