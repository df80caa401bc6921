/* SPDX-License-Identifier: Apache-2.0 */
/* The width and the colours of a terminal. */
#include "screen.h"

#include "report/format/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int within_limits(long columns)
{
	if (columns < JM_WIDTH_LEAST)
		return JM_WIDTH_LEAST;
	return columns > JM_WIDTH_MOST ? JM_WIDTH_MOST : (int)columns;
}

int jm_screen_width(int fd)
{
	const char *columns = secure_getenv("COLUMNS");
	struct winsize size;
	char *end;
	long n;

	if (isatty(fd) && !ioctl(fd, TIOCGWINSZ, &size) && size.ws_col > 0)
		return within_limits(size.ws_col);
	n = columns ? strtol(columns, &end, 10) : 0;
	return columns && *columns && !*end && n > 0 ? within_limits(n) : JM_WIDTH_DEFAULT;
}

void jm_screen_say(const char *kind, const char *text)
{
	char line[1200];

	if (!isatty(STDERR_FILENO)) {
		fprintf(stderr, "joulemark: %s%s\n", kind, text);
		return;
	}
	snprintf(line, sizeof(line), "joulemark: %s%s", kind, text);
	jm_text_wrap(stderr, line, 0, 2, jm_screen_width(STDERR_FILENO));
}

void jm_screen_clear_line(void)
{
	fputs("\r\033[K", stderr);
}

bool jm_screen_colour(int fd)
{
	const char *no_color = secure_getenv("NO_COLOR"), *term = secure_getenv("TERM");

	return isatty(fd) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

const char *jm_screen_code(bool on, enum jm_colour colour)
{
	static const char *const codes[] = {
		[JM_PLAIN] = "\033[0m",
		[JM_BOLD] = "\033[1m",
		[JM_RED] = "\033[31m",
		[JM_GREEN] = "\033[32m",
	};

	return on ? codes[colour] : "";
}
