/* SPDX-License-Identifier: Apache-2.0 */
#include "run_affinity.h"
#include "base/net/meeting.h"
#include "base/process/cpu_list.h"
#include "report/format/text.h"
#include "run/worker/case_options.h"
#include "run/worker/worker_device.h"
#include "vendor/near_cores.h"
#include "vendor/nvml_gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ranks of this host. */
struct ranks {
	int n, rank[JM_MEET_MOST];
	char device[JM_MEET_MOST][64];
	struct jm_near near[JM_MEET_MOST];
	char rest[JM_CPUS_TEXT];
	bool here; /* the processors are of this machine */
};

static const char *option(const json_t *parameters, const char *name)
{
	return json_string_value(json_object_get(json_object_get(parameters, "options"), name));
}

static const char *wanted(const json_t *parameters)
{
	const char *value = option(parameters, "affinity");

	return value ? value : "near";
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Copies the nth of the lists 0-3+8@1/4-7: its CPUs as 0-3,8, and the nodes behind @; NULL = there
 * is no @. False: there are not so many lists. */
static bool nth_list(const char *value, int nth, char *out, size_t size, char **ret_nodes)
{
	for (; nth && value; nth--) {
		value = strchr(value, '/');
		value = value ? value + 1 : NULL;
	}
	if (!value)
		return false;
	snprintf(out, size, "%.*s", (int)strcspn(value, "/"), value);
	for (char *c = out; *c; c++)
		*c = *c == '+' ? ',' : *c;
	*ret_nodes = strchr(out, '@');
	if (*ret_nodes)
		*(*ret_nodes)++ = '\0';
	return true;
}

int jm_run_affinity_check(const char *value, struct jm_err *err)
{
	char list[JM_CPUS_TEXT], *nodes;
	cpu_set_t set;

	if (!strcmp(value, "near") || !strcmp(value, "none"))
		return 0;
	for (int i = 0; nth_list(value, i, list, sizeof(list), &nodes); i++)
		if (strlen(value) >= sizeof(list) || jm_cpu_list_read(list, &set, err) ||
			(nodes && (strlen(nodes) >= sizeof(((struct jm_near *)0)->nodes) ||
					  jm_cpu_list_read(nodes, &set, err)))) {
			*err = (struct jm_err)JM_ERR_INIT;
			return jm_err_set(err, JM_EUSAGE,
				"--affinity takes near, none, or the CPUs of each rank, as in "
				"0-11+96-107/12-23+108-119, and behind @ the NUMA nodes of its "
				"memory, as in 0-11@0/12-23@1, not '%.100s'.",
				value);
		}
	return 0;
}

static int take_lists(struct ranks *all, const char *value, struct jm_err *err)
{
	char more[JM_CPUS_TEXT], *nodes;
	int n = 0;

	for (; n < all->n && nth_list(value, n, all->near[n].cpus, JM_CPUS_TEXT, &nodes); n++)
		snprintf(all->near[n].nodes, sizeof(all->near[n].nodes), "%s", nodes ? nodes : "");
	if (n == 1)
		for (int r = 1; r < all->n; r++)
			all->near[r] = all->near[0];
	if ((n > 1 && n < all->n) || nth_list(value, all->n, more, sizeof(more), &nodes))
		return jm_err_set(err, JM_EUSAGE,
			"--affinity %.200s does not have a list of CPUs for each of the %d ranks "
			"of this host; give one for each, or one for all.",
			value, all->n);
	return 0;
}

/* ---- next to the GPUs ------------------------------------------------------------------------ */

static bool uses_gpu(const struct ranks *all)
{
	for (int r = 0; r < all->n; r++)
		if (!strncmp(all->device[r], "cuda", 4))
			return true;
	return false;
}

static int find_bus(const struct jm_nvml_gpus *gpus, const char *device, char bus[static 32],
	struct jm_err *err)
{
	const char *colon = strchr(device, ':');
	long number = colon ? strtol(colon + 1, NULL, 10) : 0;

	for (int i = 0; i < gpus->n; i++)
		if (gpus->gpu[i].allocated && gpus->gpu[i].number == number) {
			memcpy(bus, gpus->gpu[i].bus_id, sizeof(gpus->gpu[i].bus_id));
			return 0;
		}
	return jm_err_set(err, JM_ENOENT, "NVML has no GPU %s.", device);
}

static int find_buses(struct ranks *all, struct jm_err *err)
{
	struct jm_nvml_gpus gpus = {0};
	struct jm_nvml nvml;
	int rc = jm_nvml_open(&nvml, err);

	if (rc)
		return rc;
	rc = jm_nvml_gpus_open(&nvml, &gpus, err);
	for (int r = 0; r < all->n && !rc; r++)
		rc = find_bus(&gpus, all->device[r], all->near[r].bus, err);
	jm_nvml_gpus_done(&gpus);
	jm_nvml_close(&nvml);
	return rc;
}

static int find_near(struct ranks *all, struct jm_err *err)
{
	int rc = find_buses(all, err);

	return rc ? rc : jm_near_cores(all->near, all->n, all->rest, &all->here, err);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static int list_ranks(const json_t *parameters, const json_t *gang, struct ranks *ret)
{
	const char *devices = json_string_value(json_object_get(parameters, "device"));
	const json_t *here = json_object_get(gang, "here");
	const char *ranks = option(parameters, "ranks");
	int world = ranks ? (int)strtol(ranks, NULL, 10) : 1;

	ret->n = json_is_array(here) ? (int)json_array_size(here) : world;
	if (ret->n < 1 || ret->n > JM_MEET_MOST)
		ret->n = 1;
	for (int r = 0; r < ret->n; r++) {
		ret->rank[r] = json_is_array(here)
				       ? (int)json_integer_value(json_array_get(here, (size_t)r))
				       : r;
		jm__device_of_rank(devices, ret->rank[r], ret->device[r], sizeof(ret->device[r]));
	}
	return ret->n;
}

static json_t *answer(const struct ranks *all, const char *by, const char *reason)
{
	json_t *ranks = json_array();

	for (int r = 0; r < all->n && strcmp(by, "none") != 0; r++) {
		const struct jm_near *near = &all->near[r];

		json_array_append_new(
			ranks, json_pack("{s:i, s:s, s:o, s:s, s:o}", "rank", all->rank[r],
				       "device", all->device[r], "gpu", jm_json_said(near->bus),
				       "cpus", near->cpus, "nodes", jm_json_said(near->nodes)));
	}
	return json_pack("{s:s, s:o, s:o, s:s?}", "by", by, "ranks", ranks, "sampler",
		jm_json_said(strcmp(by, "near") ? NULL : all->rest), "reason", reason);
}

static json_t *choose(struct ranks *all, const char *value, bool is_default, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;

	if (!strcmp(value, "none"))
		return answer(all, "none", NULL);
	if (strcmp(value, "near") != 0)
		return take_lists(all, value, err) ? NULL : answer(all, "given", NULL);
	if (!uses_gpu(all))
		return is_default ? NULL : answer(all, "none", "The work uses no NVIDIA GPU.");
	return find_near(all, &why) ? answer(all, "none", why.text) : answer(all, "near", NULL);
}

static json_t *find(
	const json_t *parameters, const json_t *gang, bool *ret_here, struct jm_err *err)
{
	struct ranks *all = calloc(1, sizeof(*all));
	json_t *out = NULL;

	if (!all) {
		jm_err_set(err, JM_ENOMEM, "Out of memory for the list of ranks.");
		return NULL;
	}
	all->here = true;
	list_ranks(parameters, gang, all);
	out = choose(all, wanted(parameters), !option(parameters, "affinity"), err);
	*ret_here = all->here;
	free(all);
	return out;
}

json_t *jm_run_affinity(const json_t *parameters, const json_t *gang, struct jm_err *err)
{
	struct ranks none = {0};
	bool here = true;
	json_t *out = find(parameters, gang, &here, err);

	if (here || !out)
		return out;
	json_decref(out);
	return answer(&none, "none",
		"The topology is that of a file (HWLOC_XMLFILE), not of this machine.");
}

/* ---- --dry-run ------------------------------------------------------------------------------- */

static void show_rank(struct jm_cli *cli, const json_t *row)
{
	const char *gpu = jm_json_text(row, "gpu"), *nodes = jm_json_text(row, "nodes");
	char line[1400];

	snprintf(line, sizeof(line), "rank %d on %s%s%s: CPUs %s%s%s",
		(int)json_integer_value(json_object_get(row, "rank")), jm_json_text(row, "device"),
		*gpu ? " at " : "", gpu, jm_json_text(row, "cpus"),
		*nodes ? ", memory of NUMA nodes " : "", nodes);
	jm_text_wrap(cli->out, line, 4, 6, cli->width);
}

static void show(struct jm_cli *cli, const char *value, const json_t *affinity)
{
	const char *reason = jm_json_text(affinity, "reason"),
		   *sampler = jm_json_text(affinity, "sampler");
	const json_t *row;
	char line[1400];
	size_t i;

	snprintf(line, sizeof(line), "affinity %s: %s%s", value,
		json_array_size(json_object_get(affinity, "ranks")) ? "" : "nothing is bound. ",
		reason);
	jm_text_wrap(cli->out, line, 2, 4, cli->width);
	json_array_foreach(json_object_get(affinity, "ranks"), i, row) show_rank(cli, row);
	snprintf(line, sizeof(line), "sampler: CPUs %s", sampler);
	if (*sampler)
		jm_text_wrap(cli->out, line, 4, 6, cli->width);
}

/* Cases that differ in other parameters have the same. */
static int show_case(struct jm_cli *cli, const json_t *parameters, json_t *shown)
{
	const char *device = jm_json_text(parameters, "device"),
		   *ranks = option(parameters, "ranks");
	json_t *affinity;
	char key[600];
	bool here;

	snprintf(key, sizeof(key), "%s %s %s", device, ranks ? ranks : "", wanted(parameters));
	if (json_object_get(shown, key) || json_object_get(parameters, "command"))
		return 0;
	json_object_set_new(shown, key, json_true());
	affinity = find(parameters, NULL, &here, &cli->err);
	if (affinity)
		show(cli, wanted(parameters), affinity);
	json_decref(affinity);
	return cli->err.code;
}

int jm_run_affinity_show(struct jm_cli *cli, const struct jm_plan *plan)
{
	json_t *shown = json_object();
	int rc = 0;

	for (int i = 0; i < plan->n && !rc; i++)
		rc = show_case(cli, plan->cases[i].parameters, shown);
	json_decref(shown);
	return rc;
}
