/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the choices made by timing in a file of lines "owner key value". */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan_cache.h"
#include "backends/cuda/device/math_library.h"

#define OWNER 160
#define LINE  (OWNER + CUDA_PLAN_KEY + CUDA_PLAN_VALUE + 8)

/*
 * "NVIDIA_H100_80GB_HBM3/132/13000/130100/0.1.0": model, multiprocessors, versions of driver,
 * cuBLASLt and joulemark, whose own kernels are among those that are timed.
 */
static void write_owner(struct cuda_dev *dev, char *ret, size_t size)
{
	int driver = 0;

	cuda_lt_open(dev, NULL); /* version 0 = cuBLASLt is absent */
	cudaDriverGetVersion(&driver);
	snprintf(ret, size, "%.100s/%d/%d/%zu/" JM_VERSION, dev->prop.name,
		dev->prop.multiProcessorCount, driver, dev->lt.version);
	for (char *c = ret; *c; c++)
		if (isspace((unsigned char)*c))
			*c = '_';
}

static bool find_folder(char *ret, size_t size)
{
	const char *given = secure_getenv("JM_PLANS"), *cache = secure_getenv("XDG_CACHE_HOME");
	const char *home = secure_getenv("HOME");

	if (given && *given)
		snprintf(ret, size, "%s", given);
	else if (cache && *cache == '/')
		snprintf(ret, size, "%s/joulemark", cache);
	else if (home && *home == '/')
		snprintf(ret, size, "%s/.cache/joulemark", home);
	return (given && *given) || (cache && *cache == '/') || (home && *home == '/');
}

static FILE *open_file(const char *mode)
{
	char folder[3900], path[4096];
	int flags = *mode == 'a' ? O_WRONLY | O_APPEND | O_CREAT : O_RDONLY, fd;

	if (!find_folder(folder, sizeof folder))
		return NULL;
	if (*mode == 'a') {
		char *last = strrchr(folder, '/');

		if (last) {
			*last = 0;
			mkdir(folder, 0755); /* ~/.cache, where it is missing */
			*last = '/';
		}
		mkdir(folder, 0755);
	}
	snprintf(path, sizeof path, "%s/cuda.plans", folder);
	fd = open(path, flags | O_CLOEXEC, 0644);
	return fd < 0 ? NULL : fdopen(fd, mode);
}

static void remember(struct cuda_dev *dev, const char *key, const char *value)
{
	struct cuda_plan *p = calloc(1, sizeof *p);

	if (!p)
		return;
	snprintf(p->key, sizeof p->key, "%s", key);
	snprintf(p->value, sizeof p->value, "%s", value);
	p->next = dev->plans;
	dev->plans = p;
}

static const char *find(const struct cuda_plan *p, const char *key)
{
	for (; p; p = p->next)
		if (!strcmp(p->key, key))
			return p->value;
	return NULL;
}

/*
 * Reads what the file has got since it was last read: another process may keep choices while this
 * one runs. The last line of a key is valid, because the list is searched from its end; but what
 * this process already knows stays.
 */
static void read_plans(struct cuda_dev *dev)
{
	char line[LINE], owner[OWNER], mine[OWNER], key[CUDA_PLAN_KEY], value[CUDA_PLAN_VALUE];
	FILE *f = open_file("r");
	const struct cuda_plan *known = dev->plans;

	if (!f || fseek(f, dev->plans_read, SEEK_SET))
		goto done;
	write_owner(dev, mine, sizeof mine);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%159s %159s %319s", owner, key, value) == 3 &&
			!strcmp(owner, mine) && !find(known, key))
			remember(dev, key, value);
	dev->plans_read = ftell(f);
done:
	if (f)
		fclose(f);
}

const char *cuda_plan_find(struct cuda_dev *dev, const char *key)
{
	const char *value = find(dev->plans, key);

	if (value)
		return value;
	read_plans(dev);
	return find(dev->plans, key);
}

/* Writes one line by one call, so that lines of several processes do not mix. */
void cuda_plan_keep(struct cuda_dev *dev, const char *key, const char *value)
{
	char line[LINE], owner[OWNER];
	FILE *f = open_file("a");
	int n;

	remember(dev, key, value);
	if (!f)
		return;
	write_owner(dev, owner, sizeof owner);
	n = snprintf(line, sizeof line, "%s %s %s\n", owner, key, value);
	if (n > 0 && (size_t)n < sizeof line)
		fwrite(line, 1, (size_t)n, f);
	fclose(f);
}

void cuda_plans_free(struct cuda_dev *dev)
{
	while (dev->plans) {
		struct cuda_plan *next = dev->plans->next;

		free(dev->plans);
		dev->plans = next;
	}
}
