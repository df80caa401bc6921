/* SPDX-License-Identifier: Apache-2.0 */
#include "result/serving_energy.h"

#include <math.h>

#include "base/text/json.h"
#include "result/metric.h"
#include "result/phase_energy.h"

/* NAN where there is nothing to divide by. */
static double each(double joules, double n)
{
	return n > 0 ? joules / n : NAN;
}

struct jm_serving_energy jm_serving_energy_of(const json_t *record, double add_watts)
{
	const json_t *w = json_object_get(json_object_get(record, "serving"), "window");
	enum jm_origin origin = JM_ESTIMATED;
	double out = jm_json_real_of(w, "tokens_out");
	double joules = jm_phase_joules(record, "window", &origin) +
			add_watts * jm_metric_nodes(record) * jm_json_real_of(w, "seconds");

	return (struct jm_serving_energy){.joules = joules,
		.output_token = each(joules, out),
		.token = each(joules, out + jm_json_real_of(w, "tokens_in")),
		.request = each(joules, jm_json_real_of(w, "requests_done")),
		.origin = origin};
}

struct jm_serving_split jm_serving_split_of(const json_t *record, double add_watts)
{
	const json_t *serving = json_object_get(record, "serving"),
		     *w = json_object_get(serving, "window");
	const json_t *split = json_object_get(serving, "split");
	double share = jm_json_real_of(split, "prefill");
	struct jm_serving_energy e = jm_serving_energy_of(record, add_watts);
	double prefill = e.joules * share, decode = e.joules - prefill;
	double later = jm_json_real_of(w, "tokens_out") - jm_json_real_of(w, "tokens_first");

	return (struct jm_serving_split){.prefill = prefill,
		.decode = decode,
		.error = e.joules * (jm_json_real_of(split, "prefill_high") - share),
		.input_token = each(prefill, jm_json_real_of(w, "tokens_in")),
		.output_token = each(decode, later)};
}

static void add_split(json_t *record)
{
	json_t *to = json_object_get(json_object_get(record, "serving"), "split");
	struct jm_serving_split s = jm_serving_split_of(record, 0);

	if (!json_is_object(to))
		return;
	json_object_set_new(to, "joules_prefill", jm_json_number(s.prefill));
	json_object_set_new(to, "joules_decode", jm_json_number(s.decode));
	json_object_set_new(to, "joules_error", jm_json_number(s.error));
	json_object_set_new(to, "joules_per_input_token", jm_json_number(s.input_token));
	json_object_set_new(to, "joules_per_output_token", jm_json_number(s.output_token));
}

void jm_record_serving_energy(json_t *record)
{
	json_t *w = json_object_get(json_object_get(record, "serving"), "window");
	struct jm_serving_energy e = jm_serving_energy_of(record, 0);

	if (!json_is_object(w))
		return;
	add_split(record);
	json_object_set_new(w, "joules_per_output_token", jm_json_number(e.output_token));
	json_object_set_new(w, "joules_per_token", jm_json_number(e.token));
	json_object_set_new(w, "joules_per_request", jm_json_number(e.request));
}
