/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records from outside, through every format of the report. Bytes that begin like JSON are used
 * unchanged; others are a list of edits of three valid records (position, change), which reach more
 * code.
 */
#include "fuzz.h"
#include "fuzz_json.h"
#include "report/report.h"
#include "result/record_jobs.h"
#include "result/record_keys.h"

static const char base[] =
	"[{\"schema\":\"joulemark.run/1\",\"id\":\"5d65f667\",\"started\":\"2025-01-01T00:00:00Z\","
	"\"wall_s\":40,\"exit_status\":0,\"signal\":null,\"command\":[\"a\"],\"clock\":"
	"\"simulated\","
	"\"phase\":\"steady\",\"meters\":[{\"id\":\"sim:h100x1/0\",\"label\":\"GPU "
	"0\",\"device\":\"d\","
	"\"source\":\"sim\",\"scope\":\"gpu\",\"covered_by\":null,\"overlaps\":null,\"origin\":"
	"\"simulated\",\"joules\":20000,\"joules_counter\":20000,\"joules_integrated\":20030,"
	"\"error_sampling_joules\":8,\"error_calibration_joules\":400,\"covered_s\":30,\"watts_"
	"mean\":660,"
	"\"watts_max\":690,\"samples\":300,\"gaps\":0,\"signals\":[{\"quantity\":\"power\","
	"\"unit\":\"W\","
	"\"step\":1,\"refresh_s\":0.1,\"window_s\":0.025,\"mean\":1,\"min\":1,\"max\":1,\"last\":1,"
	"\"samples\":9}]}],\"total\":{\"joules_measured\":null,\"joules_estimated\":null,"
	"\"joules_simulated\":20000,\"joules_replayed\":null},\"quality\":{\"grade\":\"D\","
	"\"reasons\":["
	"\"simulated\"]},\"phases\":[{\"name\":\"warmup\",\"start_s\":2,\"end_s\":10,\"items\":9},{"
	"\"name\":\"steady\",\"start_s\":10,\"end_s\":40,\"items\":900}],\"provenance\":{\"host\":"
	"\"h\","
	"\"cores\":2,\"devices\":[{\"id\":\"d\",\"name\":\"n\"}]},\"start_ns\":5,"
	"\"job\":{\"id\":\"j\",\"step\":null,\"process\":7},\"workload\":\"gpt\",\"options\":"
	"{},"
	"\"device\":\"sim:h100x1\",\"precision\":\"bf16\",\"unit\":\"token\",\"items\":900,"
	"\"throughput\":"
	"30,\"throughput_per_device\":30,\"devices\":1,\"steps\":9,\"loss_first\":4,\"loss_last\":"
	"3,"
	"\"verified\":true,\"case\":{\"id\":\"5d65f667\",\"parameters\":{\"gpu.power\":\"700W\"},"
	"\"repeat\":1,\"block\":0,\"position\":0,\"reference\":true,\"seed\":1},\"settings\":[{"
	"\"knob\":"
	"\"gpu.power\",\"device\":\"d\",\"unit\":\"W\",\"requested\":700,\"accepted\":700,"
	"\"enforced\":"
	"700,\"state\":\"binding\"}],\"status\":\"ok\",\"reason\":null}]";

static json_t *records(const uint8_t *data, size_t size)
{
	json_t *all, *one;

	if (size && (data[0] == '[' || data[0] == '{'))
		return json_loadb((const char *)data, size, 0, NULL);
	all = json_loads(base, 0, NULL);
	if (!all)
		abort();
	one = json_array_get(all, 0);
	for (int i = 1; i < 3; i++) {
		json_t *copy = json_deep_copy(one);
		json_t *case_ = json_object_get(copy, "case"),
		       *p = json_object_get(case_, "parameters");

		json_object_set_new(case_, "reference", json_false());
		json_object_set_new(json_object_get(copy, "job"), "process", json_integer(7 + i));
		json_object_set_new(copy, "id", json_string(i == 1 ? "aa" : "bb"));
		json_object_set_new(case_, "id", json_string(i == 1 ? "aa" : "bb"));
		json_object_set_new(p, "gpu.power", json_string(i == 1 ? "500W" : "300W"));
		json_array_append_new(all, copy);
	}
	fuzz_edit_all(all, data, size);
	return all;
}

/* Every line is a comment or a sample of joulemark, whatever a record's texts hold. */
static bool whole_lines(const char *text)
{
	for (const char *end; *text; text = end + 1) {
		end = strchr(text, '\n');
		if (!end || (strncmp(text, "# ", 2) && strncmp(text, "joulemark_", 10)))
			return false;
	}
	return true;
}

/* Of checked records: what they are joined to is one that can be checked again. */
static void join_jobs(const json_t *all)
{
	struct jm_joined joined;
	struct jm_err err = JM_ERR_INIT;
	const json_t *record;
	size_t i;

	json_array_foreach(all, i, record)
	{
		if (!json_is_object(record) || jm_record_check(record, "a record", &err))
			return;
	}
	if (!jm_record_join_jobs(all, &joined, &err))
		json_array_foreach(joined.records, i, record)
			fuzz_check(jm_record_check(record, "a joined record", &err), &err);
	json_decref(joined.records);
	free(joined.place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *all = records(data, size);

	if (!json_is_array(all)) {
		json_decref(all);
		return 0;
	}
	join_jobs(all);
	for (int format = JM_REPORT_TABLE; format <= JM_REPORT_OPENMETRICS; format++) {
		struct jm_err err = JM_ERR_INIT;
		char *text = NULL;
		int rc = jm_report_render(all, (enum jm_report_format)format, NULL, &text, &err);

		fuzz_check(rc, &err);
		if (!rc && format == JM_REPORT_JSON) {
			json_t *again = json_loads(text, 0, NULL);

			if (!again)
				abort();
			json_decref(again);
		}
		/* nothing of a record may end the page's script */
		if (!rc && format == JM_REPORT_HTML && strstr(text, "</script><script>"))
			abort();
		if (!rc && format == JM_REPORT_OPENMETRICS && !whole_lines(text))
			abort();
		free(text);
	}
	json_decref(all);
	return 0;
}
