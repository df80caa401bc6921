/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as text (RFC 4180). */
#ifndef JM_CSV_H
#define JM_CSV_H

#include <stdint.h>
#include <stdio.h>

/* One field, quoted where it must be. */
void jm_csv_put_text(FILE *f, const char *text);
/* Reads one line; splits it in place into at most n fields, quotes undone. Returns how many, 0 at the end
 * of the file, or JM_EFORMAT. *line is allocated as by getline. */
int jm_csv_row(FILE *f, char **line, size_t *room, char **field, int n);
/* Exact: nanoseconds as seconds with nine digits. */
void jm_csv_put_time(FILE *f, int64_t ns);

#endif
