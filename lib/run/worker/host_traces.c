/* SPDX-License-Identifier: Apache-2.0 */
#include "host_traces.h"
#include "base/text/json.h"
#include "meter/meters_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "hosts/b/cpu/0 hosts/b/dram/0": the components of one host are not those of another. */
static json_t *covers_of(const char *covers, const char *host)
{
	size_t size = strlen(covers) * (strlen(host) + 9) + 1, n = 0;
	char *text = calloc(1, size);
	json_t *json;

	for (const char *at = covers; text && *at;) {
		size_t word = strcspn(at, " ");

		if (word)
			n += (size_t)snprintf(text + n, size - n, "%shosts/%s%s%.*s", n ? " " : "",
				host, *at == '/' ? "" : "/", (int)(*at == '/' ? 0 : word), at);
		at += word + (at[word] == ' ');
	}
	json = text ? json_string(text) : NULL;
	free(text);
	return json;
}

static json_t *meter_of(const json_t *own, const char *host, bool first)
{
	json_t *meter = json_copy((json_t *)(uintptr_t)own);
	char text[600];

	if (!first) {
		snprintf(text, sizeof(text), "%s/%s", host, jm_json_text(own, "id"));
		json_object_set_new(meter, "id", json_string(text));
		snprintf(text, sizeof(text), "%s of %s", jm_json_text(own, "label"), host);
		json_object_set_new(meter, "label", json_string(text));
	}
	json_object_set_new(meter, "covers", covers_of(jm_json_text(own, "covers"), host));
	return meter;
}

int jm__host_traces_add(struct jm__host_traces *t, const struct jm_agent_links *h, int rank,
	const json_t *meters, struct jm_meters *ret, struct jm_err *err)
{
	const json_t *one;
	int had = t->n_signals;
	size_t i;

	if (!t->meters)
		t->meters = json_array();
	json_array_foreach(meters, i, one)
	{
		t->n_signals += (int)json_array_size(json_object_get(one, "signals"));
		if (json_array_append_new(t->meters, meter_of(one, h->link[rank].of.name, !rank)))
			return jm_err_set(err, JM_ENOMEM, "Out of memory for the meters of hosts.");
	}
	t->first[rank] = 1 + had;
	return jm_meters_from_json(t->meters, ret, err);
}

bool jm__host_traces_move(const struct jm__host_traces *t, const struct jm_agent_links *h, int rank,
	struct jm_chunk *chunk, void **ret_bytes)
{
	const struct jm_clock_pair *clocks = &h->link[rank].before;
	int64_t back_ns = rank ? -clocks->offset_ns : 0;
	struct jm_err unused = JM_ERR_INIT;
	int before = t->first[rank] - 1;
	void *bytes;

	if (before < 0 || (rank && clocks->doubt_ns == INT64_MAX) || chunk->signal < 0 ||
		chunk->signal >= t->n_signals - before ||
		jm_chunk_parse(before + chunk->signal, chunk->data, chunk->bytes, chunk, &unused))
		return false;
	bytes = malloc(chunk->bytes);
	if (!bytes)
		return false;
	memcpy(bytes, chunk->data, chunk->bytes);
	jm_chunk_shift(bytes, back_ns);
	chunk->data = bytes;
	chunk->t0_ns += back_ns;
	chunk->t1_ns += back_ns;
	*ret_bytes = bytes;
	return true;
}

void jm__host_traces_done(struct jm__host_traces *t)
{
	json_decref(t->meters);
}
