/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joulemarkd: sets knobs for users without rights, within root's policy. Started by systemd, or
 * whatever else hands it a listening socket as sd_listen_fds(3) describes. It believes nothing of
 * its environment but that.
 */
#include "base/ctx.h"
#include "base/text/number.h"
#include "door.h"
#include "guard/joulemarkd_link.h"
#include "lease_list.h"
#include "policy.h"
#include "policy_file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENER 3 /* SD_LISTEN_FDS_START */

/* "<4>": syslog's priority, as sd-daemon(3) has it; one write, so that lines of several processes
 * stay whole. */
static void log_line(void *arg, enum jm_level level, const char *line)
{
	const int priority = level == JM_WARNING ? 4 : level == JM_INFO ? 6 : 7;

	(void)arg;
	if (level != JM_DEBUG)
		dprintf(STDERR_FILENO, "<%d>%s\n", priority, line);
}

static int fail(const struct jm_err *err)
{
	dprintf(STDERR_FILENO, "<3>%s\n", err->text);
	return err->code == JM_EUSAGE ? 2 : 125;
}

/* The socket that was handed over; the environment is empty afterwards. */
static int take_socket(struct jm_err *err)
{
	const char *pid = secure_getenv("LISTEN_PID"), *fds = secure_getenv("LISTEN_FDS");
	uint64_t number = 0, count = 0;
	int type = 0, listens = 0;
	socklen_t size = sizeof(type);
	bool handed = pid && fds && jm_number_whole(pid, INT32_MAX, &number) &&
		      number == (uint64_t)getpid() && jm_number_whole(fds, INT32_MAX, &count) &&
		      count == 1;

	clearenv();
	if (!handed)
		return jm_err_set(err, JM_EUSAGE,
			"joulemarkd is started with one listening socket, by 'systemctl enable "
			"--now "
			"joulemarkd.socket'.");
	if (getsockopt(LISTENER, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_SEQPACKET ||
		getsockopt(LISTENER, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
		return jm_err_set(err, JM_EUSAGE,
			"The socket that joulemarkd was started with is none that listens for "
			"packets "
			"in sequence (ListenSequentialPacket=).");
	return 0;
}

static int check_policy(const char *path)
{
	static const char *const who[] = {"user", "group", "everyone"};
	struct jm_policy policy = {0};
	struct jm_err err = JM_ERR_INIT;
	int rc = jm_policy_load(path, &policy, &err);

	if (rc) {
		fprintf(stderr, "joulemarkd: %s\n", err.text);
		return 125;
	}
	for (int i = 0; i < policy.n; i++)
		if (policy.rule[i].who != JM_RULE_EVERYONE && policy.rule[i].id == JM_RULE_NOBODY)
			fprintf(stderr, "joulemarkd: warning: there is no %s '%s'.\n",
				who[policy.rule[i].who], policy.rule[i].name);
	printf("%d rules.\n", policy.n);
	jm_policy_done(&policy);
	return 0;
}

int main(int argc, char **argv)
{
	const struct jm_door_options o = {
		.listener = LISTENER, .policy = JM_POLICY_PATH, .leases = JM_LEASE_FOLDER};
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;
	bool check = argc == 3 && !strcmp(argv[1], "--check");

	if (argc == 2 && !strcmp(argv[1], "--version"))
		return printf("joulemarkd %s\n", JM_VERSION) < 0;
	if (argc > 1 && !check) {
		fprintf(stderr,
			"usage: joulemarkd [--check POLICY | --version]\n"
			"joulemarkd serves the socket that systemd hands over; " JM_POLICY_PATH
			" is its policy.\n");
		return 2;
	}
	signal(SIGIO, SIG_IGN); /* a writer waits for the policy's file, which is being read */
	if (check)
		return check_policy(argv[2]);
	if (take_socket(&err))
		return fail(&err);
	if (geteuid())
		return jm_err_set(&err, JM_EPERM, "joulemarkd has to be root."), fail(&err);
	signal(SIGPIPE, SIG_IGN);
	if (jm_ctx_init(&ctx, &err))
		return fail(&err);
	jm_ctx_set_log(&ctx, log_line, NULL);
	return jm_door_serve(&ctx, &o, &err) ? fail(&err) : 0;
}
