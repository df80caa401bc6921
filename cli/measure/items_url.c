/* SPDX-License-Identifier: Apache-2.0 */
#include "items_url.h"

#include "base/clock.h"
#include "base/process/quiet_thread.h"
#include "base/text/metric_text.h"
#include "vendor/http_client.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE_S  5
#define READ_EVERY JM_SECOND

static int check(const struct jm_items_url *u, struct jm_cli *cli)
{
	static const char *const others[] = {"items-regex", "items-json", "items-kind", "repeat",
		"until", "until-interval", NULL};
	const struct jm_items_url_options *o = &u->options;
	const char *name = jm_cli_first_given(cli, others);

	if (!o->url || !o->metric)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--items-url and --items-metric belong together: the metrics of a server, "
			"such "
			"as http://127.0.0.1:8000/metrics, and the counter of items among them.");
	if (name)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--items-url counts the items of one measurement; omit it, or --%s.", name);
	return jm_metric_selector_check(o->metric, &cli->err);
}

static int read_counter(const struct jm_items_url *u, double *ret, struct jm_err *err)
{
	char *text = jm_http_client_get_text(u->client, "", err), names[200];
	int n = text ? jm_metric_text_sum(text, u->options.metric, ret) : 0;

	if (text && !n) {
		jm_metric_text_counters(text, names, sizeof(names));
		jm_err_set(err, JM_ENOENT, "%s has no metric %s%s%s.", u->options.url,
			u->options.metric, *names ? "; it has counters such as " : "", names);
	}
	if (n && isnan(*ret))
		jm_err_set(err, JM_EFORMAT, "The metric %s of %s is no finite number.",
			u->options.metric, u->options.url);
	free(text);
	return err->code;
}

int jm_items_url_open(struct jm_items_url *u, struct jm_cli *cli)
{
	const struct jm_http_client_options o = {.url = u->options.url, .silence_s = SILENCE_S};
	int rc;

	if (!u->options.url && !u->options.metric)
		return 0;
	u->ctx = &cli->ctx;
	rc = check(u, cli);
	if (!rc)
		rc = jm_http_client_new(&o, &u->client, &cli->err);
	if (!rc)
		rc = read_counter(u, &u->first, &cli->err);
	return rc;
}

/* One reading; what it says is kept. */
static void look(struct jm_items_url *u)
{
	struct jm_err err = JM_ERR_INIT;

	if (read_counter(u, &u->last, &err)) {
		u->last = NAN;
		snprintf(u->why, sizeof(u->why), "%s", err.text);
		return;
	}
	u->fell = u->fell || u->last < u->seen;
	u->seen = u->last;
	u->seen_ns = jm_ctx_now(u->ctx);
}

/* False: it is over. */
static bool wait_a_while(struct jm_items_url *u)
{
	struct timespec until;
	bool over;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += READ_EVERY / JM_SECOND;
	pthread_mutex_lock(&u->lock);
	while (!u->over && !pthread_cond_clockwait(&u->changed, &u->lock, CLOCK_MONOTONIC, &until))
		;
	over = u->over;
	pthread_mutex_unlock(&u->lock);
	return !over;
}

static void *watch(void *arg)
{
	struct jm_items_url *u = arg;

	while (wait_a_while(u))
		look(u);
	return NULL;
}

int jm_items_url_begin(struct jm_items_url *u, struct jm_err *err)
{
	int rc;

	if (!u->client)
		return 0;
	rc = read_counter(u, &u->first, err);
	if (rc)
		return rc;
	u->seen = u->last = u->first;
	u->seen_ns = jm_ctx_now(u->ctx);
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->changed, NULL);
	rc = jm_quiet_thread(&u->thread, watch, u);
	u->runs = !rc;
	return rc ? jm_err_set(err, JM_ENOMEM, "Cannot start the thread that reads %s: %s.",
			    u->options.url, strerror(rc))
		  : 0;
}

double jm_items_url_end(struct jm_items_url *u)
{
	int64_t end_ns = jm_ctx_now(u->ctx);

	pthread_mutex_lock(&u->lock);
	u->over = true;
	pthread_cond_signal(&u->changed);
	pthread_mutex_unlock(&u->lock);
	pthread_join(u->thread, NULL);
	pthread_cond_destroy(&u->changed);
	pthread_mutex_destroy(&u->lock);
	u->runs = false;
	look(u);
	if (!u->fell && !isnan(u->last))
		return u->last - u->first;
	if (u->fell)
		jm_log(u->ctx, JM_WARNING,
			"%s became smaller while it was measured, as where its server starts anew, "
			"so the "
			"items are unknown.",
			u->options.metric);
	else
		jm_log(u->ctx, JM_WARNING,
			"The items are unknown, because their counter could not be read at the "
			"end: %s "
			"%.1f s before, there were %.10g items. End the measurement (--for, "
			"Ctrl-C) while "
			"the server answers.",
			u->why, (double)(end_ns - u->seen_ns) * 1e-9, u->seen - u->first);
	return NAN;
}

void jm_items_url_close(struct jm_items_url *u)
{
	jm_http_client_free(u->client);
	u->client = NULL;
}
