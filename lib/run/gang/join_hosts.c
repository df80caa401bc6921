/* SPDX-License-Identifier: Apache-2.0 */
#include "join_hosts.h"
#include "base/text/json.h"
#include "result/record_hosts.h"

#include <math.h>
#include <stdlib.h>

static json_t *ranks_of(const struct jm_agent_links *h, int first)
{
	json_t *ranks = json_array();

	for (int r = first; r < h->place.world; r++)
		if (h->link[r].first == first)
			json_array_append_new(ranks, json_integer(r));
	return ranks;
}

static double start_of(const json_t *record)
{
	return 1e-9 * jm_json_real_of(record, "start_ns");
}

/* By the pairs of clocks before and after the case; what they differ by is doubt. */
static void place_on_axis(
	const struct jm_agent_links *h, int r, const json_t *first, struct jm_host_part *part)
{
	const struct jm_agent_link *link = &h->link[r];
	const struct jm_clock_pair *a = &link->before, *b = &link->after;
	double offset = 0.5e-9 * ((double)a->offset_ns + (double)b->offset_ns);

	part->start_s = r ? NAN : 0;
	part->doubt_s = r ? NAN : 0;
	if (!r || a->doubt_ns == INT64_MAX || b->doubt_ns == INT64_MAX)
		return;
	part->start_s = start_of(part->record) - offset - start_of(first);
	part->doubt_s = 1e-9 * fmax((double)a->doubt_ns, (double)b->doubt_ns) +
			0.5e-9 * fabs((double)b->offset_ns - (double)a->offset_ns);
}

int jm_join_hosts(const struct jm_agent_links *h, json_t *const *record, struct jm_err *err)
{
	struct jm_host_part part[JM_MEET_MOST];
	int n = 0;

	for (int r = 0; r < h->place.world; r++) {
		if (h->link[r].first != r)
			continue;
		part[n] = (struct jm_host_part){.host = h->link[r].of.name,
			.machine = h->link[r].of.machine,
			.record = record[r],
			.ranks = ranks_of(h, r)};
		place_on_axis(h, r, record[0], &part[n++]);
	}
	return jm_record_join(record[0], part, n, err);
}
