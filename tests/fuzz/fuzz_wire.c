/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a guard and its client from another process: an accepted message can be used
 * unchanged. */
#include "fuzz.h"
#include "guard/guard_wire.h"

static char message[JM_WIRE_MAX];
static volatile size_t sink;

static void use_text(const char *text, size_t size)
{
	assert(strlen(text) < size);
	sink += strlen(text);
}

static void use_request(void)
{
	struct jm_wire_request q;
	const char *at = jm_wire_request_payload(message);

	memcpy(&q, message, sizeof(q));
	assert(q.op < JM_WIRE_OPS);
	assert(q.op != JM_WIRE_OPEN || q.n <= JM_WIRE_SPECS);
	for (uint32_t i = 0; i < q.n && q.op != JM_WIRE_OPEN; i++) {
		struct jm_setting s;

		memcpy(&s, at + i * sizeof(s), sizeof(s));
		use_text(s.knob, sizeof(s.knob));
		use_text(s.selector, sizeof(s.selector));
		assert(jm_knob_value_known(&s.value) && jm_knob_value_sound(&s.value));
	}
}

static void use_reply(enum jm_wire_op op, int n_knobs)
{
	struct jm_wire_reply r;
	const char *at = jm_wire_reply_payload(message);

	memcpy(&r, message, sizeof(r));
	if (op == JM_WIRE_ABSENT) {
		assert(r.n < JM_KNOBS_ABSENT && !memchr(at, '\0', r.n));
		return;
	}
	for (uint32_t i = 0; i < r.n && op == JM_WIRE_OPEN; i++) {
		struct jm_knob k;

		memcpy(&k, at + i * sizeof(k), sizeof(k));
		use_text(k.name, sizeof(k.name));
		use_text(k.label, sizeof(k.label));
		use_text(k.choices, sizeof(k.choices));
		assert(jm_knob_value_sound(&k.fallback));
		sink += k.unlockable ? (size_t)k.kind : (size_t)k.ends;
	}
	for (uint32_t i = 0; i < r.n && op != JM_WIRE_OPEN; i++) {
		struct jm_applied a;

		memcpy(&a, at + i * sizeof(a), sizeof(a));
		assert(a.knob >= 0 && a.knob < n_knobs);
		use_text(a.why, sizeof(a.why));
		assert(jm_knob_value_sound(&a.accepted) && jm_knob_value_sound(&a.enforced));
	}
}

/* The first byte chooses what is asked; the second repairs the head, so that the payload is
 * reached. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum jm_wire_op op = size ? (enum jm_wire_op)(data[0] % JM_WIRE_OPS) : JM_WIRE_OPEN;
	struct jm_err of_request = JM_ERR_INIT, of_reply = JM_ERR_INIT;
	bool repair = size > 1 && data[1] & 1;
	size_t got = size > 2 ? size - 2 : 0;
	int n_knobs = size > 1 ? data[1] >> 1 : 0, rc;

	if (got > sizeof(message))
		return 0;
	memset(message, 0xff, sizeof(message));
	memcpy(message, data + (size > 2 ? 2 : size), got);
	if (repair && got >= sizeof(struct jm_wire_request))
		jm_wire_put_request(message, op,
			(got - sizeof(struct jm_wire_request)) / sizeof(struct jm_setting));
	rc = jm_wire_check_request(message, got, &of_request);
	fuzz_check(rc, &of_request);
	if (!rc)
		use_request();
	if (repair && got >= sizeof(struct jm_wire_reply))
		jm_wire_put_reply(message, op,
			(got - sizeof(struct jm_wire_reply)) /
				(op == JM_WIRE_OPEN	       ? sizeof(struct jm_knob)
					: op == JM_WIRE_ABSENT ? 1
							       : sizeof(struct jm_applied)));
	rc = jm_wire_check_reply(message, got, op, n_knobs, &of_reply);
	fuzz_check(rc, &of_reply);
	if (!rc)
		use_reply(op, n_knobs);
	return 0;
}
