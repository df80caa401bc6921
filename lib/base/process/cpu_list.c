/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "3" or "0-11", up to a comma or the end; the next one's start, or NULL. */
static const char *read_range(const char *at, cpu_set_t *set)
{
	unsigned long first, last;
	char *end;

	if (*at < '0' || *at > '9')
		return NULL;
	first = last = strtoul(at, &end, 10);
	if (*end == '-') {
		if (end[1] < '0' || end[1] > '9')
			return NULL;
		last = strtoul(end + 1, &end, 10);
	}
	if (last < first || last >= CPU_SETSIZE || (*end && *end != ','))
		return NULL;
	for (; first <= last; first++)
		CPU_SET(first, set);
	return *end ? end + 1 : end;
}

int jm_cpu_list_read(const char *text, cpu_set_t *ret, struct jm_err *err)
{
	const char *at = text;
	cpu_set_t set;

	CPU_ZERO(&set);
	do
		at = read_range(at, &set);
	while (at && *at);
	if (!at || text[strlen(text) - 1] == ',')
		return jm_err_set(err, JM_EUSAGE,
			"'%.100s' is no list of CPUs such as 0-11,96-107, with numbers below %d.",
			text, CPU_SETSIZE);
	*ret = set;
	return 0;
}

int jm_cpu_list_bind(const char *text, struct jm_err *err)
{
	cpu_set_t wanted, got;
	int rc = jm_cpu_list_read(text, &wanted, err);

	if (rc)
		return rc;
	if (sched_setaffinity(0, sizeof(wanted), &wanted))
		return jm_err_set(err, JM_ENOENT, "No work can be bound to CPUs %s: %s.", text,
			strerror(errno));
	if (sched_getaffinity(0, sizeof(got), &got) || !CPU_EQUAL(&wanted, &got))
		return jm_err_set(err, JM_ENOENT,
			"Some of the CPUs %s do not exist here, or a cgroup keeps them from this "
			"process.",
			text);
	return 0;
}

int jm_cpus_usable(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);
}

int jm_cpus_share(int ranks)
{
	int each = jm_cpus_usable() / ranks;

	return each > 0 ? each : 1;
}
