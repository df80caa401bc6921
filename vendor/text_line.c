/* SPDX-License-Identifier: Apache-2.0 */
#include "text_line.h"
#include "base/clock.h"
#include "base/net/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

static int64_t now_ns(void)
{
	return jm_clock_now(jm_clock_real());
}

/* ---- opening ---- */

static speed_t speed_of(int baud)
{
	switch (baud) {
	case 1200:
		return B1200;
	case 2400:
		return B2400;
	case 4800:
		return B4800;
	case 19200:
		return B19200;
	case 38400:
		return B38400;
	case 57600:
		return B57600;
	case 115200:
		return B115200;
	}
	return B9600;
}

/* 8 bits, no parity, one stop bit, nothing translated. */
static void set_serial(int fd, int baud)
{
	struct termios t;

	if (tcgetattr(fd, &t))
		return;
	cfmakeraw(&t);
	t.c_cflag |= CLOCAL | CREAD;
	t.c_cflag &= ~(tcflag_t)(CSTOPB | PARENB | CRTSCTS);
	cfsetispeed(&t, speed_of(baud));
	cfsetospeed(&t, speed_of(baud));
	tcsetattr(fd, TCSANOW, &t);
	tcflush(fd, TCIOFLUSH);
}

void jm_text_line_limit(struct jm_text_line *line)
{
	line->until_ns = now_ns() + line->timeout_ns;
}

bool jm_text_line_open(struct jm_text_line *line)
{
	line->used = 0;
	if (line->host[0] != '/') {
		line->fd = jm_tcp_connect(line->host, line->port, line->until_ns);
		return line->fd >= 0;
	}
	line->fd = open(line->host, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (line->fd >= 0 && isatty(line->fd))
		set_serial(line->fd, line->baud);
	return line->fd >= 0;
}

void jm_text_line_close(struct jm_text_line *line)
{
	if (line->fd >= 0)
		close(line->fd);
	line->fd = -1;
	line->used = 0;
}

/* ---- lines ---- */

static bool fail(struct jm_text_line *line)
{
	jm_text_line_close(line);
	return false;
}

static bool is_socket(const struct jm_text_line *line)
{
	return line->host[0] != '/';
}

bool jm_text_line_send(struct jm_text_line *line, const char *text)
{
	char whole[512];
	int n = snprintf(whole, sizeof(whole), "%s%s", text, line->ending);

	if (line->fd < 0 || n < 0 || (size_t)n >= sizeof(whole))
		return false;
	for (int sent = 0; sent < n;) {
		ssize_t got = is_socket(line) ? send(line->fd, whole + sent, (size_t)(n - sent),
							MSG_NOSIGNAL)
					      : write(line->fd, whole + sent, (size_t)(n - sent));

		if (got > 0)
			sent += (int)got;
		else if (errno == EINTR)
			continue;
		else if (errno != EAGAIN || !jm_tcp_wait(line->fd, POLLOUT, line->until_ns))
			return fail(line);
	}
	return true;
}

/* A whole line of what was received; false = there is none yet. */
static bool take_line(struct jm_text_line *line, char *out, size_t size)
{
	char *end = memchr(line->received, '\n', line->used);
	size_t n, all;

	if (!end)
		return false;
	all = (size_t)(end - line->received) + 1;
	n = all - 1;
	if (n && line->received[n - 1] == '\r')
		n--;
	n = n < size - 1 ? n : size - 1;
	memcpy(out, line->received, n);
	out[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (!out[i])
			out[i] = '?';
	line->used -= all;
	memmove(line->received, end + 1, line->used);
	return true;
}

bool jm_text_line_receive(struct jm_text_line *line, char *out, size_t size)
{
	if (line->fd < 0)
		return false;
	while (!take_line(line, out, size)) {
		size_t room = sizeof(line->received) - line->used;
		ssize_t got;

		if (!room || !jm_tcp_wait(line->fd, POLLIN, line->until_ns))
			return fail(line);
		got = read(line->fd, line->received + line->used, room);
		if (got > 0)
			line->used += (size_t)got;
		else if (!got || (errno != EAGAIN && errno != EINTR))
			return fail(line);
	}
	return true;
}

bool jm_text_line_ask(struct jm_text_line *line, const char *text, char *out, size_t size)
{
	return jm_text_line_send(line, text) && jm_text_line_receive(line, out, size);
}
