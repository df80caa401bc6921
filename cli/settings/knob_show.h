/* SPDX-License-Identifier: Apache-2.0 */
/* Knobs and their values for people, and as JSON. */
#ifndef JM_KNOB_SHOW_H
#define JM_KNOB_SHOW_H

#include "guard/setting.h"

#include <jansson.h>

#define JM_KNOB_SHOWN (JM_KNOB_TEXT + 8)

/* "700 W", "1200:1500 MHz", "unlocked", "unknown" */
void jm_knob_show(const struct jm_knob_value *value, const char *unit, char *out, size_t size);
void jm_knob_show_number(double number, const char *unit, char *out, size_t size);
/* A number where it is one, else the text that a setting takes, or null. */
json_t *jm_knob_show_json(const struct jm_knob_value *value, const char *unit);
/* What ends a setting of it: "reboot" */
const char *jm_knob_ends(const struct jm_knob *k);
/* What `get --json` prints of one knob. */
json_t *jm_knob_json(const struct jm_knob *k, const struct jm_applied *a);

#endif
