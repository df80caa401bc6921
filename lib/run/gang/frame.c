/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: a head of type and size, then the bytes. */
#include "frame.h"
#include "base/clock.h"
#include "base/net/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FRAME (256u << 20)
#define READ_SIZE 65536
#define WRITE_NS  (8 * JM_SECOND)

struct head {
	uint32_t type, size;
};

/* Waits for a connection whose buffer is full. */
static bool is_writable(int fd)
{
	return jm_tcp_wait(fd, POLLOUT, jm_clock_now(jm_clock_real()) + WRITE_NS);
}

/* Of a connection: the other end or the way to it is gone. */
static bool is_over(int why)
{
	return why == ECONNRESET || why == ETIMEDOUT || why == EPIPE || why == EHOSTUNREACH ||
	       why == ENETUNREACH;
}

static int write_all(int fd, struct iovec *iov, int n)
{
	while (n) {
		ssize_t done = writev(fd, iov, n);

		if (done < 0 && (errno == EINTR || (errno == EAGAIN && is_writable(fd))))
			continue;
		if (done < 0)
			return -1;
		for (; n && (size_t)done >= iov->iov_len; iov++, n--)
			done -= (ssize_t)iov->iov_len;
		if (n) {
			iov->iov_base = (char *)iov->iov_base + done;
			iov->iov_len -= (size_t)done;
		}
	}
	return 0;
}

int jm_frame_write(int fd, enum jm_frame_type type, const void *head, size_t n_head,
	const void *body, size_t n_body, struct jm_err *err)
{
	struct head h = {type, (uint32_t)(n_head + n_body)};
	struct iovec iov[] = {{&h, sizeof(h)}, {(void *)(uintptr_t)head, n_head},
		{(void *)(uintptr_t)body, n_body}};

	if (n_head + n_body > MAX_FRAME)
		return jm_err_set(err, JM_EBUG, "A message of %zu bytes is too large to send.",
			n_head + n_body);
	if (write_all(fd, iov, 3))
		return jm_err_set(err, JM_EGONE,
			"The program that started this worker has ended: %s.", strerror(errno));
	return 0;
}

int jm_frame_write_json(int fd, enum jm_frame_type type, const json_t *json, struct jm_err *err)
{
	char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15));
	int rc;

	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a message.");
	rc = jm_frame_write(fd, type, text, strlen(text), NULL, 0, err);
	free(text);
	return rc;
}

/* Makes room for one more read; frames that were already returned are dropped. */
static int make_room(struct jm_frame_reader *r, struct jm_err *err)
{
	char *grown;

	memmove(r->buffer, r->buffer + r->taken, r->used - r->taken);
	r->used -= r->taken;
	r->taken = 0;
	if (r->size - r->used >= READ_SIZE)
		return 0;
	grown = realloc(r->buffer, r->used + 2 * READ_SIZE + r->used / 2);
	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a worker's message.");
	r->buffer = grown;
	r->size = r->used + 2 * READ_SIZE + r->used / 2;
	return 0;
}

int jm_frame_fill(struct jm_frame_reader *r, int fd, bool *ret_end, struct jm_err *err)
{
	int rc = r->buffer ? make_room(r, err) : 0;
	ssize_t n;

	if (!r->buffer) {
		r->buffer = malloc(READ_SIZE);
		r->size = READ_SIZE;
		if (!r->buffer)
			return jm_err_set(err, JM_ENOMEM, "Out of memory for a worker's message.");
	}
	if (rc)
		return rc;
	n = read(fd, r->buffer + r->used, r->size - r->used);
	if (n < 0 && is_over(errno))
		n = 0;
	if (n < 0 && errno != EINTR && errno != EAGAIN)
		return jm_err_set(
			err, JM_EIO, "Reading from a worker failed: %s.", strerror(errno));
	if (n > 0)
		r->used += (size_t)n;
	*ret_end = n == 0;
	return 0;
}

int jm_frame_next(struct jm_frame_reader *r, struct jm_frame *ret, struct jm_err *err)
{
	size_t left = r->used - r->taken;
	struct head h;

	if (left < sizeof(h))
		return 0;
	memcpy(&h, r->buffer + r->taken, sizeof(h));
	if (h.size > MAX_FRAME || h.type < JM_FRAME_SIGNALS || h.type >= JM_FRAME_END)
		return jm_err_set(
			err, JM_EFORMAT, "A worker sent data that is not a message of joulemark.");
	if (left < sizeof(h) + h.size)
		return 0;
	*ret = (struct jm_frame){
		(enum jm_frame_type)h.type, r->buffer + r->taken + sizeof(h), h.size};
	r->taken += sizeof(h) + h.size;
	return 1;
}

void jm_frame_reader_done(struct jm_frame_reader *r)
{
	free(r->buffer);
	*r = (struct jm_frame_reader){0};
}
