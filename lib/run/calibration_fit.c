/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the properties of the sensors to the readings. */
#include "run/calibration_fit.h"

#include "base/text/json.h"
#include "energy/sensor_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_POINTS 10000000
#define LONGEST_S   1e6

static int broken(struct jm_err *err, const char *what)
{
	return jm_err_set(
		err, JM_EFORMAT, "This is not a file of 'joulemark calibrate --json': %s.", what);
}

static bool good_time(const json_t *t)
{
	return json_is_number(t) && fabs(json_number_value(t)) <= LONGEST_S;
}

static int64_t time_of(const json_t *t)
{
	return (int64_t)(json_number_value(t) * 1e9);
}

/* To be freed. */
static int read_edges(const json_t *list, struct jm_load_edges *ret, struct jm_err *err)
{
	size_t n = json_array_size(list), i;
	int64_t *t_ns = calloc(n + 1, sizeof(*t_ns));
	const json_t *one;

	if (!t_ns || n > MOST_POINTS) {
		free(t_ns);
		return t_ns ? broken(err, "it has too many edges")
			    : jm_err_set(err, JM_ENOMEM, "Out of memory for a calibration.");
	}
	json_array_foreach(list, i, one)
	{
		if (!good_time(one) || (i && time_of(one) < t_ns[i - 1])) {
			free(t_ns);
			return broken(err, "the times in edges_s are not in order");
		}
		t_ns[i] = time_of(one);
	}
	*ret = (struct jm_load_edges){t_ns, (int)n};
	return 0;
}

/* To be freed; NULL with a reason. */
static struct jm_reading *read_changes(const json_t *list, int *ret_n, struct jm_err *err)
{
	size_t n = json_array_size(list), i;
	struct jm_reading *reading = n > MOST_POINTS ? NULL : calloc(n + 1, sizeof(*reading));
	const json_t *one;

	if (!reading) {
		jm_err_set(err, JM_ENOMEM, "Out of memory for a calibration.");
		return NULL;
	}
	json_array_foreach(list, i, one)
	{
		const json_t *t = json_array_get(one, 0), *value = json_array_get(one, 1);

		if (!good_time(t) || !json_is_number(value) ||
			(i && time_of(t) <= reading[i - 1].t_ns)) {
			free(reading);
			broken(err, "changes are not pairs of time and value in order of time");
			return NULL;
		}
		reading[i] = (struct jm_reading){json_number_value(value), time_of(t)};
	}
	*ret_n = (int)n;
	return reading;
}

static void put(json_t *object, const char *name, struct jm_fitted f)
{
	char key[64];

	snprintf(key, sizeof(key), "%s_s", name);
	json_object_set_new(object, key, jm_json_number(f.value));
	snprintf(key, sizeof(key), "%s_error_s", name);
	json_object_set_new(object, key, jm_json_number(f.error));
}

static json_t *fit_json(const struct jm_sensor_fit *fit, bool follows)
{
	json_t *object = json_object();

	put(object, "refresh", fit->refresh);
	put(object, "window", fit->window);
	put(object, "delay", fit->delay);
	put(object, "rise", fit->rise);
	put(object, "fall", fit->fall);
	json_object_set_new(object, "low_watts", jm_json_number(follows ? fit->low_watts : NAN));
	json_object_set_new(object, "high_watts", jm_json_number(follows ? fit->high_watts : NAN));
	json_object_set_new(object, "rms_watts", jm_json_number(follows ? fit->rms_watts : NAN));
	json_object_set_new(object, "changes", json_integer(fit->changes));
	return object;
}

static int fit_signal(json_t *signal, const struct jm_load_edges *edges, struct jm_err *err)
{
	const char *quantity = jm_json_text(signal, "quantity");
	bool counter = !strcmp(quantity, jm_quantity_name(JM_Q_ENERGY));
	struct jm_err why = JM_ERR_INIT;
	struct jm_sensor_fit fit;
	int n, rc;
	struct jm_reading *changes = read_changes(json_object_get(signal, "changes"), &n, err);

	if (!changes)
		return err->code;
	rc = jm_sensor_fit(counter ? JM_Q_ENERGY : JM_Q_POWER, changes, n, edges, &fit, &why);
	free(changes);
	if (rc && rc != JM_ERANGE)
		return jm_err_set(err, rc, "%s", why.text);
	json_object_set_new(signal, "fit", fit_json(&fit, !rc));
	json_object_set_new(signal, "why", rc ? json_string(why.text) : json_null());
	return 0;
}

int jm_calibrate_fit(json_t *observed, struct jm_err *err)
{
	json_t *signals = json_object_get(observed, "signals"), *signal;
	struct jm_load_edges edges;
	size_t i;
	int rc;

	if (json_integer_value(json_object_get(observed, "version")) != 1 ||
		!json_is_array(signals))
		return broken(err, "its version is not 1, or it has no signals");
	rc = read_edges(json_object_get(observed, "edges_s"), &edges, err);
	if (rc)
		return rc;
	json_array_foreach(signals, i, signal)
	{
		if (!rc)
			rc = fit_signal(signal, &edges, err);
	}
	free((void *)(uintptr_t)edges.t_ns);
	return rc;
}
