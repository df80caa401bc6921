/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One value of a knob: a number, a range, or a word.
 *
 *	300W		low and high are 300
 *	1200:1500MHz	the device chooses between low and high
 *	performance	one of the knob's choices
 *	unlocked	no limit at all
 *	default		the vendor's default of each device; only in what a user asks for
 */
#ifndef JM_KNOB_VALUE_H
#define JM_KNOB_VALUE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "joulemark.h"

#define JM_UNLOCKED  "unlocked"
#define JM_DEFAULT   "default"
#define JM_KNOB_WORD 24
#define JM_KNOB_TEXT 80 /* room for the text of any value with its unit */

struct jm_knob_value {
	double low, high;	 /* in the knob's unit; NAN = unknown, or a word */
	char word[JM_KNOB_WORD]; /* "" = a number or a range */
};

/* NAN: unknown. */
static inline struct jm_knob_value jm_knob_value_of(double number)
{
	return (struct jm_knob_value){.low = number, .high = number};
}
static inline struct jm_knob_value jm_knob_value_between(double low, double high)
{
	return (struct jm_knob_value){.low = low, .high = high};
}
struct jm_knob_value jm_knob_value_word(const char *word);

static inline bool jm_knob_value_known(const struct jm_knob_value *v)
{
	return *v->word || !isnan(v->high);
}
bool jm_knob_value_is(const struct jm_knob_value *v, const char *word);
/* Do both mean the same? Numbers may differ by a millionth: drivers count in milliwatts and the
 * like. An unknown value is the same as no other. */
bool jm_knob_value_same(const struct jm_knob_value *a, const struct jm_knob_value *b);
/* What a limit is judged by: the number, of a range its upper end; NAN = unknown, or a word. */
static inline double jm_knob_value_number(const struct jm_knob_value *v)
{
	return *v->word ? NAN : v->high;
}

/* "300W", "1200:1500MHz", "unlocked": what a setting reads as the same value; "unknown". */
void jm_knob_value_text(const struct jm_knob_value *v, const char *unit, char *out, size_t size);
/* Exactly, in the base unit and without it, as journals have it: "300", "1200000000:1500000000",
 * "unlocked". */
void jm_knob_value_write(const struct jm_knob_value *v, char *out, size_t size);
/* Reads what jm_knob_value_write wrote; false: it is neither finite nor a word. */
bool jm_knob_value_read(const char *text, struct jm_knob_value *ret);
/* Could this value, from another process, be one? Its word ends, and its numbers are finite and in
 * order, or unknown. */
bool jm_knob_value_sound(const struct jm_knob_value *v);

#endif
