/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: each one that is sent is received, in pieces or together; others than those of this
 * version are refused. */
#include "kit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "guard/control.h"
#include "result/case_id.h"
#include "run/worker/orders.h"

struct line {
	int fds[2];
	struct jm_orders orders;
};

static struct line open_line(void)
{
	struct line l;

	assert_int_equal(pipe2(l.fds, O_CLOEXEC), 0);
	jm_orders_init(&l.orders, l.fds[0]);
	return l;
}

static void close_line(struct line *l)
{
	close(l->fds[0]);
	close(l->fds[1]);
}

static void put(const struct line *l, const char *text)
{
	assert_int_equal(write(l->fds[1], text, strlen(text)), (ssize_t)strlen(text));
}

static void what_is_sent_arrives(void **unused)
{
	struct line l = open_line();
	struct jm_order order;
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 0);
	assert_ok(jm_order_send(l.fds[1], JM_ORDER_SETTING, "gpu.power=300W", &err), err);
	assert_ok(jm_order_send(l.fds[1], JM_ORDER_NOTE, "two\nlines", &err), err);
	assert_ok(jm_order_send(l.fds[1], JM_ORDER_STOP, "", &err), err);
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 1);
	assert_int_equal(order.kind, JM_ORDER_SETTING);
	assert_string_equal(order.text, "gpu.power=300W");
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 1);
	assert_int_equal(order.kind, JM_ORDER_NOTE);
	assert_string_equal(order.text, "two lines");
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 1);
	assert_int_equal(order.kind, JM_ORDER_STOP);
	assert_string_equal(order.text, "");
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 0);
	close_line(&l);
}

static void a_line_may_come_in_pieces(void **unused)
{
	struct line l = open_line();
	struct jm_order order;
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	put(&l, "joulemark-or");
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 0);
	put(&l, "ders/1 st");
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 0);
	put(&l, "op\n");
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 1);
	assert_int_equal(order.kind, JM_ORDER_STOP);
	close_line(&l);
}

/* Each is an error with a sentence, and the order after it is still obeyed. */
static void other_lines_are_refused(void **unused)
{
	static const struct {
		const char *line;
		int code;
	} bad[] = {
		{"joulemark-orders/2 stop\n", JM_EVERSION},
		{"stop\n", JM_EVERSION},
		{"\n", JM_EVERSION},
		{"joulemark-orders/1 stopp\n", JM_EFORMAT},
		{"joulemark-orders/1 \n", JM_EFORMAT},
	};
	struct line l = open_line();

	(void)unused;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_order order;

		put(&l, bad[i].line);
		put(&l, "joulemark-orders/1 stop\n");
		assert_int_equal(jm_orders_next(&l.orders, &order, &err), bad[i].code);
		assert_sentence(&err, bad[i].code);
		assert_int_equal(jm_orders_next(&l.orders, &order, &err), 1);
		assert_int_equal(order.kind, JM_ORDER_STOP);
	}
	close_line(&l);
}

/* A text of any length arrives cut; what has no end does not fill more than the buffer. */
static void long_lines_are_cut(void **unused)
{
	struct line l = open_line();
	char text[2 * JM_ORDER_TEXT];
	struct jm_order order;
	struct jm_err err = JM_ERR_INIT;
	int refused = 0, rc;

	(void)unused;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_ok(jm_order_send(l.fds[1], JM_ORDER_NOTE, text, &err), err);
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 1);
	assert_int_equal(strlen(order.text), JM_ORDER_TEXT - 1);
	put(&l, text);
	put(&l, "\n");
	put(&l, "joulemark-orders/1 stop\n");
	for (int i = 0; i < 20; i++) {
		err = (struct jm_err)JM_ERR_INIT;
		rc = jm_orders_next(&l.orders, &order, &err);
		refused += rc < 0;
		if (rc > 0)
			break;
	}
	assert_true(refused > 0);
	assert_int_equal(order.kind, JM_ORDER_STOP);
	close_line(&l);
}

/* A text that JSON makes six times as long. */
static json_t *control_characters(size_t n)
{
	char text[1000];

	assert_true(n < sizeof(text));
	memset(text, 1, n);
	return json_stringn(text, n);
}

/* What a device may be called is up to its driver. The longest row arrives whole. */
static void a_row_of_any_device_arrives(void **unused)
{
	json_t *row = json_pack("{s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:s, s:b, s:I}", "knob",
		control_characters(sizeof(((struct jm_knob *)NULL)->name) - 1), "device",
		control_characters(JM_ID_MAX - 1), "unit",
		control_characters(sizeof(((struct jm_knob *)NULL)->unit) - 1), "phase",
		control_characters(JM_PHASE_NAME - 1), "requested", -1.0 / 3e300, "accepted",
		-1.0 / 3e300, "enforced", -1.0 / 3e300, "state", "not reached", "own", true, "t_ns",
		(json_int_t)INT64_MIN);
	struct line l = open_line();
	struct jm_order order;
	struct jm_err err = JM_ERR_INIT;
	json_t *got;

	(void)unused;
	for (int i = 0; i < 3; i++)
		assert_ok(jm_order_send_json(l.fds[1], JM_ORDER_APPLIED, row, &err), err);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(jm_orders_next(&l.orders, &order, &err), 1);
		assert_int_equal(order.kind, JM_ORDER_APPLIED);
		got = json_loads(order.text, 0, NULL);
		assert_true(json_equal(got, row));
		json_decref(got);
	}
	json_object_set_new(row, "device", control_characters(600));
	assert_int_equal(jm_order_send_json(l.fds[1], JM_ORDER_APPLIED, row, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	assert_int_equal(jm_orders_next(&l.orders, &order, &err), 0);
	json_decref(row);
	close_line(&l);
}

static void who_does_not_read_is_not_waited_for(void **unused)
{
	struct line l = open_line();
	struct jm_err err = JM_ERR_INIT;
	int rc = 0;

	(void)unused;
	signal(SIGPIPE, SIG_IGN);
	fcntl(l.fds[1], F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 100000 && !rc; i++)
		rc = jm_order_send(l.fds[1], JM_ORDER_NOTE, "", &err);
	assert_int_equal(rc, JM_EGONE);
	assert_sentence(&err, JM_EGONE);
	close(l.fds[0]);
	err = (struct jm_err)JM_ERR_INIT;
	assert_int_equal(jm_order_send(l.fds[1], JM_ORDER_STOP, "", &err), JM_EGONE);
	close(l.fds[1]);
	err = (struct jm_err)JM_ERR_INIT;
	assert_int_equal(jm_order_send(-1, JM_ORDER_STOP, "", &err), JM_EGONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_sent_arrives),
		cmocka_unit_test(a_line_may_come_in_pieces),
		cmocka_unit_test(other_lines_are_refused),
		cmocka_unit_test(long_lines_are_cut),
		cmocka_unit_test(a_row_of_any_device_arrives),
		cmocka_unit_test(who_does_not_read_is_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
