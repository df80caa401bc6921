/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of client and guard: one with a wrong length, version or checksum is refused
 * completely. */
#include "guard/guard_wire.h"
#include "kit/test.h"

#define KNOBS 3

static _Alignas(8) char message[JM_WIRE_MAX];

static size_t request(enum jm_wire_op op, size_t n)
{
	struct jm_setting s = {.knob = "gpu.power", .value = jm_knob_value_of(300)};

	for (size_t i = 0; i < n && op != JM_WIRE_OPEN; i++)
		memcpy((char *)jm_wire_request_payload(message) + i * sizeof(s), &s, sizeof(s));
	if (op == JM_WIRE_OPEN)
		memset(jm_wire_request_payload(message), 'x', n);
	return jm_wire_put_request(message, op, n);
}

static size_t reply(enum jm_wire_op op, size_t n)
{
	struct jm_knob k = {.name = "gpu.power", .unit = "W", .device = "GPU-8f", .label = "GPU 0"};
	struct jm_applied plain = {.accepted = jm_knob_value_of(300)};

	for (size_t i = 0; i < n; i++) {
		struct jm_applied a = plain;

		a.knob = (int)i;
		if (op == JM_WIRE_OPEN)
			memcpy((char *)jm_wire_reply_payload(message) + i * sizeof(k), &k,
				sizeof(k));
		else
			memcpy((char *)jm_wire_reply_payload(message) + i * sizeof(a), &a,
				sizeof(a));
	}
	return jm_wire_put_reply(message, op, n);
}

static void assert_request(size_t got, int code, const char *said)
{
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(jm_wire_check_request(message, got, &err), code);
	if (!code)
		return;
	assert_sentence(&err, code);
	if (!strstr(err.text, said))
		fail_msg("%s\n%s", err.text, said);
}

static void assert_reply(size_t got, enum jm_wire_op op, int code, const char *said)
{
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(jm_wire_check_reply(message, got, op, KNOBS, &err), code);
	if (!code)
		return;
	assert_sentence(&err, code);
	if (!strstr(err.text, said))
		fail_msg("%s\n%s", err.text, said);
}

static void whole_messages_pass(void **state)
{
	(void)state;
	assert_request(request(JM_WIRE_OPEN, 0), 0, "");
	assert_request(request(JM_WIRE_OPEN, JM_WIRE_SPECS), 0, "");
	assert_request(request(JM_WIRE_SET, 7), 0, "");
	assert_request(request(JM_WIRE_STOP, 0), 0, "");
	assert_reply(reply(JM_WIRE_OPEN, 40), JM_WIRE_OPEN, 0, "");
	assert_reply(reply(JM_WIRE_GET, KNOBS), JM_WIRE_GET, 0, "");
	assert_reply(reply(JM_WIRE_SET, 2), JM_WIRE_SET, 0, "");
	assert_reply(reply(JM_WIRE_KEEP, 0), JM_WIRE_KEEP, 0, "");
}

static void a_refusal_comes_back_as_it_was(void **state)
{
	size_t got = jm_wire_put_refusal(message, JM_EBUSY, "The knob is held.");

	(void)state;
	for (int op = 0; op < JM_WIRE_OPS; op++)
		assert_reply(got, (enum jm_wire_op)op, JM_EBUSY, "The knob is held.");
}

static void reasons_are_text(void **state)
{
	char *text = jm_wire_reply_payload(message);
	size_t got;

	(void)state;
	memset(text, 'x', JM_KNOBS_ABSENT);
	got = jm_wire_put_reply(message, JM_WIRE_ABSENT, JM_KNOBS_ABSENT - 1);
	assert_reply(got, JM_WIRE_ABSENT, 0, "");
	text[7] = '\0';
	assert_reply(got, JM_WIRE_ABSENT, JM_EFORMAT, "its reasons are not text");
	text[7] = 'x';
	assert_reply(jm_wire_put_reply(message, JM_WIRE_ABSENT, JM_KNOBS_ABSENT), JM_WIRE_ABSENT,
		JM_EFORMAT, "too long");
}

/* A message that was cut off anywhere, or has a byte more, is not used. */
static void every_other_length_is_refused(void **state)
{
	size_t whole = request(JM_WIRE_SET, 2);

	(void)state;
	for (size_t got = 0; got < whole; got++)
		assert_request(got, got < 8 ? JM_EVERSION : JM_EFORMAT, "");
	assert_request(whole + 1, JM_EFORMAT, "its length differs from that in its header");
	assert_request(JM_WIRE_MAX + 1, JM_EFORMAT, "too long");
	whole = reply(JM_WIRE_GET, KNOBS);
	for (size_t got = 0; got < whole; got++)
		assert_reply(got, JM_WIRE_GET, got < 8 ? JM_EVERSION : JM_EFORMAT, "");
	assert_reply(
		whole + 1, JM_WIRE_GET, JM_EFORMAT, "its length differs from that in its header");
}

static void another_version_is_named(void **state)
{
	size_t got = request(JM_WIRE_SET, 1);
	struct jm_wire_request *q = (struct jm_wire_request *)message;

	(void)state;
	q->version = JM_WIRE_VERSION + 1;
	assert_request(got, JM_EVERSION, "The client speaks version 4 of the guard's protocol");
	assert_request(8, JM_EVERSION, "version 4");
	q->magic = 0; /* as before there were versions */
	assert_request(got, JM_EVERSION, "an older joulemark");
	got = reply(JM_WIRE_SET, 1);
	((struct jm_wire_reply *)message)->version = 7;
	assert_reply(got, JM_WIRE_SET, JM_EVERSION,
		"The guard speaks version 7 of the guard's protocol");
}

static void faults_of_requests(void **state)
{
	struct jm_wire_request *q = (struct jm_wire_request *)message;
	struct jm_setting *s = jm_wire_request_payload(message);
	size_t got = request(JM_WIRE_SET, 2);

	(void)state;
	q->op = JM_WIRE_OPS;
	assert_request(got, JM_EFORMAT, "unknown request");
	got = request(JM_WIRE_SET, 2);
	q->bytes_each++;
	assert_request(got, JM_EFORMAT, "another size");
	got = request(JM_WIRE_SET, 2);
	q->n = 0xffffffff;
	assert_request(got, JM_EFORMAT, "length");
	got = request(JM_WIRE_SET, 2);
	memset(s[1].knob, 'x', sizeof(s[1].knob));
	assert_request(got, JM_EFORMAT, "has no terminator");
	got = request(JM_WIRE_HOLD, 2);
	memset(s[1].selector, 'x', sizeof(s[1].selector));
	assert_request(got, JM_EFORMAT, "has no terminator");
	got = request(JM_WIRE_SET, 2);
	s[1].value = jm_knob_value_of(NAN);
	assert_request(got, JM_EFORMAT, "none that a knob can have");
	s[1].value = jm_knob_value_of(INFINITY);
	assert_request(got, JM_EFORMAT, "none that a knob can have");
	s[1].value = jm_knob_value_between(300, 200);
	assert_request(got, JM_EFORMAT, "none that a knob can have");
	memset(s[1].value.word, 'x', sizeof(s[1].value.word));
	assert_request(got, JM_EFORMAT, "none that a knob can have");
	s[1].value = jm_knob_value_between(200, 300);
	assert_request(got, 0, "");
	s[1].value = jm_knob_value_word(JM_DEFAULT);
	assert_request(got, 0, "");
	assert_request(request(JM_WIRE_OPEN, JM_WIRE_SPECS + 1), JM_EFORMAT, "controls");
	got = request(JM_WIRE_OPEN, 9);
	((char *)s)[4] = '\0';
	assert_request(got, JM_EFORMAT, "controls");
	request(JM_WIRE_STOP, 0);
	q->n = 1;
	assert_request(sizeof(*q), JM_EFORMAT, "after its header");
}

static void faults_of_knobs(void **state)
{
	struct jm_knob *k = jm_wire_reply_payload(message);
	size_t got = reply(JM_WIRE_OPEN, 2);

	(void)state;
	assert_reply(got, JM_WIRE_OPEN, 0, "");
	memset(k[1].choices, 'x', sizeof(k[1].choices));
	assert_reply(got, JM_WIRE_OPEN, JM_EFORMAT, "has no terminator");
	got = reply(JM_WIRE_OPEN, 2);
	k[0].kind = (enum jm_knob_kind)3;
	assert_reply(got, JM_WIRE_OPEN, JM_EFORMAT, "unknown kind");
	got = reply(JM_WIRE_OPEN, 2);
	k[0].ends = (enum jm_ends)4;
	assert_reply(got, JM_WIRE_OPEN, JM_EFORMAT, "unknown kind");
	got = reply(JM_WIRE_OPEN, 2);
	memset(&k[1].unlockable, 2, 1);
	assert_reply(got, JM_WIRE_OPEN, JM_EFORMAT, "unknown kind");
	got = reply(JM_WIRE_OPEN, 2);
	k[1].fallback.high = INFINITY;
	assert_reply(got, JM_WIRE_OPEN, JM_EFORMAT, "none that a knob can have");
}

static void faults_of_replies(void **state)
{
	struct jm_wire_reply *r = (struct jm_wire_reply *)message;
	struct jm_applied *a = jm_wire_reply_payload(message);
	struct jm_knob *k = jm_wire_reply_payload(message);
	size_t got = reply(JM_WIRE_SET, 2);

	(void)state;
	a[1].knob = KNOBS;
	assert_reply(got, JM_WIRE_SET, JM_EFORMAT, "knob that does not exist");
	a[1].knob = -1;
	assert_reply(got, JM_WIRE_SET, JM_EFORMAT, "knob that does not exist");
	got = reply(JM_WIRE_GET, KNOBS);
	a[2].enforced.low = INFINITY;
	assert_reply(got, JM_WIRE_GET, JM_EFORMAT, "none that a knob can have");
	got = reply(JM_WIRE_GET, KNOBS);
	memset(a[2].why, 'x', sizeof(a[2].why));
	assert_reply(got, JM_WIRE_GET, JM_EFORMAT, "has no terminator");
	assert_reply(reply(JM_WIRE_GET, KNOBS - 1), JM_WIRE_GET, JM_EFORMAT, "every knob");
	assert_reply(reply(JM_WIRE_SET, KNOBS + 1), JM_WIRE_SET, JM_EFORMAT,
		"more knobs than there are");
	got = reply(JM_WIRE_OPEN, 2);
	memset(k[1].label, 'x', sizeof(k[1].label));
	assert_reply(got, JM_WIRE_OPEN, JM_EFORMAT, "has no terminator");
	got = jm_wire_put_refusal(message, JM_EBUSY, "x");
	assert_reply(got, JM_WIRE_SET, JM_EFORMAT, "status");
	got = jm_wire_put_refusal(message, JM_EBUSY, "The knob is held.");
	r->rc = 1;
	assert_reply(got, JM_WIRE_SET, JM_EFORMAT, "status");
	r->rc = JM_EBUG - 1;
	assert_reply(got, JM_WIRE_SET, JM_EFORMAT, "status");
	r->rc = JM_EBUSY;
	memset(r->text, 'x', sizeof(r->text));
	assert_reply(got, JM_WIRE_SET, JM_EFORMAT, "status");
	got = reply(JM_WIRE_OPEN, 1);
	assert_reply(got, JM_WIRE_KEEP, JM_EFORMAT, "after its header");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_messages_pass),
		cmocka_unit_test(a_refusal_comes_back_as_it_was),
		cmocka_unit_test(reasons_are_text),
		cmocka_unit_test(every_other_length_is_refused),
		cmocka_unit_test(another_version_is_named),
		cmocka_unit_test(faults_of_requests),
		cmocka_unit_test(faults_of_knobs),
		cmocka_unit_test(faults_of_replies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
