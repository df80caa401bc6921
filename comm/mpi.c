/* SPDX-License-Identifier: Apache-2.0 */
/* Transport `mpi`: a plug-in (mpi_plugin.c), which alone knows the MPI library. */
#include "base/files/plugin_file.h"
#include "comm.h"

typedef const struct jm_transport_plugin *entry_fn(void);

static const struct jm_plugin_kind transports = {.title = "Transport",
	.entry = "jm_transport_entry",
	.folder = "comm",
	.variable = "JM_TRANSPORTS"};

static int find_entry(void **ret, struct jm_err *err)
{
	char path[JM_PLUGIN_PATHS][4096];
	int code = jm_plugin_entry(&transports, "mpi", path, ret, err);

	if (code || *ret)
		return code;
	return jm_err_set(err, JM_ENOENT,
		"Transport mpi is not available: neither %s%s%s exists; build joulemark with mpi.h "
		"of Open MPI (Debian's libopenmpi-dev), or use --transport net.",
		path[0], *path[0] ? " nor " : "", path[JM_PLUGIN_PATHS - 1]);
}

static int check_plugin(const struct jm_transport_plugin *p, struct jm_err *err)
{
	const struct jm_transport *t;

	if (!p)
		return jm_err_set(err, JM_EBUG, "Plug-in mpi.so gives no transport.");
	if (p->abi != JM_TRANSPORT_ABI)
		return jm_err_set(err, JM_EVERSION,
			"Plug-in mpi.so was built for version %u of the contract of transports, "
			"and this joulemark needs version %d; build the plug-in from the "
			"sources of this joulemark, or use --transport net.",
			p->abi, JM_TRANSPORT_ABI);
	t = p->transport;
	if (!t || !t->name || !t->open || !t->split || !t->start || !t->close)
		return jm_err_set(err, JM_EBUG,
			"The transport of plug-in mpi.so lacks a function that is required.");
	return 0;
}

static int mpi_load(const struct jm_transport **ret, struct jm_err *err)
{
	const struct jm_transport_plugin *plugin;
	entry_fn *entry;
	int code = find_entry((void **)&entry, err);

	if (code)
		return code;
	plugin = entry();
	code = check_plugin(plugin, err);
	if (!code)
		*ret = plugin->transport;
	return code;
}

static int mpi_check(struct jm_err *err)
{
	const struct jm_transport *loaded;

	return mpi_load(&loaded, err);
}

const struct jm_transport jm_transport_mpi = {
	.name = "mpi",
	.summary = "memory of one or more hosts, by MPI",
	.host_memory = true,
	.check = mpi_check,
	.load = mpi_load,
};
