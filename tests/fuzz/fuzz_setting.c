/* SPDX-License-Identifier: Apache-2.0 */
/* A setting that is accepted is inside the range of every device that it names. */
#include "fuzz.h"
#include "guard/setting.h"

static void knob(struct jm_knobs *set, const char *name, const char *unit, const char *device,
	double min, double max, double step)
{
	struct jm_knob k = {.min = min, .max = max, .step = step, .fallback = max};
	struct jm_err err = JM_ERR_INIT;

	strncpy(k.name, name, sizeof(k.name) - 1);
	strncpy(k.unit, unit, sizeof(k.unit) - 1);
	strncpy(k.device, device, sizeof(k.device) - 1);
	if (jm_knobs_add(set, &k, &err) < 0)
		abort();
}

static void check_axis(const struct jm_axis *axis, const struct jm_knobs *knobs)
{
	for (int i = 0; i < axis->n; i++) {
		struct jm_setting s = jm_axis_setting(axis, i);
		char text[64];
		int hits = 0;

		jm_setting_value_text(s.value, axis->unit, text, sizeof(text));
		assert(*text);
		for (int k = 0; k < knobs->n; k++) {
			if (!jm_setting_matches(&s, &knobs->knob[k]))
				continue;
			hits++;
			if (s.value == JM_SETTING_DEFAULT)
				continue;
			assert(s.value >= knobs->knob[k].min && s.value <= knobs->knob[k].max);
		}
		assert(hits > 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	struct jm_err err = JM_ERR_INIT;
	struct jm_knobs knobs = {0};
	struct jm_axis axis = {0};
	int rc;

	knob(&knobs, "gpu.power", "W", "GPU-8f", 200, 700, 1);
	knob(&knobs, "gpu.power", "W", "GPU-9a", 100, 600, 0);
	knob(&knobs, "gpu.clock", "Hz", "GPU-8f", 345e6, 1980e6, 15e6);
	knob(&knobs, "core.share", "", "cpu/0", 0, 1, 0);
	rc = jm_axis_parse(text, &knobs, &axis, &err);
	fuzz_check(rc, &err);
	if (rc >= 0) {
		check_axis(&axis, &knobs);
		jm_axis_done(&axis);
	}
	jm_knobs_done(&knobs);
	free(text);
	return 0;
}
