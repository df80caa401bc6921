/* SPDX-License-Identifier: Apache-2.0 */
/* How often, in which order and with which pauses a plan is run: the part of a request's "how" that
 * is its protocol. */
#include "run_protocol.h"
#include "cli/measure/measure_repeat.h"
#include "result/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int add_until(struct jm_cli *cli, const struct jm_run_given *g, json_t *how)
{
	const char *text = g->until_interval;
	double share;

	if (!text)
		return g->max_repeat_given ? jm_err_set(&cli->err, JM_EUSAGE,
						     "--max-repeat has no effect without "
						     "--until-interval; give "
						     "both, or --repeat.")
					   : 0;
	if (jm_measure_share(text, &share, &cli->err))
		return cli->err.code;
	json_object_set_new(how, "until_interval", json_real(share));
	json_object_set_new(how, "max_repeat", json_integer(g->max_repeat));
	return 0;
}

static int unknown_kind(struct jm_cli *cli, const char *kind)
{
	const char *near = jm_did_you_mean(kind, jm_failure_words, JM_FAILURE_KINDS);

	return jm_err_set(&cli->err, JM_EUSAGE,
		"--retries does not know the failure '%s'%s%s%s; it knows memory, timeout, crash, "
		"device, command and work.",
		kind, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* "2" for those that may pass, or "crash=2". */
static int add_retry(struct jm_cli *cli, char *part, json_t *retries)
{
	static const enum jm_failure passing[] = {
		JM_FAILURE_TIMEOUT, JM_FAILURE_CRASH, JM_FAILURE_DEVICE};
	char *equals = strchr(part, '='), *end;
	const char *text = equals ? equals + 1 : part;
	long n = strtol(text, &end, 10);

	if (!*text || strspn(text, "0123456789") < strlen(text) || *end || n > 100)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--retries takes numbers up to 100, as in 2 or crash=2,timeout=1, not "
			"'%s'.",
			part);
	for (size_t i = 0; !equals && i < sizeof(passing) / sizeof(passing[0]); i++)
		json_object_set_new(retries, jm_failure_words[passing[i]], json_integer(n));
	if (!equals)
		return 0;
	*equals = '\0';
	for (int i = 0; i < JM_FAILURE_KINDS; i++)
		if (!strcmp(jm_failure_words[i], part)) {
			json_object_set_new(retries, part, json_integer(n));
			return 0;
		}
	return unknown_kind(cli, part);
}

static int add_retries(struct jm_cli *cli, const struct jm_run_given *g, json_t *how)
{
	char *copy = g->retries ? strdup(g->retries) : NULL, *rest = copy, *part;
	json_t *retries = json_object();
	int rc = 0;

	while (copy && !rc && (part = strsep(&rest, ",")))
		rc = add_retry(cli, part, retries);
	if (!rc && copy)
		json_object_set(how, "retries", retries);
	json_decref(retries);
	free(copy);
	return rc;
}

int jm_run_protocol(struct jm_cli *cli, const struct jm_run_given *g, json_t *how)
{
	int rc = add_until(cli, g, how);

	if (!rc)
		rc = add_retries(cli, g, how);
	if (!isnan(g->cooldown))
		json_object_set_new(how, "cooldown_s", json_real(g->cooldown));
	if (g->order_given)
		json_object_set_new(how, "order", json_string(g->order));
	if (g->idle_gpus)
		json_object_set_new(how, "idle_gpus", json_true());
	if (!isnan(g->add_watts))
		json_object_set_new(how, "add_watts", json_real(g->add_watts));
	return rc;
}
