/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cpu backend, whose plug-in is in the folder JM_COUNTED_FROM, with memory that is counted:
 * each allocation is an anonymous mapping, whose pages the kernel provides when they are first
 * written. JM_COUNTED_LOG: a file to which each process appends "PID BYTES 0" for an allocation,
 * and "PID -BYTES PAGES" for its end, where PAGES are those of them that were written.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/device/backend.h"

#define BLOCKS 64
#define PAGE   ((size_t)4096)

static struct jm_backend counted;
static const struct jm_backend *cpu;
static struct {
	void *memory;
	size_t bytes;
} blocks[BLOCKS];

static void say(long bytes, size_t pages)
{
	char line[96];
	int fd = open(getenv("JM_COUNTED_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	int n = snprintf(line, sizeof(line), "%d %ld %zu\n", (int)getpid(), bytes, pages);

	if (fd < 0 || write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}

static void *counted_alloc(void *dev, size_t bytes)
{
	void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)dev;
	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (int i = 0; i < BLOCKS; i++)
		if (!blocks[i].memory) {
			blocks[i].memory = memory;
			blocks[i].bytes = bytes;
			say((long)bytes, 0);
			return memory;
		}
	abort();
}

static size_t written(void *memory, size_t bytes)
{
	size_t n = (bytes + PAGE - 1) / PAGE, sum = 0;
	unsigned char *there = malloc(n + 1);

	if (!there || (n && mincore(memory, bytes, there)))
		abort();
	for (size_t i = 0; i < n; i++)
		sum += there[i] & 1;
	free(there);
	return sum;
}

static void counted_release(void *dev, void *memory)
{
	(void)dev;
	for (int i = 0; i < BLOCKS && memory; i++)
		if (blocks[i].memory == memory) {
			say(-(long)blocks[i].bytes, written(memory, blocks[i].bytes));
			munmap(memory, blocks[i].bytes ? blocks[i].bytes : 1);
			blocks[i].memory = NULL;
			return;
		}
	if (memory)
		abort();
}

const struct jm_backend *jm_backend_entry(void)
{
	char path[PATH_MAX];
	const struct jm_backend *(*entry)(void);
	void *library, *found;

	snprintf(path, sizeof(path), "%s/cpu.so", getenv("JM_COUNTED_FROM"));
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	found = library ? dlsym(library, "jm_backend_entry") : NULL;
	memcpy(&entry, &found, sizeof(found));
	cpu = found ? entry() : NULL;
	if (!cpu)
		return NULL;
	counted = *cpu;
	counted.alloc = counted_alloc;
	counted.release = counted_release;
	return &counted;
}
