/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader should know of the items that were found in the output of a command: none, too few,
 * of which kind. */
#ifndef JM_FOUND_ITEMS_H
#define JM_FOUND_ITEMS_H

#include "item_kind.h"
#include "output_items.h"

struct jm_found_items {
	const struct jm_ctx *ctx;		/* its log gets the sentences */
	const char *command, *regex, *json_key; /* as launch.h; one of the last two is NULL */
	const struct jm_scan *scan;
	const struct jm_item_sums *sums;
	long n_left_out; /* items of marks that were ignored, because these are counted */
};

/* After the end of the output. */
void jm_found_items_say(const struct jm_found_items *f);

#endif
