/* SPDX-License-Identifier: Apache-2.0 */
/* sensors.json: {"version": 1, "sensors": [{meter, driver, quantity, at, refresh_s, window_s,
 * delay_s, ...}]} */
#include "sensors_file.h"

#include "base/clock.h"
#include "base/text/json.h"
#include "base/files/private_file.h"
#include "base/files/state_folder.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME	  "sensors.json"
#define MOST	  (4 << 20) /* bytes */
#define LONGEST_S 10.0

/* NULL with a reason; JM_ENOENT: nothing was calibrated. */
static json_t *read_file(const struct jm_ctx *ctx, struct jm_err *err)
{
	char path[512], *text = NULL;
	size_t n = 0;
	json_t *root = NULL;
	int folder, rc = jm_state_path(ctx, "", path, sizeof(path), err);

	if (!rc)
		rc = jm_public_folder(path, &folder, err);
	if (rc)
		return NULL;
	rc = jm_private_read(folder, NAME, MOST, &text, &n, err);
	close(folder);
	if (!rc)
		root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	if (!rc && (!root || json_integer_value(json_object_get(root, "version")) != 1 ||
			   !json_is_array(json_object_get(root, "sensors")))) {
		json_decref(root);
		root = NULL;
		jm_err_set(err, JM_EFORMAT,
			"%s/" NAME
			" is damaged and not used; 'joulemark calibrate --forget' removes it.",
			path);
	}
	free(text);
	return root;
}

static bool speaks_of(
	const json_t *entry, const char *meter, const char *driver, const char *quantity)
{
	return !strcmp(jm_json_text(entry, "meter"), meter) &&
	       !strcmp(jm_json_text(entry, "driver"), driver) &&
	       !strcmp(jm_json_text(entry, "quantity"), quantity);
}

static const json_t *entry_of(const json_t *root, const struct jm_meters *set, int signal)
{
	const struct jm_signal *s = &set->signal[signal];
	const struct jm_meter *m = &set->meter[s->meter];
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(root, "sensors"), i, entry)
	{
		if (speaks_of(entry, m->id, m->driver, jm_quantity_name(s->quantity)))
			return entry;
	}
	return NULL;
}

/* The figure "NAME_s", in ns; `otherwise` if it is not above its uncertainty or is out of range. */
static int64_t ns_of(const json_t *entry, const char *name, double least, int64_t otherwise)
{
	char key[64], error[64];
	double s;

	snprintf(key, sizeof(key), "%s_s", name);
	snprintf(error, sizeof(error), "%s_error_s", name);
	s = jm_json_real_of(entry, key);
	if (jm_json_real_of(entry, error) > fabs(s))
		return otherwise;

	return s >= least && s <= LONGEST_S ? (int64_t)llround(s * 1e9) : otherwise;
}

void jm_sensors_apply(struct jm_ctx *ctx, struct jm_meters *set, int64_t *ret_delay_ns)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *root = read_file(ctx, &err);

	for (int i = 0; i < set->n_signals; i++) {
		const json_t *entry = root ? entry_of(root, set, i) : NULL;

		ret_delay_ns[i] = 0;
		if (!entry)
			continue;
		set->signal[i].refresh_ns =
			ns_of(entry, "refresh", 1e-4, set->signal[i].refresh_ns);
		set->signal[i].window_ns = ns_of(entry, "window", 0, set->signal[i].window_ns);
		set->signal[i].calibrated = true;
		ret_delay_ns[i] = ns_of(entry, "delay", -LONGEST_S, 0);
	}
	if (!root && err.code == JM_EFORMAT)
		jm_log(ctx, JM_WARNING, "%s", err.text);
	json_decref(root);
}

static json_t *entry_from(const json_t *observed, const json_t *signal)
{
	json_t *entry = json_copy(json_object_get(signal, "fit"));

	json_object_set(entry, "meter", json_object_get(signal, "meter"));
	json_object_set(entry, "driver", json_object_get(signal, "driver"));
	json_object_set(entry, "quantity", json_object_get(signal, "quantity"));
	json_object_set(entry, "label", json_object_get(signal, "label"));
	json_object_set(entry, "at", json_object_get(observed, "at"));
	json_object_set(entry, "device", json_object_get(observed, "device"));
	return entry;
}

static void replace(json_t *sensors, json_t *entry)
{
	const json_t *old;
	size_t i;

	json_array_foreach(sensors, i, old)
	{
		if (speaks_of(old, jm_json_text(entry, "meter"), jm_json_text(entry, "driver"),
			    jm_json_text(entry, "quantity"))) {
			json_array_set_new(sensors, i, entry);
			return;
		}
	}
	json_array_append_new(sensors, entry);
}

static int write_file(struct jm_ctx *ctx, const json_t *root, struct jm_err *err)
{
	char path[512], *text;
	int folder, rc = jm_state_folder(ctx, "", path, sizeof(path), err);

	if (!rc)
		rc = jm_public_folder(path, &folder, err);
	if (rc)
		return rc;
	text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	rc = text ? jm_private_replace(folder, NAME, text, strlen(text), 0644, err)
		  : jm_err_set(err, JM_ENOMEM, "Out of memory for " NAME ".");
	free(text);
	close(folder);
	return rc;
}

int jm_sensors_keep(struct jm_ctx *ctx, const json_t *observed, struct jm_err *err)
{
	struct jm_err local = JM_ERR_INIT;
	json_t *root = read_file(ctx, &local);
	const json_t *signal;
	size_t i;
	int kept = 0, rc;

	if (!root && local.code == JM_EFORMAT)
		return jm_err_set(err, local.code, "%s", local.text);
	if (!root)
		root = json_pack("{s:i, s:[]}", "version", 1, "sensors");
	json_array_foreach(json_object_get(observed, "signals"), i, signal)
	{
		if (!json_is_object(json_object_get(signal, "fit")) ||
			json_is_string(json_object_get(signal, "why")))
			continue;
		replace(json_object_get(root, "sensors"), entry_from(observed, signal));
		kept++;
	}
	rc = kept ? write_file(ctx, root, err) : 0;
	json_decref(root);
	return rc ? rc : kept;
}

int jm_sensors_forget(struct jm_ctx *ctx, struct jm_err *err)
{
	char path[512 + sizeof(NAME)], folder[512];
	int rc = jm_state_path(ctx, "", folder, sizeof(folder), err);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/" NAME, folder);
	if (unlink(path) && errno != ENOENT)
		return jm_err_set(
			err, JM_EPERM, "%s could not be removed: %s.", path, strerror(errno));
	return 0;
}
