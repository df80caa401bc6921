/* SPDX-License-Identifier: Apache-2.0 */
#include "base/csv.h"

#include <string.h>

#include "joulemark.h"

void jm_csv_put_text(FILE *f, const char *text)
{
	if (!strpbrk(text, ",\"\r\n")) {
		fputs(text, f);
		return;
	}
	fputc('"', f);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', f);
		fputc(*text, f);
	}
	fputc('"', f);
}

/* One field from *at on; moves *at behind it. NULL for a quote that does not end. */
static char *take_field(char **at)
{
	char *begin = *at, *in = *at, *out = *at;

	if (*in != '"') {
		in += strcspn(in, ",\r\n");
		*at = *in == ',' ? in + 1 : NULL;
		*in = '\0';
		return begin;
	}
	for (in++; *in && (*in != '"' || in[1] == '"'); in++) {
		in += *in == '"';
		*out++ = *in;
	}
	if (*in != '"')
		return NULL;
	*at = in[1] == ',' ? in + 2 : NULL;
	*out = '\0';
	return begin;
}

int jm_csv_row(FILE *f, char **line, size_t *room, char **field, int n)
{
	ssize_t length = getline(line, room, f);
	char *at = *line;
	int found = 0;

	if (length <= 0)
		return 0;
	if (memchr(*line, '\0', (size_t)length))
		return JM_EFORMAT;
	while (at && found < n) {
		field[found] = take_field(&at);
		if (!field[found])
			return JM_EFORMAT;
		found++;
	}
	return at ? JM_EFORMAT : found;
}

void jm_csv_put_time(FILE *f, int64_t ns)
{
	uint64_t u = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

	fprintf(f, "%s%llu.%09llu", ns < 0 ? "-" : "", (unsigned long long)(u / 1000000000),
		(unsigned long long)(u % 1000000000));
}
