/* SPDX-License-Identifier: Apache-2.0 */
/* A setting that is accepted is inside the range of every device that it names. */
#include "fuzz.h"
#include "guard/setting.h"

static void knob(struct jm_knobs *set, const char *name, const char *unit, const char *device,
	double min, double max, double step)
{
	struct jm_knob k = {
		.min = min, .max = max, .step = step, .fallback = jm_knob_value_of(max)};
	struct jm_err err = JM_ERR_INIT;

	strncpy(k.name, name, sizeof(k.name) - 1);
	strncpy(k.unit, unit, sizeof(k.unit) - 1);
	strncpy(k.device, device, sizeof(k.device) - 1);
	k.kind = !strcmp(name, "gpu.clock")	 ? JM_KNOB_RANGE
		 : !strcmp(name, "cpu.governor") ? JM_KNOB_CHOICE
						 : JM_KNOB_NUMBER;
	k.unlockable = k.kind == JM_KNOB_RANGE;
	if (k.kind == JM_KNOB_CHOICE)
		strncpy(k.choices, "powersave performance", sizeof(k.choices) - 1);
	if (jm_knobs_add(set, &k, &err) < 0)
		abort();
}

static void check_axis(const struct jm_axis *axis, const struct jm_knobs *knobs)
{
	for (int i = 0; i < axis->n; i++) {
		struct jm_setting s = jm_axis_setting(axis, i);
		char text[JM_KNOB_TEXT];
		int hits = 0;

		jm_knob_value_text(&s.value, axis->unit, text, sizeof(text));
		assert(*text && jm_knob_value_known(&s.value) && jm_knob_value_sound(&s.value));
		for (int k = 0; k < knobs->n; k++) {
			if (!jm_setting_matches(&s, &knobs->knob[k]))
				continue;
			hits++;
			if (*s.value.word)
				assert(jm_knob_value_is(&s.value, JM_DEFAULT) ||
					jm_knob_takes_word(&knobs->knob[k], s.value.word));
			else
				assert(s.value.low >= knobs->knob[k].min &&
					s.value.high <= knobs->knob[k].max);
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
	knob(&knobs, "cpu.governor", "", "cpu", 0, 0, 0);
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
