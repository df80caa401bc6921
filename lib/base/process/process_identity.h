/* SPDX-License-Identifier: Apache-2.0 */
/* Who another process is: a process id is used again, together with its start time it is not. */
#ifndef JM_PROCESS_IDENTITY_H
#define JM_PROCESS_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct jm_process {
	pid_t pid;		  /* 0 = none */
	unsigned long long start; /* clock ticks since the machine's start; 0 = unknown */
};

/* Reads /proc/PID/NAME, a 0 behind it, and returns the bytes read; 0 = it cannot be read. root:
 * prefix of /proc. */
size_t jm_process_file(const char *root, pid_t pid, const char *name, char *out, size_t size);
/* The value of a variable of its environment, for the caller to free; NULL = it has none of that
 * name, or this process may not read its environment. */
char *jm_process_variable(pid_t pid, const char *name);
/* The process with that id, as it is now. start is 0 when it cannot be read. */
struct jm_process jm_process_of(pid_t pid);
struct jm_process_times {
	char name[32];		  /* the kernel's name for it, printable: "python3" */
	double cpu_s;		  /* processor time of all its threads so far, in seconds */
	unsigned long long start; /* as of jm_process */
};

/* Of the process that has the id now, ended or not; false = there is none, or it is hidden. root:
 * prefix of /proc. */
bool jm_process_times(const char *root, pid_t pid, struct jm_process_times *ret);
/* 0 = there is no such process. */
pid_t jm_process_parent(pid_t pid);
/* Does it still run? One that has ended but was not reaped does not. If the start is unknown, only
 * the id is compared. */
bool jm_process_runs(const struct jm_process *p);
/* As /proc has it: 'R' runs, 'T' stopped (SIGSTOP), 't' stopped by a debugger...; 0 = there is no
 * such process. */
char jm_process_state(pid_t pid);
/* Is it stopped (SIGSTOP, a debugger)? */
bool jm_process_stopped(pid_t pid);
/* A guard of joulemark restores its settings when its client has ended: it must never be killed. */
bool jm_is_guard(pid_t pid);
/* Its command line in printable characters, "" when it cannot be read. */
void jm_process_command(pid_t pid, char *out, size_t size);
/* "process 123 (sleep 60)" */
void jm_process_text(pid_t pid, char *out, size_t size);
/* The process that holds a flock on the open file; 0 = unknown. */
pid_t jm_process_with_lock(int fd);
/* The id of this boot, since which start times count; "" where the kernel does not report it. root:
 * prefix of /proc. */
void jm_process_boot(const char *root, char *out, size_t size);
/* The id of this machine, which its starts share; "" where it has none (/etc/machine-id). root:
 * prefix of /etc. */
void jm_process_machine(const char *root, char *out, size_t size);

#endif
