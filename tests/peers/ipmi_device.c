/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A management controller behind the two ioctls of /dev/ipmi0, loaded before the C library: an
 * ordinary file named by JM_FAKE_IPMI holds "MS HEX...": the delay of the answer and its bytes with
 * the completion code first. The file is read at each request, so that a test may change it;
 * without bytes there is no answer, without the file no device for that.
 *
 * The power limit lies in a file beside it, named ".limit": ACTION WATTS CORRECTION_MS SAMPLING_S
 * ACTIVE LEAST MOST, and is kept across processes as a controller keeps it. Without the file its
 * commands are not known. A limit outside of LEAST and MOST is refused (84h). A new limit is not
 * active until it is activated, as DCMI 1.5 (6.6.3) leaves it open. JM_FAKE_IPMI_REFUSES: the
 * number of a command that this user may not give (d4h). JM_FAKE_IPMI_SHORT: of a limit that is not
 * active it tells nothing but that.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/ipmi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#define QUEUE 64

struct answer {
	long msgid;
	unsigned char cmd;
	double at;
	int n;
	unsigned char bytes[64];
};

static struct answer queue[QUEUE];
static int waiting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the power limit (DCMI 1.5, 6.6.2 to 6.6.4) ---- */

struct limit {
	unsigned int action, watts, correction_ms, sampling_s, active, least, most;
};

static void limit_path(char out[600], const char *end)
{
	snprintf(out, 600, "%.500s.limit%s", getenv("JM_FAKE_IPMI"), end);
}

static int read_limit(struct limit *l)
{
	char path[600];
	FILE *f;
	int n;

	limit_path(path, "");
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fscanf(f, "%u %u %u %u %u %u %u", &l->action, &l->watts, &l->correction_ms,
		&l->sampling_s, &l->active, &l->least, &l->most);
	fclose(f);
	return n == 7;
}

/* In one step, as a kill may come at any time. */
static void keep_limit(const struct limit *l)
{
	char path[600], other[600];
	FILE *f;

	limit_path(path, "");
	limit_path(other, ".new");
	f = fopen(other, "we");
	if (!f)
		return;
	fprintf(f, "%u %u %u %u %u %u %u\n", l->action, l->watts, l->correction_ms, l->sampling_s,
		l->active, l->least, l->most);
	if (!fclose(f))
		rename(other, path);
}

static void tell_limit(const struct limit *l, struct answer *a)
{
	const unsigned char bytes[] = {l->active ? 0 : 0x80, 0xdc, 0, 0, (unsigned char)l->action,
		(unsigned char)l->watts, (unsigned char)(l->watts >> 8),
		(unsigned char)l->correction_ms, (unsigned char)(l->correction_ms >> 8),
		(unsigned char)(l->correction_ms >> 16), (unsigned char)(l->correction_ms >> 24), 0,
		0, (unsigned char)l->sampling_s, (unsigned char)(l->sampling_s >> 8)};

	a->n = !l->active && getenv("JM_FAKE_IPMI_SHORT") ? 1 : sizeof(bytes);
	memcpy(a->bytes, bytes, (size_t)a->n);
}

static unsigned char take_limit(const unsigned char *d, struct limit *l)
{
	unsigned int watts = d[5] | (unsigned int)d[6] << 8;

	if (watts < l->least || watts > l->most)
		return 0x84;
	l->action = d[4];
	l->watts = watts;
	l->active = 0;
	l->correction_ms = d[7] | (unsigned int)d[8] << 8 | (unsigned int)d[9] << 16 |
			   (unsigned int)d[10] << 24;
	l->sampling_s = d[13] | (unsigned int)d[14] << 8;
	keep_limit(l);
	return 0;
}

static void limit_command(const struct ipmi_req *r, struct answer *a)
{
	const char *refused = getenv("JM_FAKE_IPMI_REFUSES");
	const unsigned char *d = r->msg.data;
	struct limit l;

	a->n = 2;
	a->bytes[0] = 0xc7; /* of another length */
	a->bytes[1] = 0xdc;
	if (!read_limit(&l)) {
		a->bytes[0] = 0xc1;
	} else if (refused && atoi(refused) == r->msg.cmd) {
		a->bytes[0] = 0xd4;
	} else if (r->msg.cmd == 3 && r->msg.data_len == 3) {
		tell_limit(&l, a);
	} else if (r->msg.cmd == 4 && r->msg.data_len == 15) {
		a->bytes[0] = take_limit(d, &l);
	} else if (r->msg.cmd == 5 && r->msg.data_len == 4) {
		l.active = d[1];
		keep_limit(&l);
		a->bytes[0] = 0;
	}
}

static void queue_answer(const struct answer *a)
{
	if (a->n && waiting < QUEUE)
		queue[waiting++] = *a;
}

static int question(const struct ipmi_req *r)
{
	static const unsigned char power[] = {0xdc, 1, 0, 0};
	struct answer a = {.msgid = r->msgid, .cmd = r->msg.cmd, .at = now()};
	unsigned int byte;
	double ms;
	FILE *f;

	if (r->msg.netfn == 0x2c && r->msg.cmd >= 3 && r->msg.cmd <= 5 && r->msg.data[0] == 0xdc) {
		limit_command(r, &a);
		queue_answer(&a);
		return 0;
	}
	f = fopen(getenv("JM_FAKE_IPMI"), "re");
	if (!f) {
		errno = ENODEV;
		return -1;
	}
	if (fscanf(f, "%lf", &ms) == 1)
		while (a.n < 64 && fscanf(f, "%2x", &byte) == 1)
			a.bytes[a.n++] = (unsigned char)byte;
	fclose(f);
	/* another command than Get Power Reading is not known to it */
	if (r->msg.netfn != 0x2c || r->msg.cmd != 2 || r->msg.data_len != 4 ||
		memcmp(r->msg.data, power, 4) != 0)
		a.n = 1, a.bytes[0] = 0xc1;
	a.at = now() + ms * 1e-3;
	queue_answer(&a);
	return 0;
}

static int receive(struct ipmi_recv *r)
{
	struct answer a;

	if (!waiting || queue[0].at > now()) {
		errno = EAGAIN;
		return -1;
	}
	a = queue[0];
	memmove(queue, queue + 1, sizeof(queue[0]) * (size_t)--waiting);
	r->recv_type = IPMI_RESPONSE_RECV_TYPE;
	r->msgid = a.msgid;
	r->msg.netfn = 0x2d;
	r->msg.cmd = a.cmd;
	r->msg.data_len = (unsigned short)(a.n < r->msg.data_len ? a.n : r->msg.data_len);
	memcpy(r->msg.data, a.bytes, r->msg.data_len);
	return 0;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, ...);
	va_list args;
	void *arg;
	int rc;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	pthread_mutex_lock(&lock);
	if (request == IPMICTL_SEND_COMMAND) {
		rc = question(arg);
	} else if (request == IPMICTL_RECEIVE_MSG_TRUNC) {
		rc = receive(arg);
	} else {
		void *found = dlsym(RTLD_NEXT, "ioctl");

		memcpy(&next, &found, sizeof(next));
		rc = next(fd, request, arg);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}
