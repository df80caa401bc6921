/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as text (RFC 4180). */
#ifndef JM_CSV_FIELDS_H
#define JM_CSV_FIELDS_H

#include <stdint.h>
#include <stdio.h>

#include "joulemark.h"

#define JM_CSV_LINE (1 << 20) /* bytes of the longest line that is read */

/* One field, quoted where it must be. */
void jm_csv_put_text(FILE *f, const char *text);
/* Opens a table of a recording. Only a plain file is one: a device may have no end, a pipe no other
 * side. */
int jm_csv_open(const char *path, FILE **ret, struct jm_err *err);
/* Reads one line; splits it in place into at most n fields, quotes undone. Returns how many, 0 at
 * the end of the file, or JM_EFORMAT. *line is allocated as by getline. */
int jm_csv_row(FILE *f, char **line, size_t *room, char **field, int n);
/* Exact: nanoseconds as seconds with nine digits. */
void jm_csv_put_time(FILE *f, int64_t ns);

#endif
