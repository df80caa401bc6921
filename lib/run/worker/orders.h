/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from a parent to its worker: lines of text, each
 *
 *	joulemark-orders/1 stop			the work ends after the current step
 *	joulemark-orders/1 applied TEXT		a setting of a phase, as case_settings.h has it, in
 *						JSON
 *	joulemark-orders/1 setting TEXT		the settings of this phase, for which the worker
 *						asked, are in force
 *	joulemark-orders/1 note TEXT		goes into the record
 *
 * A line of another version, or with another word, is reported and has no effect.
 */
#ifndef JM_ORDERS_H
#define JM_ORDERS_H

#include "joulemark.h"

#include <jansson.h>

#define JM_ORDERS_VERSION "joulemark-orders/1"
#define JM_ORDER_TEXT	  3072 /* holds any row of jm_case_apply, also if all of it is escaped */

enum jm_order_kind { JM_ORDER_STOP, JM_ORDER_APPLIED, JM_ORDER_SETTING, JM_ORDER_NOTE };

struct jm_order {
	enum jm_order_kind kind;
	char text[JM_ORDER_TEXT];
};

extern const char *const jm_order_words[]; /* by kind: "stop"... */

/* The parent's side: does not wait; JM_EGONE: the worker has ended or does not read. */
int jm_order_send(int fd, enum jm_order_kind kind, const char *text, struct jm_err *err);

/* The same with a row as JSON. JM_ERANGE: it is longer than an order. */
int jm_order_send_json(int fd, enum jm_order_kind kind, const json_t *row, struct jm_err *err);

/* The worker's side. */
struct jm_orders {
	int fd; /* -1 = none come */
	char buffer[2 * JM_ORDER_TEXT];
	size_t n;
};

void jm_orders_init(struct jm_orders *o, int fd);
/* Does not wait. 1 = an order is in *ret, 0 = none has come; an error: a line that is not one. */
int jm_orders_next(struct jm_orders *o, struct jm_order *ret, struct jm_err *err);

#endif
