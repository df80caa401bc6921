/* SPDX-License-Identifier: Apache-2.0 */
/* Results in files: complete or absent, without other files in the folder. */
#include "base/files/output.h"
#include "kit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/jm-output-XXXXXX", path[64];
static bool no_unnamed_files; /* as on a file system that has none */

int open64(const char *file, int oflag, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, oflag);
	mode = oflag & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (no_unnamed_files && (oflag & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, file, oflag, mode);
}

static int make_folder(void **state)
{
	(void)state;
	no_unnamed_files = false;
	snprintf(folder, sizeof(folder), "/tmp/jm-output-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/out.json", folder);
	return 0;
}

/* Names in the folder; with remove they are gone afterwards. */
static int count_names(bool remove)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char name[512];
	int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		if (*entry->d_name == '.')
			continue;
		n++;
		snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
		if (remove)
			unlink(name);
	}
	closedir(dir);
	return n;
}

static int remove_folder(void **state)
{
	(void)state;
	count_names(true);
	return rmdir(folder);
}

static void assert_holds(const char *text)
{
	char held[256] = "";
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	held[fread(held, 1, sizeof(held) - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(held, text);
}

static bool die_half_way(const void *what, FILE *f)
{
	(void)what;
	fputs("half of", f);
	fflush(f);
	raise(SIGKILL);
	return true;
}

static void write_and_die(void)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		jm_output_by(path, die_half_way, NULL, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void sigkill_leaves_no_file(void **state)
{
	(void)state;
	write_and_die();
	assert_int_equal(count_names(false), 0);
}

static void sigkill_leaves_the_former_file(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_ok(jm_output_text(path, "former\n", &err), err);
	write_and_die();
	assert_int_equal(count_names(false), 1);
	assert_holds("former\n");
}

static void write_new_and_again(void)
{
	struct jm_err err = JM_ERR_INIT;
	mode_t mask = umask(027);
	struct stat st;

	assert_ok(jm_output_try(path, &err), err);
	assert_int_equal(count_names(false), 0);
	for (int i = 0; i < 2; i++) {
		assert_ok(jm_output_text(path, i ? "second\n" : "first\n", &err), err);
		assert_holds(i ? "second\n" : "first\n");
		assert_int_equal(count_names(false), 1);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0640);
		assert_int_equal(st.st_nlink, 1);
	}
	umask(mask);
}

static void a_file_is_written_and_replaced(void **state)
{
	(void)state;
	write_new_and_again();
}

static void a_file_is_written_where_each_has_a_name(void **state)
{
	(void)state;
	no_unnamed_files = true;
	write_new_and_again();
}

/* A link stays a link, to whatever folder it leads. */
static void a_link_stays(void **state)
{
	char link_name[80];
	struct jm_err err = JM_ERR_INIT;
	struct stat st;

	(void)state;
	snprintf(link_name, sizeof(link_name), "%s/link", folder);
	assert_ok(jm_output_text(path, "former\n", &err), err);
	assert_int_equal(symlink("out.json", link_name), 0);
	assert_ok(jm_output_text(link_name, "new\n", &err), err);
	assert_holds("new\n");
	assert_int_equal(lstat(link_name, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(count_names(false), 2);
}

/* Also before there is a file: a link to a link to it. */
static void a_link_to_no_file_yet_stays(void **state)
{
	char link_name[80], second[96];
	struct jm_err err = JM_ERR_INIT;
	struct stat st;

	(void)state;
	snprintf(link_name, sizeof(link_name), "%s/link", folder);
	snprintf(second, sizeof(second), "%s/second", folder);
	assert_int_equal(symlink("out.json", link_name), 0);
	assert_int_equal(symlink(link_name, second), 0);
	assert_true(jm_output_same(second, path));
	assert_ok(jm_output_text(second, "new\n", &err), err);
	assert_holds("new\n");
	assert_int_equal(lstat(link_name, &st) || !S_ISLNK(st.st_mode), 0);
	assert_int_equal(lstat(second, &st) || !S_ISLNK(st.st_mode), 0);
	assert_int_equal(count_names(false), 3);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	char below[96];

	(void)state;
	snprintf(below, sizeof(below), "%s/none/out.json", folder);
	assert_int_equal(jm_output_try(below, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
	assert_non_null(strstr(err.text, below));
	assert_non_null(strstr(err.text, "No such file"));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
	const struct CMUnitTest tests[] = {
		CASE(sigkill_leaves_no_file),
		CASE(sigkill_leaves_the_former_file),
		CASE(a_file_is_written_and_replaced),
		CASE(a_file_is_written_where_each_has_a_name),
		CASE(a_link_stays),
		CASE(a_link_to_no_file_yet_stays),
		CASE(a_folder_that_is_not_there_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
