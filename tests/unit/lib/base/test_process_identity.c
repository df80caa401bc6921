/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds a lock, where files of two file systems have one inode number. Truth: who took it. */
#include "kit/test.h"
#include "base/process/process_identity.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CPUS 64 /* at most, as the kernel lists locks by the processor on which they were taken */

static int file_of(const char *folder)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/lock", folder);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

/* A process that has a lock on the file, taken on that processor, until it is killed; -1: it has
 * none. */
static pid_t holder(const char *folder, int how, int cpu)
{
	int ready[2];
	char word = 0;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		cpu_set_t set;
		int fd = file_of(folder);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		sched_setaffinity(0, sizeof(set), &set);
		word = !flock(fd, how | LOCK_NB);
		if (write(ready[1], &word, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &word, 1), 1);
	close(ready[0]);
	return word ? pid : -1;
}

/* Two file systems that begin to count at the same number, for this process and its children. */
static bool mount_two(const char *a, const char *b)
{
	return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mkdir(a, 0700) && !mkdir(b, 0700) && !mount("none", a, "tmpfs", 0, NULL) &&
	       !mount("none", b, "tmpfs", 0, NULL);
}

static void the_holder_is_of_the_file_and_not_of_its_namesake(void **state)
{
	char a[200], b[200];
	const char *folder = getenv("TMPDIR");
	pid_t others[CPUS], own;
	struct stat st[2];
	int file;

	(void)state;
	snprintf(a, sizeof(a), "%s/a", folder ? folder : "/tmp");
	snprintf(b, sizeof(b), "%s/b", folder ? folder : "/tmp");
	if (!mount_two(a, b))
		skip();
	own = holder(a, LOCK_EX, 0);
	for (int cpu = 0; cpu < CPUS; cpu++)
		others[cpu] = holder(b, LOCK_SH, cpu);
	file = file_of(b);
	assert_int_equal(fstat(file, &st[1]), 0);
	close(file);
	file = file_of(a);
	assert_int_equal(fstat(file, &st[0]), 0);
	assert_int_equal(st[0].st_ino, st[1].st_ino);
	assert_int_equal(jm_process_with_lock(file), own);
	kill(own, SIGKILL);
	assert_int_equal(waitpid(own, NULL, 0), own);
	assert_int_equal(jm_process_with_lock(file), 0); /* only the namesake is locked */
	close(file);
	for (int cpu = 0; cpu < CPUS; cpu++) {
		kill(others[cpu], SIGKILL);
		waitpid(others[cpu], NULL, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_holder_is_of_the_file_and_not_of_its_namesake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
