/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of other processes. */
#include "process_identity.h"
#include "base/printable.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* of /proc/PID/stat, from 1 */
#define PARENT_FIELD 4
#define START_FIELD  22

size_t jm_process_file(const char *root, pid_t pid, const char *name, char *out, size_t size)
{
	char path[PATH_MAX];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "%s/proc/%d/%s", root, (int)pid, name);
	file = fopen(path, "re");
	n = file ? fread(out, 1, size - 1, file) : 0;
	if (file)
		fclose(file);
	out[n] = '\0';
	return n;
}

/* The text after the command's name, which may contain any character, begins with field 3: the
 * state. */
static const char *stat_of(pid_t pid, char *text, size_t size)
{
	char *behind;

	jm_process_file("", pid, "stat", text, size);
	behind = strrchr(text, ')');
	return behind && behind[1] ? behind + 2 : NULL;
}

/* A number of it; 0 = it cannot be read. */
static unsigned long long number_of(pid_t pid, int wanted)
{
	char text[1024];
	const char *s = stat_of(pid, text, sizeof(text));

	for (int field = 3; s && field < wanted; field++) {
		s = strchr(s, ' ');
		s = s ? s + 1 : NULL;
	}
	return s ? strtoull(s, NULL, 10) : 0;
}

struct jm_process jm_process_of(pid_t pid)
{
	return (struct jm_process){.pid = pid, .start = number_of(pid, START_FIELD)};
}

/* Fields 2, 14, 15 and 22: name, user and system time, and the start. */
bool jm_process_times(const char *root, pid_t pid, struct jm_process_times *ret)
{
	unsigned long long user, system;
	char text[1024], *name, *behind;
	int n;

	*ret = (struct jm_process_times){.start = 0};
	jm_process_file(root, pid, "stat", text, sizeof(text));
	name = strchr(text, '(');
	behind = strrchr(text, ')'); /* the name may contain any character */
	if (!name || !behind)
		return false;
	n = sscanf(behind + 1,
		" %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d "
		"%llu",
		&user, &system, &ret->start);
	*behind = '\0';
	snprintf(ret->name, sizeof(ret->name), "%.31s", name + 1);
	jm_text_tame(ret->name);
	ret->cpu_s = n >= 2 ? (double)(user + system) / (double)sysconf(_SC_CLK_TCK) : 0;
	return n >= 2;
}

pid_t jm_process_parent(pid_t pid)
{
	return (pid_t)number_of(pid, PARENT_FIELD);
}

bool jm_process_runs(const struct jm_process *p)
{
	struct pollfd ended = {.events = POLLIN};
	struct jm_process now;
	bool gone;

	if (p->pid <= 0)
		return false;
	ended.fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (ended.fd < 0)
		return errno != ESRCH;
	gone = poll(&ended, 1, 0) > 0;
	close(ended.fd);
	now = jm_process_of(p->pid);
	return !gone && (!p->start || !now.start || p->start == now.start);
}

char jm_process_state(pid_t pid)
{
	char text[1024];
	const char *s = stat_of(pid, text, sizeof(text));

	return s ? *s : 0;
}

bool jm_process_stopped(pid_t pid)
{
	char state = jm_process_state(pid);

	return state == 'T' || state == 't';
}

bool jm_is_guard(pid_t pid)
{
	static const char guard[] = "joulemark\0guard"; /* with the final NUL */
	char line[sizeof(guard) + 2];

	return jm_process_file("", pid, "cmdline", line, sizeof(line)) == sizeof(guard) &&
	       !memcmp(line, guard, sizeof(guard));
}

void jm_process_command(pid_t pid, char *out, size_t size)
{
	size_t n = jm_process_file("", pid, "cmdline", out, size);

	while (n && !out[n - 1])
		n--;
	out[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)out[i]))
			out[i] = ' ';
}

void jm_process_text(pid_t pid, char *out, size_t size)
{
	char command[64];

	jm_process_command(pid, command, sizeof(command));
	snprintf(out, size, "process %d%s%s%s", (int)pid, *command ? " (" : "", command,
		*command ? ")" : "");
}

/* The file system of an open file as the kernel has it: st_dev of btrfs and overlays is another.
 * /proc/self/fdinfo/FD has the number of the mount, "mnt_id:\t29"; a line of /proc/self/mountinfo
 * begins with it: "29 1 8:2 / /home rw". */
static dev_t file_system(int fd, dev_t otherwise)
{
	char path[64], line[PATH_MAX + 512];
	int mount = -1, number;
	unsigned int high, low;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "re");
	while (file && mount < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "mnt_id: %d", &mount);
	if (file)
		fclose(file);
	file = fopen("/proc/self/mountinfo", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%d %*d %u:%u", &number, &high, &low) == 3 && number == mount)
			otherwise = makedev(high, low);
	if (file)
		fclose(file);
	return otherwise;
}

/* "1: FLOCK ADVISORY WRITE 1234 08:02:5678 0 EOF"; a process that waits for a lock has an arrow
 * after the number. Files of two file systems may have one inode number. */
pid_t jm_process_with_lock(int fd)
{
	unsigned long long inode;
	unsigned int high, low;
	char line[256];
	struct stat st;
	FILE *file;
	pid_t found = 0;
	dev_t device;
	int pid;

	if (fstat(fd, &st))
		return 0;
	device = file_system(fd, st.st_dev);
	file = fopen("/proc/locks", "re");
	while (file && !found && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &high, &low, &inode) ==
				4 &&
			inode == st.st_ino && makedev(high, low) == device && pid > 0)
			found = pid;
	if (file)
		fclose(file);
	return found;
}

/* The first line of a file; "" when it cannot be read. */
static void read_line(const char *root, const char *name, char *out, size_t size)
{
	char path[PATH_MAX];
	FILE *file;

	out[0] = '\0';
	snprintf(path, sizeof(path), "%s%s", root, name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(out, (int)size, file))
		out[strcspn(out, "\n")] = '\0';
	fclose(file);
}

void jm_process_boot(const char *root, char *out, size_t size)
{
	read_line(root, "/proc/sys/kernel/random/boot_id", out, size);
}

void jm_process_machine(const char *root, char *out, size_t size)
{
	read_line(root, "/etc/machine-id", out, size);
	if (strspn(out, "0123456789abcdef") != strlen(out))
		out[0] = '\0';
}

#define MAX_BYTES (4 << 20) /* of an environment */

/* NAME=VALUE with a 0 behind each, for the caller to free; NULL = it cannot be read. */
static char *environment(pid_t pid, size_t *ret_n)
{
	char path[64], *text = NULL;
	size_t size = 4096, n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	file = fopen(path, "re");
	while (file && size <= MAX_BYTES && n + 1 >= (text ? size : 0)) {
		char *grown = realloc(text, size *= 2);

		if (!grown)
			break;
		text = grown;
		n += fread(text + n, 1, size - 1 - n, file);
	}
	if (file)
		fclose(file);
	if (text)
		text[n] = '\0';
	*ret_n = n;
	return text;
}

char *jm_process_variable(pid_t pid, const char *name)
{
	size_t n, length = strlen(name);
	char *text = environment(pid, &n), *value = NULL;

	for (size_t i = 0; text && i < n && !value; i += strlen(text + i) + 1)
		if (!strncmp(text + i, name, length) && text[i + length] == '=')
			value = strdup(text + i + length + 1);
	free(text);
	return value;
}
