/* SPDX-License-Identifier: Apache-2.0 */
#include "set_words.h"

int jm_set_parse_axis(const char *text, const char *by, const struct jm_knobs *knobs,
	struct jm_axis *ret, struct jm_err *err)
{
	int rc = jm_axis_parse(text, knobs, ret, err);

	if (!rc && ret->n != 1) {
		rc = jm_err_set(err, JM_EUSAGE,
			"'%s' stands for %d values; %s takes one. 'joulemark run --set %s' sweeps "
			"them.",
			text, ret->n, by, text);
		jm_axis_done(ret);
	}
	return rc;
}

static int parse_one(
	const char *text, const struct jm_knobs *knobs, struct jm_setting *ret, struct jm_err *err)
{
	struct jm_axis axis;
	int rc = jm_set_parse_axis(text, "'set'", knobs, &axis, err);

	if (rc)
		return rc;
	*ret = jm_axis_setting(&axis, 0);
	jm_axis_done(&axis);
	return 0;
}

json_t *jm_set_axis_json(const struct jm_axis *axis, const char *phase)
{
	json_t *values = json_array();
	char text[JM_KNOB_TEXT];

	for (int i = 0; i < axis->n; i++) {
		jm_knob_value_text(&axis->value[i], axis->unit, text, sizeof(text));
		json_array_append_new(values, json_string(text));
	}
	return json_pack("{s:s, s:s, s:s*, s:s, s:o}", "knob", axis->knob, "selector",
		axis->selector, "phase", *phase ? phase : NULL, "unit", axis->unit, "values",
		values);
}

int jm_set_parse(struct jm_cli *cli, const struct jm_knobs *knobs, struct jm_setting *settings)
{
	int rc = 0;

	for (int i = 0; i < cli->n_args && !rc; i++)
		rc = parse_one(cli->args[i], knobs, &settings[i], &cli->err);
	return rc;
}
