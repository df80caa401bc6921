/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_nodes.h"
#include "cpu_list.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* set_mempolicy(2). Both take other nodes where these have no memory left. */
#define PREFERRED      1 /* one node */
#define PREFERRED_MANY 5 /* several; from Linux 5.15 on */
#define BITS	       ((unsigned long)CPU_SETSIZE + 1)

static long prefer(const cpu_set_t *nodes)
{
	long rc = syscall(SYS_set_mempolicy, PREFERRED_MANY, nodes, BITS);

	if (rc && errno == EINVAL && CPU_COUNT(nodes) == 1)
		rc = syscall(SYS_set_mempolicy, PREFERRED, nodes, BITS);
	return rc;
}

struct policy {
	int mode;
	cpu_set_t nodes;
};

/* The kernel's default one where it does not say. */
static struct policy found_policy(void)
{
	struct policy ret = {0};

	if (syscall(SYS_get_mempolicy, &ret.mode, &ret.nodes, BITS, NULL, 0))
		memset(&ret, 0, sizeof(ret));
	return ret;
}

static void restore(const struct policy *old)
{
	syscall(SYS_set_mempolicy, old->mode, &old->nodes, BITS);
}

int jm_memory_prefer(const char *nodes, struct jm_err *err)
{
	const struct policy old = found_policy();
	struct policy now;
	cpu_set_t wanted;
	int rc = jm_cpu_list_read(nodes, &wanted, err);

	if (rc)
		return rc;
	if (prefer(&wanted))
		return jm_err_set(err, errno == EINVAL ? JM_ENOENT : JM_ENOSUP,
			"Memory cannot be asked of the NUMA nodes %s: %s.", nodes, strerror(errno));
	now = found_policy();
	if (CPU_EQUAL(&wanted, &now.nodes))
		return 0;
	restore(&old);
	return jm_err_set(err, JM_ENOENT,
		"Some of the NUMA nodes %s do not exist here or have no memory, or a "
		"cgroup keeps them from this process.",
		nodes);
}

int jm_memory_try(const char *nodes, struct jm_err *err)
{
	const struct policy old = found_policy();
	int rc = jm_memory_prefer(nodes, err);

	if (!rc)
		restore(&old);
	return rc;
}
