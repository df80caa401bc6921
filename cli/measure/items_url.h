/* SPDX-License-Identifier: Apache-2.0 */
/* `measure --items-url`: items that a server counts itself, in a metric that Prometheus could
 * read. */
#ifndef JM_ITEMS_URL_H
#define JM_ITEMS_URL_H

#include "cli/frame/cli.h"

#include <pthread.h>

struct jm_items_url_options {
	const char *url, *metric; /* NULL = not given */
};

struct jm_items_url {
	struct jm_items_url_options options;
	struct jm_http_client *client; /* NULL = the items are counted otherwise */
	struct jm_ctx *ctx;
	double first, last; /* of the counter; NAN = its latest value is not known */
	bool fell;	    /* it was smaller than before: its server began anew */
	double seen;	    /* the newest value that is known */
	int64_t seen_ns;    /* and when that was */
	pthread_t thread;
	pthread_mutex_t lock; /* of `over` */
	pthread_cond_t changed;
	bool over, runs; /* runs: the thread does */
	char why[512];	 /* it could not be read */
};

/* Before anything is measured: the metric is there. */
int jm_items_url_open(struct jm_items_url *u, struct jm_cli *cli);
/* Reads the counter where the measurement begins, and from then on once a second. */
int jm_items_url_begin(struct jm_items_url *u, struct jm_err *err);
/* Reads it where the measurement ends. Items since the begin; NAN = unknown, with a warning that
 * says why. */
double jm_items_url_end(struct jm_items_url *u);
void jm_items_url_close(struct jm_items_url *u);

#endif
