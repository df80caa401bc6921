/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of text to and from an instrument: over TCP, a serial port, or Linux' /dev/usbtmcN. After
 * an answer that did not come in time the line is closed, so that it cannot be taken for the answer
 * to the next question.
 */
#ifndef JM_VENDOR_TEXT_LINE_H
#define JM_VENDOR_TEXT_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jm_text_line {
	char host[256];	    /* a name, or the path of a device file */
	int port;	    /* TCP */
	int baud;	    /* serial */
	const char *ending; /* of what is sent: "\n", "\r\n" */
	int64_t timeout_ns;
	int64_t until_ns;    /* of jm_text_line_limit */
	int fd;		     /* -1 = closed */
	char received[8192]; /* beyond the last line that was given */
	size_t used;
};

/* One time limit, timeout_ns from now on, for all calls until the next jm_text_line_limit. */
void jm_text_line_limit(struct jm_text_line *line);
/* False with errno, or with ETIMEDOUT. What an earlier user left unread is thrown away. */
bool jm_text_line_open(struct jm_text_line *line);
void jm_text_line_close(struct jm_text_line *line);
/* False: nothing came in time or the line is broken; it is closed then. */
bool jm_text_line_send(struct jm_text_line *line, const char *text);
/* The next line without its end; one that does not fit is an error. */
bool jm_text_line_receive(struct jm_text_line *line, char *out, size_t size);
bool jm_text_line_ask(struct jm_text_line *line, const char *text, char *out, size_t size);

#endif
