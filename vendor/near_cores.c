/* SPDX-License-Identifier: Apache-2.0 */
#include "near_cores.h"
#include "library.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

#define API	   0x00020100 /* hwloc_topology_set_components came with 2.1 */
#define LEAST_KEPT 3	      /* cores of each rank where the sampler takes one of theirs */

#define HWLOC_CALLS(X)                                                                             \
	X(hwloc_get_api_version)                                                                   \
	X(hwloc_topology_init)                                                                     \
	X(hwloc_topology_destroy)                                                                  \
	X(hwloc_topology_set_components)                                                           \
	X(hwloc_topology_set_io_types_filter)                                                      \
	X(hwloc_topology_load)                                                                     \
	X(hwloc_topology_is_thissystem)                                                            \
	X(hwloc_topology_get_allowed_cpuset)                                                       \
	X(hwloc_get_cpubind)                                                                       \
	X(hwloc_get_type_depth)                                                                    \
	X(hwloc_get_nbobjs_by_depth)                                                               \
	X(hwloc_get_obj_by_depth)                                                                  \
	X(hwloc_bitmap_alloc)                                                                      \
	X(hwloc_bitmap_free)                                                                       \
	X(hwloc_bitmap_and)                                                                        \
	X(hwloc_bitmap_andnot)                                                                     \
	X(hwloc_bitmap_or)                                                                         \
	X(hwloc_bitmap_set)                                                                        \
	X(hwloc_bitmap_iszero)                                                                     \
	X(hwloc_bitmap_isequal)                                                                    \
	X(hwloc_bitmap_isincluded)                                                                 \
	X(hwloc_bitmap_intersects)                                                                 \
	X(hwloc_bitmap_list_snprintf)

struct calls {
#define X(name) __typeof__(&name) name;
	HWLOC_CALLS(X)
#undef X
};

static const struct jm_symbol symbols[] = {
#define X(name) {#name, offsetof(struct calls, name)},
	HWLOC_CALLS(X)
#undef X
};

static const struct jm_library library = {
	.title = "hwloc",
	.variable = "JM_HWLOC_LIB",
	.names = {"libhwloc.so.15", "libhwloc.so"},
	.mend = "install libhwloc (Debian: libhwloc15) or name the file in JM_HWLOC_LIB",
	.symbols = symbols,
	.n_symbols = sizeof(symbols) / sizeof(symbols[0]),
};

/* Ranks next to the same cores. */
struct group {
	hwloc_const_cpuset_t cpus; /* of the object that their GPUs hang on */
	int n_ranks, n_cores, kept;
};

struct machine {
	struct calls c;
	hwloc_topology_t topology;
	int core_depth;
	struct jm_near *rank;
	int n, n_groups;
	struct group *group;	/* [n] */
	int *group_of;		/* [n] of each rank */
	hwloc_bitmap_t *own;	/* [n] processors of each rank */
	hwloc_bitmap_t scratch; /* holds no value between functions */
};

static int no_memory(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOMEM, "Out of memory for the topology of the machine.");
}

/* ---- the topology ---------------------------------------------------------------------------- */

static int open_library(struct calls *c, struct jm_err *err)
{
	int rc = jm_library_open(&library, c, err);

	if (!rc && c->hwloc_get_api_version() < API)
		rc = jm_err_set(err, JM_EVERSION, "hwloc is older than 2.1; %s.", library.mend);
	return rc;
}

/* Without the plug-ins that ask drivers of GPUs: they take long, and open the GPUs. */
static int load(struct machine *m, struct jm_err *err)
{
	static const char *const slow[] = {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"};
	struct calls *c = &m->c;

	if (c->hwloc_topology_init(&m->topology))
		return no_memory(err);
	for (size_t i = 0; i < sizeof(slow) / sizeof(*slow); i++)
		c->hwloc_topology_set_components(
			m->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, slow[i]);
	c->hwloc_topology_set_io_types_filter(m->topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	if (c->hwloc_topology_load(m->topology))
		return jm_err_set(err, JM_EIO, "hwloc cannot read the topology of this machine.");
	m->core_depth = c->hwloc_get_type_depth(m->topology, HWLOC_OBJ_CORE);
	if (m->core_depth < 0) /* as in some virtual machines */
		m->core_depth = c->hwloc_get_type_depth(m->topology, HWLOC_OBJ_PU);
	return 0;
}

/* Who started this process may have bound it: taskset, numactl, srun. */
static int check_free(struct machine *m, struct jm_err *err)
{
	hwloc_const_cpuset_t all = m->c.hwloc_topology_get_allowed_cpuset(m->topology);
	char text[200];

	if (m->c.hwloc_get_cpubind(m->topology, m->scratch, HWLOC_CPUBIND_THREAD))
		return jm_err_set(
			err, JM_EIO, "hwloc cannot read which CPUs this process may use.");
	if (m->c.hwloc_bitmap_isequal(m->scratch, all))
		return 0;
	m->c.hwloc_bitmap_list_snprintf(text, sizeof(text), m->scratch);
	return jm_err_set(err, JM_EBUSY,
		"This process was started bound to CPUs %s (by taskset, numactl or srun, for "
		"example), which is kept.",
		text);
}

static hwloc_obj_t pci_device(const struct machine *m, const char *bus)
{
	unsigned int domain, b, device, function;
	hwloc_obj_t o;

	if (sscanf(bus, "%x:%x:%x.%x", &domain, &b, &device, &function) != 4)
		return NULL;
	for (unsigned int i = 0;
		(o = m->c.hwloc_get_obj_by_depth(m->topology, HWLOC_TYPE_DEPTH_PCI_DEVICE, i)); i++)
		if (o->attr->pcidev.domain == domain && o->attr->pcidev.bus == b &&
			o->attr->pcidev.dev == device && o->attr->pcidev.func == function)
			return o;
	return NULL;
}

/* ---- the division ---------------------------------------------------------------------------- */

static hwloc_obj_t core_at(const struct machine *m, int i)
{
	return m->c.hwloc_get_obj_by_depth(m->topology, m->core_depth, (unsigned int)i);
}

static int count_cores(const struct machine *m, hwloc_const_cpuset_t cpus)
{
	hwloc_obj_t core;
	int n = 0;

	for (int i = 0; (core = core_at(m, i)); i++)
		n += m->c.hwloc_bitmap_isincluded(core->cpuset, cpus);
	return n;
}

static int find_group(struct machine *m, int r, struct jm_err *err)
{
	hwloc_obj_t o = pci_device(m, m->rank[r].bus);
	int g = 0;

	if (!o)
		return jm_err_set(
			err, JM_ENOENT, "hwloc does not list the GPU %s.", m->rank[r].bus);
	while (!o->cpuset || m->c.hwloc_bitmap_iszero(o->cpuset))
		o = o->parent;
	while (g < m->n_groups && !m->c.hwloc_bitmap_isequal(m->group[g].cpus, o->cpuset))
		g++;
	if (g == m->n_groups)
		m->group[m->n_groups++] =
			(struct group){.cpus = o->cpuset, .n_cores = count_cores(m, o->cpuset)};
	m->group[g].n_ranks++;
	m->group_of[r] = g;
	return 0;
}

/* Where ranks would have all processors, the group with most cores for each rank leaves one. */
static void keep_one(struct machine *m)
{
	struct group *best = NULL;

	m->c.hwloc_bitmap_and(m->scratch, m->c.hwloc_topology_get_allowed_cpuset(m->topology),
		m->c.hwloc_topology_get_allowed_cpuset(m->topology));
	for (struct group *g = m->group; g < m->group + m->n_groups; g++) {
		m->c.hwloc_bitmap_andnot(m->scratch, m->scratch, g->cpus);
		if (!best || g->n_cores * best->n_ranks > best->n_cores * g->n_ranks)
			best = g;
	}
	if (best && m->c.hwloc_bitmap_iszero(m->scratch))
		best->kept = best->n_cores > best->n_ranks * LEAST_KEPT;
}

/* The share of the nth rank of its group. */
static void take_share(struct machine *m, int r, int nth)
{
	const struct group *g = &m->group[m->group_of[r]];
	int share = (g->n_cores - g->kept) / g->n_ranks, at = 0;
	hwloc_obj_t core;

	for (int i = 0; (core = core_at(m, i)); i++) {
		if (!m->c.hwloc_bitmap_isincluded(core->cpuset, g->cpus))
			continue;
		if (!share || (at >= nth * share && at < (nth + 1) * share))
			m->c.hwloc_bitmap_or(m->own[r], m->own[r], core->cpuset);
		at++;
	}
}

static int write_list(
	struct machine *m, char *out, size_t size, hwloc_const_bitmap_t set, struct jm_err *err)
{
	int n = m->c.hwloc_bitmap_list_snprintf(out, size, set);

	return n >= 0 && (size_t)n < size
		       ? 0
		       : jm_err_set(
				 err, JM_ERANGE, "A list of CPUs is longer than %zu bytes.", size);
}

static int write_rank(struct machine *m, int r, struct jm_err *err)
{
	int rc = write_list(m, m->rank[r].cpus, sizeof(m->rank[r].cpus), m->own[r], err);
	hwloc_bitmap_t nodes = m->c.hwloc_bitmap_alloc();
	hwloc_obj_t node;

	if (!nodes)
		return no_memory(err);
	for (unsigned int i = 0;
		(node = m->c.hwloc_get_obj_by_depth(m->topology, HWLOC_TYPE_DEPTH_NUMANODE, i));
		i++)
		if (m->c.hwloc_bitmap_intersects(node->cpuset, m->own[r]))
			m->c.hwloc_bitmap_set(nodes, node->os_index);
	if (!rc)
		rc = write_list(m, m->rank[r].nodes, sizeof(m->rank[r].nodes), nodes, err);
	m->c.hwloc_bitmap_free(nodes);
	return rc;
}

static int divide(struct machine *m, char *ret_rest, struct jm_err *err)
{
	hwloc_const_cpuset_t all = m->c.hwloc_topology_get_allowed_cpuset(m->topology);
	int rc = 0;

	keep_one(m);
	m->c.hwloc_bitmap_and(m->scratch, all, all);
	for (int r = 0; r < m->n && !rc; r++) {
		int nth = 0;

		for (int k = 0; k < r; k++)
			nth += m->group_of[k] == m->group_of[r];
		take_share(m, r, nth);
		m->c.hwloc_bitmap_andnot(m->scratch, m->scratch, m->own[r]);
		rc = write_rank(m, r, err);
	}
	return rc ? rc : write_list(m, ret_rest, JM_CPUS_TEXT, m->scratch, err);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static int make_room(struct machine *m, struct jm_err *err)
{
	m->group = calloc((size_t)m->n, sizeof(*m->group));
	m->group_of = calloc((size_t)m->n, sizeof(*m->group_of));
	m->own = calloc((size_t)m->n, sizeof(*m->own));
	m->scratch = m->c.hwloc_bitmap_alloc();
	if (!m->group || !m->group_of || !m->own || !m->scratch)
		return no_memory(err);
	for (int r = 0; r < m->n; r++) {
		m->own[r] = m->c.hwloc_bitmap_alloc();
		if (!m->own[r])
			return no_memory(err);
	}
	return 0;
}

static void done(struct machine *m)
{
	for (int r = 0; m->own && r < m->n; r++)
		m->c.hwloc_bitmap_free(m->own[r]);
	if (m->scratch)
		m->c.hwloc_bitmap_free(m->scratch);
	if (m->topology)
		m->c.hwloc_topology_destroy(m->topology);
	free(m->own);
	free(m->group_of);
	free(m->group);
}

int jm_near_cores(struct jm_near *rank, int n, char *ret_rest, bool *ret_here, struct jm_err *err)
{
	struct machine m = {.rank = rank, .n = n};
	int rc = open_library(&m.c, err);

	if (rc)
		return rc;
	rc = make_room(&m, err);
	if (!rc)
		rc = load(&m, err);
	if (!rc)
		*ret_here = m.c.hwloc_topology_is_thissystem(m.topology);
	if (!rc && *ret_here)
		rc = check_free(&m, err);
	for (int r = 0; r < n && !rc; r++)
		rc = find_group(&m, r, err);
	if (!rc)
		rc = divide(&m, ret_rest, err);
	done(&m);
	return rc;
}

int jm_near_cores_try(struct jm_err *err)
{
	struct calls c;

	return open_library(&c, err);
}
