/* SPDX-License-Identifier: Apache-2.0 */
/* Values of knobs: comparison, and their texts for people and for journals. */
#include "guard/knob_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jm_knob_value jm_knob_value_word(const char *word)
{
	struct jm_knob_value v = {.low = NAN, .high = NAN};

	snprintf(v.word, sizeof(v.word), "%s", word);
	return v;
}

bool jm_knob_value_is(const struct jm_knob_value *v, const char *word)
{
	return !strcmp(v->word, word);
}

static bool near(double a, double b)
{
	return a == b || fabs(a - b) <= 1e-6 * fabs(b);
}

bool jm_knob_value_same(const struct jm_knob_value *a, const struct jm_knob_value *b)
{
	if (*a->word || *b->word)
		return !strcmp(a->word, b->word);
	return near(a->low, b->low) && near(a->high, b->high);
}

/* ---- for people ---- */

void jm_knob_value_text(const struct jm_knob_value *v, const char *unit, char *out, size_t size)
{
	bool mega = !strcmp(unit, "Hz");
	double scale = mega ? 1e6 : 1;

	if (mega)
		unit = "MHz";
	if (*v->word || !jm_knob_value_known(v))
		snprintf(out, size, "%s", *v->word ? v->word : "unknown");
	else if (v->low == v->high)
		snprintf(out, size, "%.12g%s", v->high / scale, unit);
	else
		snprintf(out, size, "%.12g:%.12g%s", v->low / scale, v->high / scale, unit);
}

/* ---- for journals ---- */

void jm_knob_value_write(const struct jm_knob_value *v, char *out, size_t size)
{
	if (*v->word)
		snprintf(out, size, "%s", v->word);
	else if (v->low == v->high)
		snprintf(out, size, "%.17g", v->high);
	else
		snprintf(out, size, "%.17g:%.17g", v->low, v->high);
}

static bool read_word(const char *text, struct jm_knob_value *ret)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789");

	if (!n || text[n] || n >= sizeof(ret->word))
		return false;
	*ret = jm_knob_value_word(text);
	return true;
}

bool jm_knob_value_read(const char *text, struct jm_knob_value *ret)
{
	struct jm_knob_value v = {0};
	char *end;

	v.low = v.high = strtod(text, &end);
	if (end == text)
		return read_word(text, ret);
	if (*end == ':')
		v.high = strtod(end + 1, &end);
	if (*end || !jm_knob_value_known(&v) || !jm_knob_value_sound(&v))
		return false;
	*ret = v;
	return true;
}

bool jm_knob_value_sound(const struct jm_knob_value *v)
{
	if (!memchr(v->word, '\0', sizeof(v->word)))
		return false;
	if (isnan(v->low) && isnan(v->high))
		return true;
	return !*v->word && isfinite(v->low) && isfinite(v->high) && v->low <= v->high;
}
