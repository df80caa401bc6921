/* SPDX-License-Identifier: Apache-2.0 */
#include "gang_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_S 600.0

/* Who sets which variables. NULL: it sets none. */
static const struct {
	const char *rank, *world;
} families[] = {
	{"RANK", "WORLD_SIZE"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"PMIX_RANK", NULL},
	{"SLURM_PROCID", "SLURM_NTASKS"},
};

/* A number of a variable, and who has told it. */
struct told {
	const char *name;
	int value; /* -1 = it is not told */
};

static int take(const char *name, struct told *t, struct jm_err *err)
{
	const char *text = name ? secure_getenv(name) : NULL;
	char *end;
	long n;

	if (!text)
		return 0;
	n = strtol(text, &end, 10);
	if (!*text || *end || n < 0 || n > 1000000)
		return jm_err_set(err, JM_EUSAGE,
			"%s is '%.40s', which is no number of a rank or of ranks.", name, text);
	if (t->value >= 0 && t->value != (int)n)
		return jm_err_set(err, JM_EUSAGE,
			"%s=%d contradicts %s=%ld; unset the variables of the launcher that did "
			"not "
			"start this process.",
			t->name, t->value, name, n);
	*t = (struct told){name, (int)n};
	return 0;
}

static int take_numbers(struct jm_gang_place *ret, struct jm_err *err)
{
	struct told rank = {NULL, -1}, world = {NULL, -1};
	int code = 0;

	for (size_t i = 0; i < sizeof(families) / sizeof(*families) && !code; i++) {
		code = take(families[i].rank, &rank, err);
		if (!code)
			code = take(families[i].world, &world, err);
	}
	if (code)
		return code;
	if (rank.value < 0 || world.value < 0)
		return jm_err_set(err, JM_EUSAGE,
			"--launcher started needs the number of this rank and of all ranks; start "
			"it "
			"by mpirun, srun or torchrun, or set RANK and WORLD_SIZE.");
	if (world.value < 2 || world.value > JM_MEET_MOST || rank.value >= world.value)
		return jm_err_set(err, JM_EUSAGE,
			"%s=%d and %s=%d: there can be 2 to %d ranks, counted from 0.", rank.name,
			rank.value, world.name, world.value, JM_MEET_MOST);
	ret->rank = rank.value;
	ret->world = world.value;
	return 0;
}

/* The first of a list of hosts of Slurm: n1 of "n[1-2,7],m3", r1n03 of "r[1-2]n[03-04]". False:
 * there is none. */
static bool first_host(const char *list, char ret[JM_HOST_SIZE])
{
	size_t n = 0;

	for (const char *at = list; at && *at && *at != ',';) {
		bool several = *at == '[';
		size_t part = strcspn(at += several, several ? "-,]" : "[,");

		if (n + part >= JM_HOST_SIZE)
			return false;
		memcpy(ret + n, at, part);
		n += part;
		at += several ? strcspn(at, "]") : part;
		at += several && *at;
	}
	ret[n] = '\0';
	return n;
}

/* Of a step of Slurm, without the variables that a user sets: rank 0 is on its first host. The port
 * differs between steps that may run there at one time. */
static bool take_step(char ret_host[JM_HOST_SIZE], char *ret_port, size_t size)
{
	const char *job = secure_getenv("SLURM_JOB_ID"), *step = secure_getenv("SLURM_STEP_ID");

	if (!job || !step || !first_host(secure_getenv("SLURM_STEP_NODELIST"), ret_host))
		return false;
	snprintf(ret_port, size, "%lu",
		15000 + (31 * strtoul(job, NULL, 10) + strtoul(step, NULL, 10)) % 15000);
	return true;
}

static int take_address(struct jm_gang_place *ret, struct jm_err *err)
{
	const char *host = secure_getenv("MASTER_ADDR"), *port = secure_getenv("MASTER_PORT");
	char address[JM_HOST_SIZE + 16], step_host[JM_HOST_SIZE], step_port[8];
	bool step = take_step(step_host, step_port, sizeof(step_port));

	if (step && (!host || !*host))
		host = step_host;
	if (step && (!port || !*port))
		port = step_port;
	if (!host || !*host || !port || !*port)
		return jm_err_set(err, JM_EUSAGE,
			"Set MASTER_ADDR to the address of the host of rank 0 and MASTER_PORT to a "
			"free port there, the same for all ranks.");
	snprintf(address, sizeof(address), strchr(host, ':') && *host != '[' ? "[%s]:%s" : "%s:%s",
		host, port);
	return jm_tcp_parse(address, ret->host, &ret->port, err);
}

static int take_secret(struct jm_gang_place *ret, struct jm_err *err)
{
	const char *secret = secure_getenv("JM_GANG_SECRET");

	if (!secret || strlen(secret) < JM_SECRET_LEAST)
		return jm_err_set(err, JM_EUSAGE,
			"Set JM_GANG_SECRET to a random text of at least %d characters, the same "
			"for all ranks, such as that of 'openssl rand -hex 16': only who knows it "
			"may join.",
			JM_SECRET_LEAST);
	jm_key_of_text(secret, ret->key);
	unsetenv("JM_GANG_SECRET");
	return 0;
}

double jm_gang_seconds(void)
{
	const char *given = secure_getenv("JM_GANG_SECONDS");
	double seconds = given ? strtod(given, NULL) : 0;

	return seconds > 0 && seconds < 1e9 ? seconds : JOIN_S;
}

int jm_gang_place_read(struct jm_gang_place *ret, struct jm_err *err)
{
	int code = take_numbers(ret, err);

	if (!code)
		code = take_address(ret, err);
	return code ? code : take_secret(ret, err);
}
