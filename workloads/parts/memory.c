/* SPDX-License-Identifier: Apache-2.0 */
/* Free memory: Linux' Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. */
#include "memory.h"
#include "base/ctx.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A version of control groups: where its tree is, and its files. */
struct version {
	const char *tree, *most, *used, *cached;
};

static const struct version first = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	"memory.usage_in_bytes", "total_inactive_file "};
static const struct version second = {
	"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static FILE *open_file(const struct jm_ctx *ctx, const char *path, const char *name)
{
	char full[PATH_MAX];
	int n = snprintf(full, sizeof(full), "%s%s/%s", ctx->root, path, name);

	return n < (int)sizeof(full) ? fopen(full, "re") : NULL;
}

/* The number after a word at the start of a line; 0 = there is none, or a word ("max") follows. */
static double number_in(
	const struct jm_ctx *ctx, const char *path, const char *name, const char *word)
{
	FILE *f = open_file(ctx, path, name);
	char line[256];
	double value = 0;

	while (f && value == 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, word, strlen(word)))
			value = strtod(line + strlen(word), NULL);
	if (f)
		fclose(f);
	return value > 0 ? value : 0;
}

/* What one group leaves of its limit; pages of unused files can be reclaimed. */
static double left_by(const struct jm_ctx *ctx, const struct version *v, const char *path)
{
	double most = number_in(ctx, path, v->most, "");
	double used = number_in(ctx, path, v->used, "");
	double cached = number_in(ctx, path, "memory.stat", v->cached);

	if (most == 0)
		return INFINITY;
	used -= cached < used ? cached : used;
	return most > used ? most - used : 1;
}

/*
 * The memory left in a group ("/a/b") and in all groups around it: "/a" and "". Inside a container
 * its path may be that of the machine outside, which is not visible there; the container's own
 * limit is at the top.
 */
static double left_from(const struct jm_ctx *ctx, const struct version *v, const char *group)
{
	char path[PATH_MAX];
	size_t top = strlen(v->tree);
	double least = INFINITY, left;

	snprintf(path, sizeof(path), "%s%s", v->tree, group);
	do {
		left = left_by(ctx, v, path);
		if (left < least)
			least = left;
		*strrchr(path, '/') = 0;
	} while (strlen(path) >= top);
	return least;
}

/* "0::/user.slice" is of version 2, "4:memory:/job" of version 1. */
static double left_by_groups(const struct jm_ctx *ctx)
{
	FILE *f = open_file(ctx, "/proc/self", "cgroup");
	char line[PATH_MAX + 64];
	double least = INFINITY;

	while (f && fgets(line, sizeof(line), f)) {
		char *kinds = strchr(line, ':'), *group = kinds ? strchr(kinds + 1, ':') : NULL;
		double left = least;

		if (!group)
			continue;
		*group++ = 0;
		group[strcspn(group, "\n")] = 0;
		if (!kinds[1])
			left = left_from(ctx, &second, group);
		else if (!strcmp(kinds + 1, "memory"))
			left = left_from(ctx, &first, group);
		if (left < least)
			least = left;
	}
	if (f)
		fclose(f);
	return least;
}

size_t jm_memory_free(const struct jm_ctx *ctx)
{
	double available = 1024 * number_in(ctx, "/proc", "meminfo", "MemAvailable:");
	double left = left_by_groups(ctx);

	return (size_t)(left < available ? left : available);
}

/* ---- of a device ---- */

/*
 * The memory that a run needs in addition to its plan. Measured as the largest resident size of the
 * worker less the plan's peak (resnet50, vit-b16, gpt-117m on the backend cpu, plans of 0.7 to 2.8
 * GB): 21 to 33 MB for libraries, generated kernels and buffers of the start values. Page tables
 * take 1/512 of the plan and are charged to the control group. Twice the largest, and 5 % for what
 * other programs allocate while the run lasts.
 */
#define RESERVE (64e6)

static size_t less_reserve(size_t bytes)
{
	double rest = (double)bytes * (1 - JM_ROOM_RESERVE) - RESERVE;

	return rest > 1 ? (size_t)rest : bytes > 0;
}

size_t jm_fit_memory(const struct jm_ctx *ctx, const struct jm_device *device)
{
	size_t has = device->props.memory_bytes, here;

	if (device->props.host_memory) {
		here = less_reserve(jm_memory_free(ctx));
		has = less_reserve(has);
	} else {
		here = (size_t)((double)jm_device_memory_free(device) * (1 - JM_ROOM_RESERVE));
	}
	return here && (!has || here < has) ? here : has;
}
