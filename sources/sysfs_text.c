/* SPDX-License-Identifier: Apache-2.0 */
#include "sysfs_text.h"
#include "base/ctx.h"
#include "base/text/number.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool jm_sysfs_line(const char *folder, const char *file, char *out, size_t size)
{
	char path[512];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, out, size - 1);
	close(fd);
	if (n < 0)
		return false;
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return true;
}

void jm_sysfs_line_now(int fd, char *out, size_t size)
{
	ssize_t n = pread(fd, out, size - 1, 0);

	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

double jm_sysfs_micro_now(int fd)
{
	char text[32];
	uint64_t value;

	jm_sysfs_line_now(fd, text, sizeof(text));
	return jm_number_whole(text, UINT64_MAX, &value) ? (double)value / 1e6 : NAN;
}

long jm_sysfs_number(const char *folder, const char *file)
{
	char text[64];
	uint64_t value;

	if (!jm_sysfs_line(folder, file, text, sizeof(text)))
		return -1;
	text[strcspn(text, "-,")] = '\0';
	if (!jm_number_whole(text, LONG_MAX, &value))
		return -1;
	return (long)value;
}

long jm_sysfs_socket(const struct jm_ctx *ctx, const char *pci)
{
	unsigned int domain, bus, device, function;
	char folder[512];
	long number;

	if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
		return -1;
	snprintf(folder, sizeof(folder), "%s/sys/bus/pci/devices/%04x:%02x:%02x.%x", ctx->root,
		domain, bus, device, function);
	number = jm_sysfs_number(folder, "numa_node");
	if (number < 0)
		return -1;
	snprintf(folder, sizeof(folder), "%s/sys/devices/system/node/node%ld", ctx->root, number);
	number = jm_sysfs_number(folder, "cpulist"); /* the first of them */
	if (number < 0)
		return -1;
	snprintf(folder, sizeof(folder), "%s/sys/devices/system/cpu/cpu%ld/topology", ctx->root,
		number);
	return jm_sysfs_number(folder, "physical_package_id");
}
