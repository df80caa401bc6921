/* SPDX-License-Identifier: Apache-2.0 */
#include "describe_power.h"
#include "base/text/json.h"
#include "describe_several.h"
#include "record_input.h"
#include "result/power_works.h"

static int read_works(
	const struct describe_plan *plan, struct jm_power_works *ret, struct jm_err *err)
{
	const struct jm_power_query query = {
		plan->device.backend->name, plan->device.props.name, plan->precision};
	struct jm_record_input in;
	int code = jm_record_input_init(&in, false, err);

	if (!code)
		code = jm_record_input_add(&in, plan->power.store, err);
	if (!code)
		code = jm_power_works_of(in.records, &query, ret, err);
	jm_record_input_done(&in);
	return code;
}

static int estimate(
	struct describe_plan *plan, const struct jm_power_works *works, struct jm_err *err)
{
	const struct jm_program *p = plan->program;
	struct describe_power *power = &plan->power;
	struct jm_err why = {0};
	char text[400];
	int code = jm_power_fit_make(works->work, works->n, &power->fit, &why);

	if (!code)
		code = jm_power_fit_predict(
			&power->fit, p->flops_executed, p->bytes, &power->estimate, &why);
	power->n_runs = works->n_runs;
	power->simulated = works->simulated;
	if (!code)
		return 0;
	jm_power_works_text(works, text, sizeof(text));
	return jm_err_set(err, code, "%s %s", why.text, text);
}

int describe_power_estimate(struct describe_plan *plan, struct jm_err *err)
{
	struct jm_power_works works;
	int code = read_works(plan, &works, err);

	if (code)
		return code;
	code = estimate(plan, &works, err);
	jm_power_works_done(&works);
	return code;
}

void describe_power_print(const struct describe_plan *plan, FILE *out)
{
	const struct describe_power *power = &plan->power;
	const struct jm_power_estimate *e = &power->estimate;

	fprintf(out, "power, estimated from %d works in %d %s runs:\n", power->fit.n, power->n_runs,
		power->simulated ? "simulated" : "measured");
	describe_print(out, "mean", e->watts, "W");
	describe_print(out, "  at least (95 % interval)", e->low, "W");
	describe_print(out, "  at most", e->high, "W");
}

json_t *describe_power_json(const struct describe_plan *plan)
{
	const struct describe_power *power = &plan->power;
	json_t *json = json_object();

	jm_json_set_text(&json, "origin", "estimated");
	jm_json_set_text(&json, "from", power->simulated ? "simulated" : "measured");
	jm_json_set_int(&json, "works", power->fit.n);
	jm_json_set_int(&json, "runs", power->n_runs);
	jm_json_set_number(&json, "watts", power->estimate.watts);
	jm_json_set_number(&json, "low_watts", power->estimate.low);
	jm_json_set_number(&json, "high_watts", power->estimate.high);
	jm_json_set_number(&json, "step_s", power->estimate.seconds);
	return json;
}
