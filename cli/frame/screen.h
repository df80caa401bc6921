/* SPDX-License-Identifier: Apache-2.0 */
/* What text is printed on: how wide it is, and whether it takes colours. */
#ifndef JM_SCREEN_H
#define JM_SCREEN_H

#include <stdbool.h>

#define JM_WIDTH_DEFAULT 80
#define JM_WIDTH_LEAST	 20
#define JM_WIDTH_MOST	 1000

/* Columns of the terminal at this descriptor; else those of COLUMNS in the environment; else 80. */
int jm_screen_width(int fd);
/* A terminal, and neither NO_COLOR (https://no-color.org) nor TERM=dumb in the environment. */
bool jm_screen_colour(int fd);

/* Of the terminal at standard error; the cursor is at its beginning then. */
void jm_screen_clear_line(void);

/* A message on standard error: "joulemark: ", the two texts. On a terminal no word of it is broken
 * between lines. */
void jm_screen_say(const char *kind, const char *text);

enum jm_colour { JM_PLAIN, JM_BOLD, JM_RED, JM_GREEN };
/* The escape sequence that begins the colour, JM_PLAIN ends it; "" when `on` is false. */
const char *jm_screen_code(bool on, enum jm_colour colour);

#endif
