/* SPDX-License-Identifier: Apache-2.0 */
#include "door.h"
#include "daemon/policy_file.h"

#include "base/clock.h"
#include "base/process/forward_signals.h"
#include "base/rate.h"
#include "guard/guard_recover.h"
#include "guard/guard_wire.h"
#include "lease.h"
#include "lease_list.h"
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEASES_PER_S	64 /* of one user */
#define LEASES_AT_ONCE	256
#define USERS		64 /* whose rate is known, the latest */
#define ACCEPTS		64 /* before the rest of the work */
#define RECOVER_AGAIN_S 10 /* then twice as long each time, but at most: */
#define RECOVER_MOST_S	300
#define LACKS_MS	200 /* until a descriptor is asked for again, where none was free */

struct user {
	uid_t uid;
	struct jm_rate leases;
};

struct door {
	struct jm_ctx *ctx;
	const struct jm_door_options *o;
	struct jm_forward_signals signals;
	struct jm_policy policy;
	struct jm_lease_list list;
	struct user user[USERS];
	int n_users;
	struct jm_rate refusals; /* that are logged */
	int n_untold;
	bool recover;	     /* something is to be recovered, */
	int64_t recover_ns;  /* not before then */
	int recover_again_s; /* the pause after the next attempt */
	pid_t recovery;	     /* the process that does; 0 = none */
	int recovery_fd;
	bool lacks; /* a descriptor, for who waits at the listener */
};

/* ---- recovery -------------------------------------------------------------------------------- */

/* A new process; in it nothing of the door is open but what is in keep. */
static pid_t new_process(struct door *d)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setsid();
	close(d->o->listener);
	close(d->signals.fd);
	for (int i = 0; i < d->list.n; i++)
		close(d->list.row[i].pidfd);
	pthread_sigmask(SIG_SETMASK, &d->signals.before, NULL);
	return 0;
}

static void recover_soon(struct door *d)
{
	d->recover = true;
	d->recover_ns = 0;
	d->recover_again_s = RECOVER_AGAIN_S;
}

static void start_recovery(struct door *d)
{
	struct jm_err why = JM_ERR_INIT;
	pid_t pid;
	int n;

	if (d->recovery || !d->recover || jm_ctx_now(d->ctx) < d->recover_ns)
		return;
	pid = new_process(d);
	if (!pid)
		_exit(jm_guard_recover(d->ctx, &n, &why) ? 1 : 0);
	d->recover_ns = jm_ctx_now(d->ctx) + d->recover_again_s * JM_SECOND;
	d->recover_again_s *= 2;
	if (d->recover_again_s > RECOVER_MOST_S)
		d->recover_again_s = RECOVER_MOST_S;
	if (pid < 0)
		return;
	d->recover = false;
	d->recovery = pid;
}

static void end_recovery(struct door *d)
{
	int status = 0;

	if (waitpid(d->recovery, &status, WNOHANG) != d->recovery)
		return;
	close(d->recovery_fd);
	d->recovery = 0;
	d->recovery_fd = -1;
	d->recover = d->recover || status;
	if (!status)
		d->recover_ns = 0;
}

static int recover_in_ms(const struct door *d)
{
	int64_t ns = d->recover_ns - jm_ctx_now(d->ctx);

	if (!d->recover || d->recovery)
		return -1;
	return ns <= 0 ? 0 : (int)(ns / JM_MILLISECOND) + 1;
}

/* ---- who comes in ---------------------------------------------------------------------------- */

static bool may_come(struct door *d, uid_t uid)
{
	int64_t now = jm_ctx_now(d->ctx);
	struct user *u = NULL, *oldest = &d->user[0];

	for (int i = 0; i < d->n_users && !u; i++) {
		u = d->user[i].uid == uid ? &d->user[i] : NULL;
		if (d->user[i].leases.then_ns < oldest->leases.then_ns)
			oldest = &d->user[i];
	}
	if (!u) {
		u = d->n_users < USERS ? &d->user[d->n_users++] : oldest;
		*u = (struct user){
			.uid = uid, .leases = jm_rate_of(LEASES_PER_S, LEASES_AT_ONCE, now)};
	}
	return jm_rate_take(&u->leases, now);
}

/* What the policy and the leases that there are say to the peer. */
static int admit(struct door *d, const struct jm_peer *peer, struct jm_err *err)
{
	const struct jm_caller caller = {
		.uid = peer->uid, .group = peer->group, .n_groups = peer->n_groups};
	struct jm_err why = JM_ERR_INIT;
	unsigned int uid = peer->uid;
	int most;

	if (jm_policy_load(d->o->policy, &d->policy, &why)) {
		jm_log(d->ctx, JM_WARNING, "%s", why.text);
		return jm_err_set(err, JM_EPERM,
			"joulemarkd cannot use root's policy, so no user may set a knob; its "
			"journal "
			"has the reason.");
	}
	most = jm_policy_leases(&d->policy, &caller);
	if (!most)
		return jm_err_set(err, JM_EPERM,
			"Root's policy of joulemarkd lets user %u set no knob.", uid);
	if (!may_come(d, peer->uid))
		return jm_err_set(err, JM_EBUSY,
			"User %u asks joulemarkd for more than %d leases a second; try again in a "
			"second.",
			uid, LEASES_PER_S);
	if (jm_lease_list_count(&d->list, peer->uid) >= most)
		return jm_err_set(err, JM_EBUSY,
			"User %u has %d of the %d leases of joulemarkd that root's policy gives at "
			"once; wait until one of the programs that have them ends.",
			uid, most, most);
	if (d->list.n == JM_LEASES_MOST)
		return jm_err_set(err, JM_EBUSY,
			"joulemarkd has %d leases, and no room for more; try again later.",
			JM_LEASES_MOST);
	return 0;
}

static void refuse(struct door *d, int fd, const struct jm_peer *peer, const struct jm_err *why)
{
	char message[sizeof(struct jm_wire_reply)] = "";
	size_t n = jm_wire_put_refusal(message, why->code, why->text);

	send(fd, message, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (!jm_rate_take(&d->refusals, jm_ctx_now(d->ctx))) {
		d->n_untold++;
		return;
	}
	if (d->n_untold)
		jm_log(d->ctx, JM_WARNING, "%d more were refused", d->n_untold);
	d->n_untold = 0;
	jm_log(d->ctx, JM_WARNING, "refused user %d, process %d: %s", (int)peer->uid,
		(int)peer->process.pid, why->text);
}

static _Noreturn void be_guard(
	struct door *d, int fd, const struct jm_peer *peer, const char *file, int file_fd)
{
	int status;

	jm_lease_file_begin(file_fd);
	status = jm_lease_serve(d->ctx, fd, peer, &d->policy);
	if (!status)
		jm_lease_file_end(&d->list, file);
	_exit(status);
}

static int start_guard(struct door *d, int fd, const struct jm_peer *peer, struct jm_err *err)
{
	char file[40];
	int file_fd, rc = jm_lease_list_file(&d->list, peer->uid, file, &file_fd, err);
	pid_t pid;

	if (rc)
		return rc;
	pid = new_process(d);
	if (!pid)
		be_guard(d, fd, peer, file, file_fd);
	if (pid < 0) {
		rc = jm_err_set(
			err, JM_EIO, "joulemarkd cannot start a guard: %s.", strerror(errno));
		jm_lease_file_end(&d->list, file);
	} else {
		jm_lease_list_add(&d->list, peer->uid, pid, file);
	}
	close(file_fd);
	return rc;
}

static void receive(struct door *d, int fd)
{
	struct jm_peer peer = {.uid = (uid_t)-1, .pidfd = -1};
	struct jm_err why = JM_ERR_INIT;
	int rc = jm_peer_of(fd, &peer, &why);

	if (!rc) {
		rc = admit(d, &peer, &why);
		if (!rc)
			rc = start_guard(d, fd, &peer, &why);
		close(peer.pidfd);
	}
	if (rc)
		refuse(d, fd, &peer, &why);
}

static void accept_some(struct door *d)
{
	for (int i = 0; i < ACCEPTS; i++) {
		int fd = accept4(d->o->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			d->lacks = errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
				   errno == ENOMEM;
			return;
		}
		receive(d, fd);
		close(fd);
	}
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void look_at_guards(struct door *d, const struct pollfd *p, int n)
{
	/* the list is changed from its end */
	for (int i = n - 1; i >= 0; i--) {
		uid_t uid = d->list.row[i].uid;
		pid_t guard = d->list.row[i].guard;

		if (!p[i].revents || jm_lease_list_ended(&d->list, i))
			continue;
		jm_log(d->ctx, JM_WARNING,
			"The guard (process %d) of a lease of user %u was killed, or left "
			"something; "
			"recovering.",
			(int)guard, (unsigned int)uid);
		recover_soon(d);
	}
}

/* The end of a child, which keeps its number until it is waited for. Where no descriptor was free
 * when it was started, one is asked for again. */
static struct pollfd end_of(pid_t child, int *fd, bool *ret_lacks)
{
	if (*fd < 0)
		*fd = (int)syscall(SYS_pidfd_open, child, 0);
	*ret_lacks = *ret_lacks || *fd < 0;
	return (struct pollfd){.fd = *fd, .events = POLLIN};
}

static int wait_ms(const struct door *d, bool lacks)
{
	int ms = recover_in_ms(d);

	return lacks && (ms < 0 || ms > LACKS_MS) ? LACKS_MS : ms;
}

static int serve(struct door *d)
{
	static struct pollfd p[3 + JM_LEASES_MOST];

	for (;;) {
		int n = d->list.n;
		bool lacks = d->lacks;

		start_recovery(d);
		p[0] = (struct pollfd){.fd = d->signals.fd, .events = POLLIN};
		p[1] = (struct pollfd){.fd = lacks ? -1 : d->o->listener, .events = POLLIN};
		d->lacks = false;
		p[2] = (struct pollfd){.fd = -1};
		if (d->recovery)
			p[2] = end_of(d->recovery, &d->recovery_fd, &lacks);
		for (int i = 0; i < n; i++)
			p[3 + i] = end_of(d->list.row[i].guard, &d->list.row[i].pidfd, &lacks);
		if (poll(p, (nfds_t)n + 3, wait_ms(d, lacks)) < 0 && errno != EINTR)
			return JM_EIO;
		if (p[0].revents)
			return 0;
		if (p[2].revents)
			end_recovery(d);
		look_at_guards(d, p + 3, n);
		if (p[1].revents)
			accept_some(d);
	}
}

int jm_door_serve(struct jm_ctx *ctx, const struct jm_door_options *o, struct jm_err *err)
{
	struct door *d = calloc(1, sizeof(*d));
	struct jm_err why = JM_ERR_INIT;
	int killed = 0, rc;

	if (!d)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for joulemarkd.");
	d->ctx = ctx;
	d->o = o;
	d->recovery_fd = -1;
	recover_soon(d); /* of guards that were killed while no joulemarkd was there */
	d->refusals = jm_rate_of(1, 20, jm_ctx_now(ctx));
	rc = jm_lease_list_open(&d->list, o->leases, &killed, err);
	if (!rc)
		rc = jm_signals_catch(&d->signals, err);
	if (rc) {
		free(d);
		return rc;
	}
	fcntl(o->listener, F_SETFL, O_NONBLOCK);
	if (jm_policy_load(o->policy, &d->policy, &why))
		jm_log(ctx, JM_WARNING, "%s No user gets a lease until it is corrected.", why.text);
	jm_log(ctx, JM_INFO,
		"joulemarkd " JM_VERSION " serves; %d leases go on, %d guards were killed",
		d->list.n, killed);
	rc = serve(d);
	if (rc)
		jm_err_set(err, rc, "Cannot wait for connections: %s.", strerror(errno));
	jm_log(ctx, JM_INFO, "joulemarkd ends; %d leases go on", d->list.n);
	jm_lease_list_close(&d->list);
	jm_policy_done(&d->policy);
	jm_signals_release(&d->signals);
	free(d);
	return rc;
}
