/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between the cases of a sweep, and its value in each of them. */
#include "dimension.h"
#include "base/option.h"
#include "base/text/json.h"
#include "base/text/number.h"
#include "report/format/text.h"
#include "result/case_id.h"
#include "result/setting_state.h"
#include "run/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SHOWN 60

bool jm_dim_has_name(const char *key, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(key, name, n) && (!key[n] || key[n] == '@');
}

/* The first leaf of that name at any depth of the parameters. */
static const json_t *find_leaf(const json_t *object, const char *name)
{
	const json_t *value, *found;
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		if (!json_is_object(value) && jm_dim_has_name(key, name))
			return value;
		found = json_is_object(value) ? find_leaf(value, name) : NULL;
		if (found)
			return found;
	}
	return NULL;
}

/* All leaves of that name as "GPU-8f 300W, GPU-9a 400W"; long ids cut unless whole. Counts on from
 * n. */
static int list_leaves(const json_t *object, const char *name, bool whole, int n, FILE *out)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		const char *text = json_string_value(value), *at = strchr(key, '@');
		const char *id = at ? at + 1 : "";
		size_t shown = whole ? strlen(id) : jm_machine_id_shown(id);

		if (json_is_object(value))
			n = list_leaves(value, name, whole, n, out);
		else if (jm_dim_has_name(key, name))
			fprintf(out, "%s%.*s %s", n++ ? ", " : "", (int)shown, id,
				text ? text : "");
	}
	return n;
}

const json_t *jm_dim_parameters(const json_t *record)
{
	return json_object_get(json_object_get(record, "case"), "parameters");
}

const json_t *jm_dim_command(const json_t *record)
{
	const json_t *words = json_object_get(json_object_get(record, "case"), "template");

	return json_is_array(words) ? words : json_object_get(record, "command");
}

const json_t *jm_dim_parameter(const json_t *record, const char *name)
{
	return find_leaf(jm_dim_parameters(record), name);
}

double jm_dim_number(const json_t *leaf)
{
	const char *text = json_string_value(leaf);
	double x;

	if (!text)
		return jm_json_real(leaf);
	return jm_number_real(text, &x) ? x : NAN;
}

static int add_dim(struct jm_grouping *g, const char *name, const char *unit, bool knob, bool soft,
	struct jm_err *err)
{
	struct jm_group_dim *dim;

	for (int i = 0; i < g->n_dims; i++)
		if (!strcmp(g->dim[i].name, name))
			return 0;
	if (g->n_dims == JM_GROUP_MAX_DIMS)
		return jm_err_set(err, JM_ERANGE,
			"The records differ in more than %d settings; report them in several "
			"parts.",
			JM_GROUP_MAX_DIMS);
	dim = &g->dim[g->n_dims++];
	dim->name = name;
	jm_text_format(dim->unit, sizeof(dim->unit), "%s", unit);
	dim->knob = knob;
	dim->soft = soft;
	return 0;
}

static int add_knobs(struct jm_grouping *g, const json_t *record, struct jm_err *err)
{
	const json_t *row;
	size_t i;
	int rc = 0;

	json_array_foreach(json_object_get(record, "settings"), i, row)
	{
		const char *knob = jm_json_text(row, "knob");
		bool soft =
			json_is_true(json_object_get(row, "soft")) || !strncmp(knob, "soft.", 5);

		if (*knob && !rc)
			rc = add_dim(g, knob, jm_json_text(row, "unit"), true, soft, err);
	}
	return rc;
}

/* Names a file that a run writes, which changes nothing of the run. Variables of a plan's own
 * command may have the same names. */
static bool is_output(const json_t *record, const char *key)
{
	const struct jm_workload *w = jm_workload_find(jm_json_text(record, "workload"), NULL);
	const struct jm_option *option = w ? jm_option_find(w->options, key) : NULL;

	return option && option->use & JM_OPTION_WRITES;
}

/* Of a parameter that is recorded as a bare number. */
static const char *unit_of(const json_t *record, const char *key)
{
	if (!*jm_json_text(record, "workload"))
		return "";
	return !strcmp(key, "rate") ? "requests/s" : !strcmp(key, "size") ? "GB" : "";
}

static bool same(const json_t *a, const json_t *b)
{
	return a && b ? json_equal((json_t *)a, (json_t *)b) : !a == !b;
}

static bool same_parameter(const json_t *a, const json_t *b, const char *name)
{
	return same(jm_dim_parameter(a, name), jm_dim_parameter(b, name));
}

/* Another command or model is other work, not a point on an axis. */
static bool same_work(const json_t *a, const json_t *b)
{
	return same(jm_dim_command(a), jm_dim_command(b)) && same_parameter(a, b, "model") &&
	       same_parameter(a, b, "response") &&
	       !strcmp(jm_json_text(a, "workload"), jm_json_text(b, "workload")) &&
	       !strcmp(jm_json_text(a, "device"), jm_json_text(b, "device")) &&
	       !strcmp(jm_json_text(a, "unit"), jm_json_text(b, "unit"));
}

/* Adds the leaves of the object, parameters of a record, that differ or are absent in the other
 * record, which is of the same work. Commands are the same except for values, which are separate
 * leaves. */
static int add_varied(
	struct jm_grouping *g, const json_t *object, const json_t *other_record, struct jm_err *err)
{
	const json_t *value;
	const char *key;
	int rc = 0;

	json_object_foreach((json_t *)object, key, value)
	{
		const json_t *other = jm_dim_parameter(other_record, key);

		if (rc)
			return rc;
		if (!strcmp(key, "command") || is_output(other_record, key))
			continue;
		if (json_is_object(value))
			rc = add_varied(g, value, other_record, err);
		else if (!other || !json_equal((json_t *)other, (json_t *)value))
			rc = add_dim(g, key, unit_of(other_record, key), false, false, err);
	}
	return rc;
}

static int find_varied(struct jm_grouping *g, const json_t *records, struct jm_err *err)
{
	int rc = 0;

	for (size_t i = 1; i < json_array_size(records) && !rc; i++) {
		const json_t *record = json_array_get(records, i), *first;
		size_t k = 0;

		while (k < i && !same_work(json_array_get(records, k), record))
			k++;
		if (k == i)
			continue;
		first = json_array_get(records, k);
		rc = add_varied(g, jm_dim_parameters(record), first, err);
		if (!rc)
			rc = add_varied(g, jm_dim_parameters(first), record, err);
	}
	return rc;
}

int jm_dim_find(struct jm_grouping *g, const json_t *records, struct jm_err *err)
{
	const json_t *record;
	size_t i;
	int rc = 0;

	json_array_foreach(records, i, record) if (!rc) rc = add_knobs(g, record, err);
	if (!rc && !g->n_dims)
		rc = find_varied(g, records, err);
	return rc;
}

void jm_dim_quantity(double value, const char *unit, char *out, size_t size)
{
	if (!strcmp(unit, "Hz"))
		snprintf(out, size, "%.6g MHz", value / 1e6);
	else
		snprintf(out, size, "%.6g%s%s", value, *unit ? " " : "", unit);
}

static enum jm_group_state state_of(const char *name)
{
	static const char *const names[] = {
#define X(id, text) text,
		JM_GROUP_STATES(X)
#undef X
	};

	for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return (enum jm_group_state)i;
	return JM_STATE_UNKNOWN;
}

/* Over the devices of the knob on all hosts: ends of what was requested and enforced, and the worst
 * state. */
static void read_settings(const struct jm_group_dim *dim, const json_t *record,
	struct jm_group_value *v, double *ret_requested_max)
{
	const json_t *row;

	for (size_t i = 0; (row = jm_record_setting(record, i)); i++) {
		enum jm_group_state state = state_of(jm_json_text(row, "state"));

		if (strcmp(jm_json_text(row, "knob"), dim->name))
			continue;
		v->requested = fmin(v->requested, jm_json_real_of(row, "requested"));
		*ret_requested_max = fmax(*ret_requested_max, jm_json_real_of(row, "requested"));
		v->accepted = fmin(v->accepted, jm_json_real_of(row, "accepted"));
		v->enforced_min = fmin(v->enforced_min, jm_json_real_of(row, "enforced"));
		v->enforced_max = fmax(v->enforced_max, jm_json_real_of(row, "enforced"));
		if (state > v->state)
			v->state = state;
	}
}

static double first_known(double a, double b, double c, double d)
{
	return !isnan(a) ? a : !isnan(b) ? b : !isnan(c) ? c : d;
}

/* NULL: no memory, or there is one leaf at most. */
static char *read_leaves(const struct jm_group_dim *dim, const json_t *record, bool whole)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int n = out ? list_leaves(jm_dim_parameters(record), dim->name, whole, 0, out) : 0;

	if (out && !fclose(out) && n > 1)
		return text;
	free(text);
	return NULL;
}

/* What the plan says: a number in the unit ("300W", 300), or words ("default"), which the caller
 * owns; "" = none, NULL: no memory. */
static char *read_parameter(
	const struct jm_group_dim *dim, const json_t *record, double *ret_number)
{
	const json_t *leaf = jm_dim_parameter(record, dim->name);
	const char *word = json_string_value(leaf);
	char *several = read_leaves(dim, record, true);

	*ret_number = NAN;
	if (several)
		return several;
	if (json_is_number(leaf))
		*ret_number = json_number_value(leaf);
	else if (word && jm_parse_quantity(word, dim->unit, false, ret_number, NULL))
		return strdup(word);
	else if (json_is_boolean(leaf))
		return strdup(json_is_true(leaf) ? "yes" : "no");
	else if (json_is_array(leaf))
		return json_dumps(leaf, JSON_COMPACT);
	return strdup("");
}

/* The word that the report prints for a recorded value. */
static const char *shown_word(const char *word)
{
	return !strcmp(word, JM_AS_FOUND) ? "unchanged" : word;
}

/* Of a long path its end, where paths differ. */
static void put_word(const char *word, char *out, size_t size)
{
	size_t n = strlen(word);

	if (n < PATH_SHOWN || !strchr(word, '/')) {
		jm_text_format(out, size, "%s", word);
		return;
	}
	word += n - PATH_SHOWN;
	while (((unsigned char)*word & 0xC0) == 0x80)
		word++;
	jm_text_format(out, size, "...%s", word);
}

int jm_dim_value(const struct jm_group_dim *dim, const json_t *record, struct jm_group_value *ret)
{
	struct jm_group_value v = {
		.requested = NAN, .accepted = NAN, .enforced_min = NAN, .enforced_max = NAN};
	double asked, requested_max = NAN;
	char shown[sizeof(v.text)], quantity[40], key[32];
	char *word = read_parameter(dim, record, &asked), *several;

	if (!word)
		return -1;
	read_settings(dim, record, &v, &requested_max);
	several = read_leaves(dim, record, false);
	if (!*word && dim->knob && isnan(v.requested)) {
		free(word);
		word = strdup(JM_AS_FOUND);
	}
	put_word(!word	   ? ""
		 : several ? several
		 : *word   ? shown_word(word)
			   : "-",
		shown, sizeof(shown));
	free(several);
	if (!word)
		return -1;
	if (isnan(asked) && !*word)
		asked = v.requested;
	v.x = first_known(asked, v.requested, v.accepted, v.enforced_min);
	jm_dim_quantity(v.x, dim->unit, quantity, sizeof(quantity));
	if (!isnan(asked) && requested_max > asked && !isnan(v.requested) && v.requested == asked)
		snprintf(v.text, sizeof(v.text), "%.6g-%s", asked, quantity);
	else if (!isnan(asked))
		snprintf(v.text, sizeof(v.text), "%s", quantity);
	else if (!isnan(v.x))
		jm_text_format(v.text, sizeof(v.text), "%s (%s)", shown, quantity);
	else
		memcpy(v.text, shown, sizeof(shown));
	snprintf(key, sizeof(key), "%.12g", asked);
	v.key = strdup(!isnan(asked) ? key : *word ? word : shown);
	free(word);
	*ret = v;
	return v.key ? 0 : -1;
}

bool jm_dim_is(const struct jm_grouping *g, const char *key)
{
	for (int i = 0; i < g->n_dims; i++)
		if (jm_dim_has_name(key, g->dim[i].name))
			return true;
	return false;
}

bool jm_dim_has_knob(const struct jm_grouping *g)
{
	for (int i = 0; i < g->n_dims; i++)
		if (g->dim[i].knob)
			return true;
	return false;
}

int jm_dim_cap(const struct jm_grouping *g)
{
	for (int i = 0; i < g->n_dims; i++)
		if (g->dim[i].knob && !strcmp(g->dim[i].unit, "W"))
			return i;
	return -1;
}

static void copy_leaves(
	const struct jm_grouping *g, const json_t *record, const json_t *from, json_t *to)
{
	const json_t *value;
	const char *key;

	json_object_foreach((json_t *)from, key, value)
	{
		if (json_is_object(value))
			copy_leaves(g, record, value, to);
		else if (!jm_dim_is(g, key) && !is_output(record, key))
			json_object_set(to, key, (json_t *)value);
	}
}

char *jm_dim_series_key(const struct jm_grouping *g, const json_t *record)
{
	static const char *const also[] = {"workload", "device", "precision", "unit", "command"};
	json_t *key = json_object();
	const json_t *one = json_object_get(record, "case");
	char *out;

	if (!key)
		return NULL;
	copy_leaves(g, record, json_object_get(one, "parameters"), key);
	if (json_object_get(one, "template"))
		json_object_set(key, "command", (json_t *)jm_dim_command(record));
	for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++)
		if (!json_object_get(one, "parameters"))
			json_object_set(key, also[i], json_object_get(record, also[i]));
	out = json_dumps(key, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
	json_decref(key);
	return out;
}
