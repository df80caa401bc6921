/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel behind the files of a tree at JM_ROOT, or without it at /sys of a mount namespace,
 * loaded before the C library: what is written to a file whose name has a rule is rounded, clamped
 * or refused as Linux does it, and read back as Linux shows it. Every other write passes.
 *
 *	cpu.max			"max" or a quota of 1 ms at least, with or without the period, which
 *				otherwise stays (kernel/sched/core.c, cpu_max_write and
 *				tg_set_cfs_bandwidth)
 *	cpu.cfs_quota_us	below 0 is no limit, else 1 ms at least (the same file,
 *				cpu_cfs_quota_write_s64)
 *	constraint_N_power_limit_uw	rounded down to 1/8 W (drivers/powercap/intel_rapl_common.c,
 *					set_power_limit)
 *	scaling_min_freq, scaling_max_freq	brought into the limits of the hardware; a range
 *						that is reversed is
 *				refused, as before Linux 5.3 (drivers/cpufreq/cpufreq.c,
 *				cpufreq_set_policy)
 *	scaling_governor	one of those that the file beside lists; under `performance` the
 *				preference becomes performance, and gets its old value with another
 *				governor unless it was changed (drivers/cpufreq/intel_pstate.c,
 *				intel_pstate_hwp_set)
 *	energy_performance_preference	one of those that the file beside lists, or 0 to 255; any
 *					other than performance is
 *				refused as busy under the governor `performance`; default is shown
 *				as what it is (the same file, store_energy_performance_preference)
 *	scaling_setspeed	taken and shown under the governor userspace alone, which begins
 *				with the present clock (drivers/cpufreq/cpufreq_userspace.c)
 *	power1_cap		to the nearest milliwatt, and refused outside power1_cap_min and
 *				_max (drivers/hwmon/acpi_power_meter.c, set_cap)
 *
 * JM_FAKE_KERNEL_REFUSES=END: a write to files whose path ends so fails as for a user without the
 * right. JM_FAKE_KERNEL_LOG=FILE: a line "TEXT PATH" for each write to a file with a rule, in their
 * order. JM_FAKE_KERNEL_BUSY=END=TEXT: this text is not taken now by files whose path ends so.
 * JM_FAKE_KERNEL_IGNORES=END: a write to files whose path ends so succeeds and changes nothing.
 * JM_FAKE_KERNEL_HANGS=END=FILE: no read and no write of files whose path ends so returns while
 * FILE is there.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINE 256
#ifndef SYSFS_MAGIC
#define SYSFS_MAGIC 0x62656572
#endif
#define LEAST  1000   /* us */
#define MILLI  1000   /* of a watt, uW */
#define EIGHTH 125000 /* of a watt, uW */

/* Turns the line that was written into the one that is shown; folder: of the file, for its
 * neighbours. 0 or an errno. */
typedef int rule_fn(const char *folder, const char *now, char line[LINE]);

static void read_now(const char *path, char out[LINE])
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(out, LINE, file))
		*out = '\0';
	out[strcspn(out, "\n")] = '\0';
	if (file)
		fclose(file);
}

static int cpu_max(const char *folder, const char *now, char line[LINE])
{
	char quota[40] = "", period[40] = "100000";

	(void)folder;
	sscanf(now, "%*s %39s", period);
	if (sscanf(line, "%39s %39s", quota, period) < 1)
		return EINVAL;
	if (strcmp(quota, "max") != 0 && strtoll(quota, NULL, 10) < LEAST)
		return EINVAL;
	snprintf(line, LINE, "%s %s", quota, period);
	return 0;
}

static int cfs_quota(const char *folder, const char *now, char line[LINE])
{
	long long us = strtoll(line, NULL, 10);

	(void)folder;
	(void)now;
	if (us >= 0 && us < LEAST)
		return EINVAL;
	snprintf(line, LINE, "%lld", us < 0 ? -1 : us);
	return 0;
}

static int power_limit(const char *folder, const char *now, char line[LINE])
{
	char *end;
	unsigned long long uw = strtoull(line, &end, 10);

	(void)folder;
	(void)now;
	if (end == line || *end)
		return EINVAL;
	snprintf(line, LINE, "%llu", uw / EIGHTH * EIGHTH);
	return 0;
}

static long long neighbour(const char *folder, const char *name)
{
	char path[PATH_MAX], line[LINE];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	read_now(path, line);
	return strtoll(line, NULL, 10);
}

/* Into the limits of the hardware. */
static long long within(const char *folder, const char *line)
{
	long long khz = strtoll(line, NULL, 10), min = neighbour(folder, "cpuinfo_min_freq"),
		  max = neighbour(folder, "cpuinfo_max_freq");

	return khz < min ? min : khz > max ? max : khz;
}

static int min_freq(const char *folder, const char *now, char line[LINE])
{
	long long khz = within(folder, line);

	(void)now;
	snprintf(line, LINE, "%lld", khz);
	return khz > neighbour(folder, "scaling_max_freq") ? EINVAL : 0;
}

static int max_freq(const char *folder, const char *now, char line[LINE])
{
	long long khz = within(folder, line);

	(void)now;
	snprintf(line, LINE, "%lld", khz);
	return khz < neighbour(folder, "scaling_min_freq") ? EINVAL : 0;
}

static int one_of(const char *folder, const char *list, const char *word)
{
	char path[PATH_MAX], line[LINE], *save = NULL;

	snprintf(path, sizeof(path), "%s/%s", folder, list);
	read_now(path, line);
	for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save))
		if (!strcmp(w, word))
			return 0;
	return EINVAL;
}

static int put(const char *path, const char *line);

static void read_beside(const char *folder, const char *name, char out[LINE])
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	read_now(path, out);
}

static void put_beside(const char *folder, const char *name, const char *line)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (line)
		put(path, line);
	else
		unlink(path);
}

#define EPP	  "energy_performance_preference"
#define EPP_SAVED ".epp_powersave" /* of the driver's memory, not of sysfs */
#define SPEED	  "scaling_setspeed"
#define FASTEST	  "performance"

/* A writer that is killed in the middle leaves a state from which the old governor brings the old
 * preference. */
static int change_governor(const char *folder, const char *line)
{
	char path[PATH_MAX], epp[LINE], saved[LINE];
	bool fastest = !strcmp(line, FASTEST);
	int rc;

	snprintf(path, sizeof(path), "%s/scaling_governor", folder);
	read_beside(folder, EPP, epp);
	read_beside(folder, EPP_SAVED, saved);
	if (fastest && *epp)
		put_beside(folder, EPP_SAVED, epp);
	if (!fastest && *saved && !strcmp(epp, FASTEST))
		put_beside(folder, EPP, saved);
	if (!fastest)
		put_beside(folder, EPP_SAVED, NULL);
	rc = put(path, line);
	if (fastest && *epp)
		put_beside(folder, EPP, FASTEST);
	return rc;
}

static int governor(const char *folder, const char *now, char line[LINE])
{
	char speed[LINE], lowest[LINE];
	int rc = one_of(folder, "scaling_available_governors", line);

	if (rc || !strcmp(now, line))
		return rc;
	read_beside(folder, SPEED, speed);
	read_beside(folder, "cpuinfo_min_freq", lowest);
	if (*speed)
		put_beside(folder, SPEED, strcmp(line, "userspace") ? "<unsupported>" : lowest);
	return change_governor(folder, line);
}

static int preference(const char *folder, const char *now, char line[LINE])
{
	char *end, used[LINE];
	long raw = strtol(line, &end, 10);

	(void)now;
	if ((end == line || *end || raw < 0 || raw > 255) &&
		one_of(folder, "energy_performance_available_preferences", line))
		return EINVAL;
	read_beside(folder, "scaling_governor", used);
	if (!strcmp(used, FASTEST) && strcmp(line, FASTEST) != 0 && strcmp(line, "0") != 0)
		return EBUSY;
	if (!strcmp(line, "default"))
		snprintf(line, LINE, "balance_performance");
	return 0;
}

static int set_speed(const char *folder, const char *now, char line[LINE])
{
	char used[LINE];

	(void)now;
	read_beside(folder, "scaling_governor", used);
	snprintf(line, LINE, "%lld", within(folder, line));
	return strcmp(used, "userspace") ? EINVAL : 0;
}

static int power_cap(const char *folder, const char *now, char line[LINE])
{
	long long mw = (strtoll(line, NULL, 10) + MILLI / 2) / MILLI;

	(void)now;
	snprintf(line, LINE, "%lld", mw * MILLI);
	return mw * MILLI < neighbour(folder, "power1_cap_min") ||
			       mw * MILLI > neighbour(folder, "power1_cap_max")
		       ? EINVAL
		       : 0;
}

static const struct {
	const char *name;
	rule_fn *rule;
} rules[] = {
	{"cpu.max", cpu_max},
	{"cpu.cfs_quota_us", cfs_quota},
	{"constraint_0_power_limit_uw", power_limit},
	{"constraint_1_power_limit_uw", power_limit},
	{"power1_cap", power_cap},
	{"scaling_min_freq", min_freq},
	{"scaling_max_freq", max_freq},
	{"scaling_governor", governor},
	{EPP, preference},
	{SPEED, set_speed},
};

/* The path of the open file, if it lies in the tree. */
static const char *path_in_tree(int fd, char out[PATH_MAX])
{
	const char *root = getenv("JM_ROOT");
	char link[40], plain[PATH_MAX];
	struct statfs fs;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, PATH_MAX - 1);
	if (n <= 0 || !realpath(root ? root : "/sys", plain))
		return NULL;
	if (!root && (statfs(plain, &fs) || fs.f_type == SYSFS_MAGIC))
		return NULL; /* the kernel itself is there */
	out[n] = '\0';
	return strncmp(out, plain, strlen(plain)) ? NULL : out;
}

static bool ends_with(const char *path, const char *end, size_t n)
{
	return end && strlen(path) >= n && !strncmp(path + strlen(path) - n, end, n);
}

/* As in a driver that waits for its device. */
static void hang(const char *path)
{
	const char *hangs = getenv("JM_FAKE_KERNEL_HANGS"),
		   *file = hangs ? strchr(hangs, '=') : NULL;

	while (file && ends_with(path, hangs, (size_t)(file - hangs)) && !access(file + 1, F_OK))
		usleep(5000);
}

/* In one step, so that no reader sees half a line. */
static int put(const char *path, const char *line)
{
	char other[PATH_MAX + 8];
	FILE *file;

	snprintf(other, sizeof(other), "%s.new", path);
	file = fopen(other, "we");
	if (!file)
		return errno;
	fprintf(file, "%s\n", line);
	return fclose(file) || rename(other, path) ? errno : 0;
}

static bool is_busy(const char *path, const char *line)
{
	const char *busy = getenv("JM_FAKE_KERNEL_BUSY"), *text = busy ? strchr(busy, '=') : NULL;

	return text && !strcmp(text + 1, line) && ends_with(path, busy, (size_t)(text - busy));
}

static void note(const char *line, const char *path)
{
	const char *log = getenv("JM_FAKE_KERNEL_LOG");
	FILE *file = log ? fopen(log, "ae") : NULL;

	if (file) {
		fprintf(file, "%s %s\n", line, path);
		fclose(file);
	}
}

static int obey(rule_fn *rule, char *path, const char *text, size_t n)
{
	char now[LINE], line[LINE], *name = strrchr(path, '/') + 1;
	const char *refused = getenv("JM_FAKE_KERNEL_REFUSES"),
		   *ignored = getenv("JM_FAKE_KERNEL_IGNORES");
	int rc;

	if (refused && ends_with(path, refused, strlen(refused)))
		return EPERM;
	if (n >= sizeof(line))
		return EINVAL;
	read_now(path, now);
	memcpy(line, text, n);
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	note(line, path);
	if (is_busy(path, line))
		return EBUSY;
	if (ignored && ends_with(path, ignored, strlen(ignored)))
		return 0;
	name[-1] = '\0';
	rc = rule(path, now, line);
	name[-1] = '/';
	return rc ? rc : put(path, line);
}

/* The names of glibc are reserved.
 * NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) ssize_t write(int fd, const void *text, size_t n)
{
	char path[PATH_MAX];
	const char *in_tree = path_in_tree(fd, path), *name = in_tree ? strrchr(path, '/') : NULL;

	if (in_tree)
		hang(path);
	for (size_t i = 0; name && i < sizeof(rules) / sizeof(rules[0]); i++)
		if (!strcmp(rules[i].name, name + 1)) {
			errno = obey(rules[i].rule, path, text, n);
			return errno ? -1 : (ssize_t)n;
		}
	return syscall(SYS_write, fd, text, n);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) ssize_t pread(int fd, void *text, size_t n, off_t at)
{
	char path[PATH_MAX];

	if (getenv("JM_FAKE_KERNEL_HANGS") && path_in_tree(fd, path))
		hang(path);
	return syscall(SYS_pread64, fd, text, n, at);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) ssize_t read(int fd, void *text, size_t n)
{
	char path[PATH_MAX];

	if (getenv("JM_FAKE_KERNEL_HANGS") && path_in_tree(fd, path))
		hang(path);
	return syscall(SYS_read, fd, text, n);
}
