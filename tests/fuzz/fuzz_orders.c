/* SPDX-License-Identifier: Apache-2.0 */
/* What a parent of another version, or another program, may write to a worker: orders, whole or in
 * pieces. */
#include "fuzz.h"
#include "run/worker/orders.h"

#include <fcntl.h>
#include <unistd.h>

#define ROOM 60000 /* bytes that fit into a pipe */

static void take_all(struct jm_orders *orders)
{
	struct jm_order order;
	int rc;

	do {
		struct jm_err err = JM_ERR_INIT;

		rc = jm_orders_next(orders, &order, &err);
		if (rc > 0)
			assert(jm_order_words[order.kind] &&
				strlen(order.text) < sizeof(order.text));
		else
			fuzz_check(rc, &err);
	} while (rc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t half = size ? data[0] * size / 256 : 0;
	struct jm_orders orders;
	int fds[2];

	if (size > ROOM || pipe2(fds, O_CLOEXEC))
		return 0;
	jm_orders_init(&orders, fds[0]);
	assert(write(fds[1], data, half) == (ssize_t)half);
	take_all(&orders);
	assert(write(fds[1], data + half, size - half) == (ssize_t)(size - half));
	close(fds[1]);
	take_all(&orders);
	close(fds[0]);
	return 0;
}
