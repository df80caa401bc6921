/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A management controller behind the two ioctls of /dev/ipmi0, loaded before the C library: an
 * ordinary file named by JM_FAKE_IPMI holds "MS HEX...": the delay of the answer and its bytes with
 * the completion code first. The file is read at each request, so that a test may change it;
 * without bytes there is no answer, without the file no device.
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

static int question(const struct ipmi_req *r)
{
	static const unsigned char power[] = {0xdc, 1, 0, 0};
	FILE *f = fopen(getenv("JM_FAKE_IPMI"), "re");
	struct answer a = {.msgid = r->msgid};
	unsigned int byte;
	double ms;

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
	if (a.n && waiting < QUEUE)
		queue[waiting++] = a;
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
	r->msg.cmd = 2;
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
