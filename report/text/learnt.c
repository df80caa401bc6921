/* SPDX-License-Identifier: Apache-2.0 */
#include "learnt.h"

#include "report/format/text.h"
#include "base/text/json.h"

#include <math.h>

static void add_top1(const json_t *record, char *out, size_t size)
{
	const json_t *all = json_object_get(record, "evaluations");
	const json_t *last = json_array_get(all, json_array_size(all) - 1);

	if (!isfinite(jm_json_real_of(last, "right")))
		return;
	jm_text_format(out, size,
		"Top-1 %.2f %% (%.0f of %.0f held-out pictures right) after step %.0f.",
		100 * jm_json_real_of(last, "accuracy"), jm_json_real_of(last, "right"),
		jm_json_real_of(last, "samples"), jm_json_real_of(last, "step"));
}

void jm_text_learnt(const json_t *record, char *out, size_t size)
{
	const json_t *data = json_object_get(record, "data");
	double per_s = jm_json_real_of(data, "load_per_s");
	char text[280], rate[40] = "";

	*out = '\0';
	add_top1(record, out, size);
	if (!data)
		return;
	if (!isnan(per_s))
		jm_text_format(rate, sizeof(rate), " (%.0f/s by all of them)", per_s);
	jm_text_format(text, sizeof(text),
		"%s%.0f pictures were read in %.3g s of %.0f thread(s)%s, %.0f files could not be "
		"read; steps waited %.3g s for pictures.",
		*out ? " " : "", jm_json_real_of(data, "decoded"),
		jm_json_real_of(data, "decode_s"), jm_json_real_of(data, "threads"), rate,
		jm_json_real_of(data, "corrupt"), jm_json_real_of(data, "wait_s"));
	jm_text_append(out, size, "", text);
}
