/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file is taken only if its header describes every byte of it exactly. */
#include "kit/test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/safetensors.h"
#include "data/safetensors_write.h"

static char folder[] = "/tmp/jm-weights-XXXXXX", path[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/jm-weights-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/a.safetensors", folder);
	return 0;
}

static int remove_folder(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

/* A file with this header and that many zeros behind it. */
static void put(const char *file, uint64_t length, const char *header, size_t zeros)
{
	FILE *f = fopen(file, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(&length, sizeof(length), 1, f), 1);
	assert_true(fputs(header, f) >= 0);
	for (size_t i = 0; i < zeros; i++)
		putc(0, f);
	assert_int_equal(fclose(f), 0);
}

static void refused(const char *what, const char *name, const char *part, int code)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_safetensors s;

	assert_int_equal(jm_safetensors_open(what, &s, &err), code);
	if (!strstr(err.text, name) || !strstr(err.text, part))
		fail_msg("'%s' and '%s' are not in: %s", name, part, err.text);
}

#define A(shape, from, to)                                                                         \
	"\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"
#define B(shape, from, to)                                                                         \
	"\"b\":{\"dtype\":\"BF16\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void refuses_headers_that_do_not_fit_their_file(void **state)
{
	static const struct {
		const char *header;
		size_t zeros;
		const char *why;
	} cases[] = {
		{"[]", 0, "not an object"},
		{"{\"a\":1}", 0, "object"},
		{"{" A("[2]", 0, 8), 8, "JSON"},
		{"{" A("[2]", 0, 8) "," A("[2]", 0, 8) "}", 8, "duplicate"},
		{"{" A("[2]", 0, 8) "}", 7, "beyond the end"},
		{"{" A("[2]", 0, 8) "}", 9, "1 bytes follow"},
		{"{" A("[2]", 0, 7) "}", 7, "other bytes"},
		{"{" A("[2]", 8, 0) "}", 8, "data_offsets"},
		{"{" A("[2]", -8, 0) "}", 8, "data_offsets"},
		{"{" A("[2]", 0.0, 8) "}", 8, "data_offsets"},
		{"{" A("[-2]", 0, 8) "}", 8, "impossible shape"},
		{"{" A("[2.0]", 0, 8) "}", 8, "impossible shape"},
		{"{" A("[4294967296,4294967296,4]", 0, 8) "}", 8, "impossible shape"},
		{"{" A("[1,1,1,1,1,1,1,1,2]", 0, 8) "}", 8, "at most 8"},
		{"{" A("2", 0, 8) "}", 8, "shape"},
		{"{" A("[2]", 0, 8) "," B("[2]", 4, 8) "}", 8, "overlaps"},
		{"{" A("[2]", 0, 8) "," B("[2]", 9, 13) "}", 13, "gap"},
		{"{" A("[2]", 0, 8) "," B("[4]", 0, 8) "}", 8, "overlaps"},
		{"{" A("[2]", 8, 16) "}", 16, "gap"},
		{"{\"a\":{\"dtype\":\"F3\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "'F3'"},
		{"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype"},
		{"{\"a\\u0000\":{}}", 0, "JSON"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put(path, strlen(cases[i].header), cases[i].header, cases[i].zeros);
		refused(path, path, cases[i].why, JM_EFORMAT);
	}
}

static void refuses_files_that_are_none(void **state)
{
	(void)state;
	refused("/nowhere/a", "/nowhere/a", "No such file", JM_ENOENT);
	refused("/dev/zero", "/dev/zero", "regular file", JM_EFORMAT);
	refused(folder, folder, "model.safetensors", JM_ENOENT);
	put(path, 100000001, "{}", 100);
	refused(path, path, "100 MB", JM_EFORMAT);
	put(path, UINT64_MAX, "{}", 100);
	refused(path, path, "100 MB", JM_EFORMAT);
	put(path, 103, "{}", 100);
	refused(path, path, "within its header", JM_EFORMAT);
	put(path, 1, "", 1);
	refused(path, path, "no safetensors file", JM_EFORMAT);
}

static void takes_empty_tensors_and_single_numbers(void **state)
{
	static const char header[] =
		"{" A("[]", 0, 4) "," B("[0,3]", 4, 4) ",\"__metadata__\":{\"k\":\"v\"}}  ";
	struct jm_err err = JM_ERR_INIT;
	struct jm_safetensors s;
	char shape[32];

	(void)state;
	put(path, sizeof(header) - 1, header, 4);
	assert_ok(jm_safetensors_open(path, &s, &err), err);
	assert_int_equal(s.n, 2);
	assert_string_equal(jm_safetensor_shape(&s.tensor[0], shape, sizeof(shape)), "[]");
	assert_string_equal(jm_safetensor_shape(&s.tensor[1], shape, sizeof(shape)), "[0, 3]");
	assert_int_equal(jm_safetensor_count(&s.tensor[0]), 1);
	assert_int_equal(jm_safetensors_find(&s, "b")->type, JM_SAFETENSOR_BF16);
	assert_null(jm_safetensors_find(&s, "c"));
	assert_string_equal(jm_safetensors_note(&s, "k"), "v");
	assert_null(jm_safetensors_note(&s, "x"));
	jm_safetensors_close(&s);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void put_text(const char *name, const char *text)
{
	char file[128];
	FILE *f;

	snprintf(file, sizeof(file), "%s/%s", folder, name);
	f = fopen(file, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void put_shards(void)
{
	char file[128];

	snprintf(file, sizeof(file), "%s/1.safetensors", folder);
	put(file, strlen("{" A("[2]", 0, 8) "}"), "{" A("[2]", 0, 8) "}", 8);
	snprintf(file, sizeof(file), "%s/2.safetensors", folder);
	put(file, strlen("{" B("[2]", 0, 4) "}"), "{" B("[2]", 0, 4) "}", 4);
}

#define INDEX "model.safetensors.index.json"

static void opens_all_shards_of_an_index(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_safetensors s;

	(void)state;
	put_shards();
	put_text(INDEX, "{\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\"}}");
	assert_ok(jm_safetensors_open(folder, &s, &err), err);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.n_files, 2);
	assert_string_equal(s.tensor[0].name, "a");
	assert_non_null(strstr(s.file[s.tensor[1].file].path, "/2.safetensors"));
	jm_safetensors_close(&s);
}

static void refuses_an_index_that_does_not_fit_its_shards(void **state)
{
	static const struct {
		const char *index, *why;
		int code;
	} cases[] = {
		{"{}", "weight_map", JM_EFORMAT},
		{"{\"weight_map\":{\"a\":\"1.safetensors\"", "copy it again", JM_EFORMAT},
		{"{\"weight_map\":{\"a\":1}}", "name of a file", JM_EFORMAT},
		{"{\"weight_map\":{\"a\":\"../x\"}}", "name of a file", JM_EFORMAT},
		{"{\"weight_map\":{\"a\":\"3.safetensors\"}}",
			"with tensor 'a' is missing, though the index names it", JM_ENOENT},
		{"{\"weight_map\":{\"a\":\"2.safetensors\"}}", "not in the shard", JM_EFORMAT},
		{"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}",
			"'c' is not in the shard that it names; copy", JM_EFORMAT},
		{"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"a\":\"1."
		 "safetensors\"}}",
			"duplicate", JM_EFORMAT},
	};

	(void)state;
	put_shards();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put_text(INDEX, cases[i].index);
		refused(folder, folder, cases[i].why, cases[i].code);
	}
	put_text("3.safetensors", "");
	put_text(INDEX, "{\"weight_map\":{\"b\":\"2.safetensors\",\"c\":\"3.safetensors\"}}");
	refused(folder, "3.safetensors", "no safetensors file", JM_EFORMAT);
	put_text("3.safetensors",
		"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
	refused(folder, "3.safetensors", "git lfs pull", JM_EFORMAT);
}

static void refuses_a_tensor_that_is_in_two_shards_or_not_in_the_index(void **state)
{
	static const char both[] = "{" A("[2]", 0, 8) "," B("[2]", 8, 12) "}";
	char file[128];

	(void)state;
	put_shards();
	snprintf(file, sizeof(file), "%s/3.safetensors", folder);
	put(file, strlen(both), both, 12);
	put_text(INDEX, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}}");
	refused(folder, "'a'", "two shards", JM_EFORMAT);
	put_text(INDEX, "{\"weight_map\":{\"a\":\"3.safetensors\"}}");
	refused(folder, "'b'", "is missing", JM_EFORMAT);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void a_file_that_shrinks_ends_the_reading_with_the_reason(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_safetensors s;
	float value[2];

	(void)state;
	put(path, strlen("{" A("[2]", 0, 8) "}"), "{" A("[2]", 0, 8) "}", 8);
	assert_ok(jm_safetensors_open(path, &s, &err), err);
	assert_ok(jm_safetensors_read(&s, &s.tensor[0], 0, value, 8, &err), err);
	assert_int_equal(truncate(path, 20), 0);
	assert_int_equal(jm_safetensors_read(&s, &s.tensor[0], 0, value, 8, &err), JM_EFORMAT);
	assert_non_null(strstr(err.text, "became shorter while"));
	jm_safetensors_close(&s);
}

static const struct jm_safetensor made[] = {
	{.name = "small", .type = JM_SAFETENSOR_U8, .rank = 1, .dim = {3}},
	{.name = "count", .type = JM_SAFETENSOR_I64},
	{.name = "large", .type = JM_SAFETENSOR_F32, .rank = 2, .dim = {1000, 25}}};

/* Tensor i has the bytes i + 1. */
static int give(void *arg, int i, struct jm_safetensors_sink *sink, struct jm_err *err)
{
	uint64_t n =
		(uint64_t)jm_safetensor_count(&made[i]) * jm_safetensor_type_bytes(made[i].type);
	char byte = (char)(i + 1);
	int code = 0;

	(void)arg;
	for (uint64_t k = 0; k < n && !code; k++)
		code = jm_safetensors_put(sink, &byte, 1, err);
	return code;
}

static void what_is_written_is_read(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_safetensors s;
	char byte[3];

	(void)state;
	assert_ok(jm_safetensors_write(path, made, 3, NULL, give, NULL, &err), err);
	assert_ok(jm_safetensors_open(path, &s, &err), err);
	assert_int_equal(s.n, 3);
	for (int i = 0; i < 3; i++) {
		const struct jm_safetensor *t = jm_safetensors_find(&s, made[i].name);

		assert_non_null(t);
		assert_int_equal(t->at % jm_safetensor_type_bytes(t->type), 0);
		assert_ok(jm_safetensors_read(&s, t, t->bytes - 3, byte, 3, &err), err);
		assert_int_equal(byte[0], i + 1);
		assert_int_equal(byte[2], i + 1);
	}
	jm_safetensors_close(&s);
}

static void a_name_that_is_given_twice_is_not_written(void **state)
{
	const struct jm_safetensor twice[] = {made[0], made[0]};
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_int_equal(jm_safetensors_write(path, twice, 2, NULL, give, NULL, &err), JM_EUSAGE);
	assert_int_equal(access(path, F_OK), -1);
}

/* A child whose files may not grow any more stands for a full disk. */
static void a_full_disk_keeps_the_old_file(void **state)
{
	const struct rlimit limit = {5000, 5000};
	struct jm_err err = JM_ERR_INIT;
	struct stat before, after;
	int status;
	pid_t child;

	(void)state;
	assert_ok(jm_safetensors_write(path, made, 3, NULL, give, NULL, &err), err);
	assert_int_equal(stat(path, &before), 0);
	child = fork();
	if (!child) {
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(jm_safetensors_write(path, made, 3, NULL, give, NULL, &err) == JM_EIO &&
					strstr(err.text, path)
				? 0
				: 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(before.st_size, after.st_size);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(refuses_headers_that_do_not_fit_their_file),
		TEST(refuses_files_that_are_none),
		TEST(takes_empty_tensors_and_single_numbers),
		TEST(opens_all_shards_of_an_index),
		TEST(refuses_an_index_that_does_not_fit_its_shards),
		TEST(refuses_a_tensor_that_is_in_two_shards_or_not_in_the_index),
		TEST(a_file_that_shrinks_ends_the_reading_with_the_reason),
		TEST(what_is_written_is_read),
		TEST(a_name_that_is_given_twice_is_not_written),
		TEST(a_full_disk_keeps_the_old_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
