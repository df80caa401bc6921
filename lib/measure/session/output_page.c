/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a command's output that were read, shared with the processes that write them. */
#include "output_page.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 1000 /* while the reader reads; a reader that was stopped there is not awaited */

struct jm_output_page {
	_Atomic uint64_t reads; /* begun and ended: odd while one is going on */
	_Atomic uint64_t bytes; /* that were read */
	uint64_t dev, ino;	/* of the pipe */
};

static struct jm_output_page *map(int fd, int protection)
{
	void *page = mmap(NULL, sizeof(struct jm_output_page), protection, MAP_SHARED, fd, 0);

	return page == MAP_FAILED ? NULL : page;
}

struct jm_output_page *jm_output_page_new(const char *path, int fd)
{
	int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct jm_output_page *page = NULL;
	struct stat st;

	if (file < 0)
		return NULL;
	/* a page without room on the disk would end this process when it is written */
	if (!fstat(fd, &st) && !posix_fallocate(file, 0, sizeof(*page)))
		page = map(file, PROT_READ | PROT_WRITE);
	close(file);
	if (page) {
		page->dev = st.st_dev;
		page->ino = st.st_ino;
	}
	return page;
}

ssize_t jm_output_page_read(struct jm_output_page *page, int fd, void *bytes, size_t n)
{
	ssize_t got;

	if (!page)
		return read(fd, bytes, n);
	page->reads++;
	got = read(fd, bytes, n);
	page->bytes += got > 0 ? (uint64_t)got : 0;
	page->reads++;
	return got;
}

const struct jm_output_page *jm_output_page_find(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	const struct jm_output_page *page = NULL;
	struct stat st;

	if (file < 0)
		return NULL;
	if (!fstat(file, &st) && st.st_size >= (off_t)sizeof(*page))
		page = map(file, PROT_READ);
	close(file);
	return page;
}

static bool is_stdout(const struct jm_output_page *page)
{
	struct stat st;

	return !fstat(STDOUT_FILENO, &st) && S_ISFIFO(st.st_mode) && st.st_dev == page->dev &&
	       st.st_ino == page->ino;
}

int64_t jm_output_page_at(const struct jm_output_page *page)
{
	if (!is_stdout(page))
		return -1;
	for (int i = 0; i < TRIES; i++) {
		uint64_t reads = page->reads, bytes = page->bytes;
		int waiting;

		if (ioctl(STDOUT_FILENO, FIONREAD, &waiting))
			return -1;
		if (reads % 2 == 0 && page->reads == reads)
			return (int64_t)bytes + waiting;
		sched_yield();
	}
	return -1;
}

void jm_output_page_done(const struct jm_output_page *page)
{
	if (page)
		munmap((void *)(uintptr_t)page, sizeof(*page));
}
