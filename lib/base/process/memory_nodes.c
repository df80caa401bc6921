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

int jm_memory_prefer(const char *nodes, struct jm_err *err)
{
	cpu_set_t wanted, got;
	int mode = 0, rc = jm_cpu_list_read(nodes, &wanted, err);

	if (rc)
		return rc;
	if (prefer(&wanted))
		return jm_err_set(err, errno == EINVAL ? JM_ENOENT : JM_ENOSUP,
			"Memory cannot be asked of the NUMA nodes %s: %s.", nodes, strerror(errno));
	CPU_ZERO(&got);
	if (syscall(SYS_get_mempolicy, &mode, &got, BITS, NULL, 0) || !CPU_EQUAL(&wanted, &got))
		return jm_err_set(err, JM_ENOENT,
			"Some of the NUMA nodes %s do not exist here or have no memory, or a "
			"cgroup keeps them from this process.",
			nodes);
	return 0;
}
