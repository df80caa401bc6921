/* SPDX-License-Identifier: Apache-2.0 */
#include "gang_memory.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gang_file.h"

static void *map_file(int fd, size_t bytes)
{
	off_t end = (off_t)(JM__SHARED_FROM + bytes);
	struct stat st;
	int rc = fstat(fd, &st);

	if (!rc && st.st_size < end)
		rc = ftruncate(fd, end);
	return rc ? MAP_FAILED
		  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    (off_t)JM__SHARED_FROM);
}

int jm_gang_memory_map(int fd, size_t bytes, void **ret, struct jm_err *err)
{
	int alone = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
	void *memory = fd < 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, alone, -1, 0)
			      : map_file(fd, bytes);

	if (memory == MAP_FAILED)
		return jm_err_set(err, JM_EIO,
			"The memory that ranks share (%zu bytes) cannot be mapped: %s.", bytes,
			strerror(errno));
	*ret = memory;
	return 0;
}

void jm_gang_memory_unmap(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}

void jm_gang_memory_clear(void *memory, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory,
		  from = (at + page - 1) / page * page, to = (at + bytes) / page * page;

	if (from < to) /* it stays as it is where the kernel cannot */
		madvise((void *)from, to - from, MADV_REMOVE);
}

void jm_gang_memory_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
	const struct timespec nap = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	if (ns > 0)
		syscall(SYS_futex, word, FUTEX_WAIT, seen, &nap, NULL, 0);
}

void jm_gang_memory_wake(_Atomic uint32_t *word)
{
	atomic_fetch_add(word, 1);
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
