/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of settings: which knob, on which devices, which values in the knob's unit.
 *
 *	gpu.power=300W			one value for every device that has the knob
 *	gpu.power=300W,400W		a list; the unit may stand once at the end
 *	gpu.power=200:700+100W		a range with its step, both ends included
 *	gpu.power=default,300W		the vendor's default, then 300 W
 *	gpu.power@GPU-8f=300W		devices whose id begins with GPU-8f
 *	gpu.clock=1200:1500MHz		a range as one value, of a knob that takes ranges
 *	cpu.governor=powersave		one of the choices of a knob
 *	cpu.quota=1.5,unlocked		no limit, of a knob that has this
 */
#ifndef JM_SETTING_H
#define JM_SETTING_H

#include "guard/control.h"

/* One knob to one value, on all devices whose id begins with the selector. */
struct jm_setting {
	char knob[32];
	char selector[JM_ID_MAX];   /* "" = all; "ID=" is that id alone */
	struct jm_knob_value value; /* in the knob's unit, or JM_DEFAULT */
};

/* The result of a setting on one device. */
struct jm_applied {
	int knob; /* index among the guard's knobs */
	struct jm_knob_value
		requested; /* what the user asked for; unknown: nothing (jm_guard_get) */
	struct jm_knob_value accepted; /* what the device accepted of it: rounded, clamped */
	struct jm_knob_value enforced; /* what the device applies now */
	enum jm_known_by known_by;     /* what is restored */
	char why[160]; /* of a device that does not answer (jm_guard_get); "" = it does */
};

/* One knob and the values that it takes, one after the other. */
struct jm_axis {
	char knob[32];
	char selector[JM_ID_MAX];    /* "" = all */
	char unit[8];		     /* the knob's: "W", "Hz", "" */
	struct jm_knob_value *value; /* in that unit, or JM_DEFAULT; no value twice */
	int n;
};

/*
 * Checks every value against the range of every device it is meant for. A bare number is refused
 * where the unit has several spellings (W, kW). JM_EUSAGE: grammar or unknown knob; JM_ERANGE:
 * outside.
 */
int jm_axis_parse(
	const char *text, const struct jm_knobs *knobs, struct jm_axis *ret, struct jm_err *err);
struct jm_setting jm_axis_setting(const struct jm_axis *axis, int i);
void jm_axis_done(struct jm_axis *axis);
/* "gpu.power" or "gpu.power@GPU-8f" alone, without a value; errors as above. */
int jm_target_parse(
	const char *text, const struct jm_knobs *knobs, struct jm_setting *ret, struct jm_err *err);

/* Does the device's id begin with the selector? A number behind a word counts whole: "policy1" is
 * not "policy10". */
bool jm_selector_means(const char *selector, const char *device);
/* Is the knob one that the setting means? */
bool jm_setting_matches(const struct jm_setting *setting, const struct jm_knob *knob);
/* Makes the setting mean this device alone, even where its id begins that of another. */
void jm_setting_exactly(struct jm_setting *setting, const struct jm_knob *knob);

#endif
