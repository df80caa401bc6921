/* SPDX-License-Identifier: Apache-2.0 */
/* --set of `measure`: knobs that hold while the command runs, by the same guard as those of `run`.
 * What was found is put back before the record is written. */
#ifndef JM_MEASURE_SETTINGS_H
#define JM_MEASURE_SETTINGS_H

#include "guard/guard.h"
#include "cli/frame/cli.h"
#include "measure_text.h"

#include <jansson.h>

struct jm_measure_settings {
	char *const *set, *const *found; /* NULL = none; see jm_guard_state */
	const char *control;		 /* NULL = by --device, else those of the machine */
	const char *probe_load;		 /* see jm_probe_state */
	struct jm_guard *guard;		 /* NULL = nothing is to be set */
	json_t *axes;	       /* as in the request of a plan; also after the guard has ended */
	json_t *parameters;    /* of the case: {settings{knob[@id]: value}} */
	json_t *rows;	       /* of the record, once the settings are made */
	struct jm_err changed; /* another program, or the device, did so; code 0 = none */
	struct jm_err lost; /* why they did not hold, or are not put back; code 0 = all is well */
};

/* Starts the guard and reads what --set says; changes nothing. */
int jm_measure_settings_open(struct jm_measure_settings *s, struct jm_cli *cli, const char *device);
int jm_measure_settings_make(struct jm_measure_settings *s, struct jm_err *err);
/* After the command: did another program, or the device, change a setting meanwhile? */
void jm_measure_settings_check(struct jm_measure_settings *s);
/* Puts back what was found; again: nothing. */
void jm_measure_settings_end(struct jm_measure_settings *s);
void jm_measure_settings_close(struct jm_measure_settings *s);
/* Did a guard that was killed, or a lease that has ended, end the settings before the command, or
 * were they changed? */
bool jm_measure_settings_broken(const struct jm_measure_settings *s);
/* "  Setting  gpu.power of GPU 0 NVIDIA H100: 300 W, binding", of each. */
void jm_measure_settings_print(const struct jm_measure_text *t, const json_t *record);

#endif
