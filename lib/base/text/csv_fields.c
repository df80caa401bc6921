/* SPDX-License-Identifier: Apache-2.0 */
#include "csv_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static bool is_plain(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode);
}

int jm_csv_open(const char *path, FILE **ret, struct jm_err *err)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), number = errno;
	bool plain = fd >= 0 && is_plain(fd);

	*ret = plain ? fdopen(fd, "r") : NULL;
	if (*ret)
		return 0;
	if (fd >= 0)
		close(fd);
	return jm_err_set(err,
		fd >= 0		   ? JM_EFORMAT
		: number == EACCES ? JM_EPERM
				   : JM_ENOENT,
		"Cannot read %s: %s; a recording is a folder that 'joulemark measure --csv' wrote.",
		path,
		fd < 0	? strerror(number)
		: plain ? "out of memory"
			: "it is not a plain file");
}

/* As getline, of lines up to JM_CSV_LINE: 0 at the end, or JM_EFORMAT. */
static ssize_t read_line(FILE *f, char **line, size_t *room)
{
	size_t n = 0;
	int c;

	do {
		if (n + 2 > *room) {
			size_t more = *room ? 2 * *room : 256;
			char *grown = n < JM_CSV_LINE ? realloc(*line, more) : NULL;

			if (!grown)
				return JM_EFORMAT;
			*line = grown;
			*room = more;
		}
		c = getc_unlocked(f);
		if (c != EOF)
			(*line)[n++] = (char)c;
	} while (c != EOF && c != '\n');
	(*line)[n] = '\0';
	return (ssize_t)n;
}

/* One field from *at on; moves *at after it. NULL for a quote that does not end. */
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
	ssize_t length = read_line(f, line, room);
	char *at = *line;
	int found = 0;

	if (length <= 0)
		return (int)length;
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
