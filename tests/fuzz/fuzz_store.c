/* SPDX-License-Identifier: Apache-2.0 */
/* A store of one record with its trace and plan, with bytes of its file changed: each three bytes
 * of the input are an offset and a value. */
#include "fuzz.h"
#include "fuzz_folder.h"
#include "run/plan/plan.h"
#include "store/store.h"
#include "store/store_run.h"
#include "store/store_trace.h"

#include <stdio.h>
#include <unistd.h>

#define CASE_ID "00112233445566778899aabbccddeeff"

static char path[sizeof(fuzz_folder_path) + sizeof("/store")];
static uint8_t whole[256 << 10];
static size_t n_whole;

static const char plan[] =
	"{\"what\":{\"workload\":\"sim\",\"options\":{},\"settings\":[{\"knob\":\"gpu.power\","
	"\"selector\":\"\",\"unit\":\"W\",\"values\":[\"300W\"]}]},\"found\":[],\"how\":{},"
	"\"repeat\":2,\"seed\":1}";
static const char record[] =
	"{\"schema\":\"joulemark.run/1\",\"id\":\"" CASE_ID "\",\"status\":\"ok\",\"command\":[],"
	"\"case\":{\"id\":\"" CASE_ID "\",\"parameters\":{},\"repeat\":1},\"meters\":[{\"id\":"
	"\"a\",\"joules\":1.5,\"origin\":\"measured\"}],\"settings\":[]}";

static void must(int rc)
{
	if (rc)
		abort();
}

static int keep(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	return jm_store_add_chunk(arg, chunk, err);
}

static void add_trace(struct jm_store *s)
{
	struct jm_meter m = {.id = "a", .covers = "a", .source = "null"};
	struct jm_signal power = {.quantity = JM_Q_POWER, .step = 0.001, .accuracy = NAN};
	struct jm_meters set = {0};
	struct jm_trace *t;

	if (jm_meters_add(&set, &m, NULL) < 0 || jm_meters_add_signal(&set, &power, NULL) < 0)
		abort();
	t = jm_trace_new(&set, NULL);
	must(jm_store_add_signals(s, &set, NULL));
	for (int i = 0; i < 50; i++)
		must(jm_trace_append(
			t, 0, (struct jm_reading){.value = i * 0.5, .t_ns = i * 1000}, NULL));
	must(jm_trace_flush(t, keep, s, NULL));
	jm_trace_free(t);
	jm_meters_done(&set);
}

static void make(void)
{
	json_t *json = json_loads(plan, 0, NULL), *done = json_loads(record, 0, NULL);
	struct jm_store *s;
	FILE *f;

	snprintf(path, sizeof(path), "%s/store", fuzz_folder());
	must(jm_store_open(path, JM_STORE_WRITE, &s, NULL));
	must(jm_store_add_plan(s, "key", json, NULL));
	must(jm_store_add_case(s, CASE_ID, json_object_get(json, "what"), NULL));
	must(jm_store_begin(s, CASE_ID, 1, NULL));
	add_trace(s);
	must(jm_store_finish(s, done, NULL));
	must(jm_store_close(s, NULL));
	json_decref(json);
	json_decref(done);
	f = fopen(path, "rb");
	n_whole = f ? fread(whole, 1, sizeof(whole), f) : 0;
	if (!n_whole || n_whole == sizeof(whole) || fclose(f))
		abort();
}

static void damage(const uint8_t *data, size_t size)
{
	static uint8_t bytes[sizeof(whole)];
	FILE *f = fopen(path, "wb");

	memcpy(bytes, whole, n_whole);
	for (size_t i = 0; i + 3 <= size; i += 3)
		bytes[((size_t)data[i] << 8 | data[i + 1]) % n_whole] = data[i + 2];
	if (!f || fwrite(bytes, 1, n_whole, f) != n_whole || fclose(f))
		abort();
}

static int count(void *arg, json_t *one, struct jm_err *err)
{
	(void)err;
	*(size_t *)arg += json_object_size(one);
	return 0;
}

static void read_plan(struct jm_store *s)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *request = NULL;
	struct jm_plan made;
	int rc = jm_store_last_plan(s, &request, &err);

	if (!rc)
		rc = jm_plan_new(request, &made, &err);
	fuzz_check(rc, &err);
	if (!rc)
		jm_plan_done(&made);
	json_decref(request);
}

static void read_trace(struct jm_store *s)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_trace *trace;
	int rc = jm_store_trace(s, CASE_ID, 1, &set, &trace, &err);

	fuzz_check(rc, &err);
	if (rc)
		return;
	jm_trace_free(trace);
	jm_meters_done(&set);
}

static void use(enum jm_store_mode mode)
{
	struct jm_err err = JM_ERR_INIT, of_records = JM_ERR_INIT, of_begin = JM_ERR_INIT;
	struct jm_store *s;
	size_t n = 0;
	int rc = jm_store_open(path, mode, &s, &err);

	fuzz_check(rc, &err);
	if (rc)
		return;
	fuzz_check(jm_store_records(s, mode == JM_STORE_READ, count, &n, &of_records), &of_records);
	read_plan(s);
	read_trace(s);
	if (mode == JM_STORE_WRITE)
		fuzz_check(jm_store_begin(s, CASE_ID, 1, &of_begin), &of_begin);
	jm_store_close(s, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!n_whole)
		make();
	damage(data, size);
	use(JM_STORE_READ);
	use(JM_STORE_WRITE);
	return 0;
}
