/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records from outside, through every format of the report. Bytes that begin like JSON are taken as they
 * are; others are a list of edits of three good records (where, what), which reach much deeper.
 */
#include "fuzz.h"
#include "report/report.h"

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
	"\"cores\":2,\"devices\":[{\"id\":\"d\",\"name\":\"n\"}]},\"workload\":\"gpt\",\"options\":"
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

/* The n-th value below v, depth first; its place is returned so that it can be replaced. */
struct place {
	json_t *parent;
	const char *key;
	size_t index;
	long left;
};

static void walk(json_t *v, struct place *p)
{
	const char *key;
	json_t *child;
	size_t i;

	if (json_is_object(v)) {
		json_object_foreach(v, key, child)
		{
			if (p->parent)
				return;
			if (p->left-- == 0)
				*p = (struct place){v, key, 0, 0};
			else
				walk(child, p);
		}
	}
	if (json_is_array(v)) {
		json_array_foreach(v, i, child)
		{
			if (p->parent)
				return;
			if (p->left-- == 0)
				*p = (struct place){v, NULL, i, 0};
			else
				walk(child, p);
		}
	}
}

static json_t *another(uint8_t what)
{
	static const double reals[] = {0, -1, 1e-300, 1e308, -1e308, 0.5, 1e15, 3};
	static const char *const words[] = {"", "gpu.power", "failed", "ok", "estimated",
		"measured", "replayed", "</script><script>", "steady", "500W", "default",
		"not reached", "violated", "\"q,\n|\\%\t", "5d65f667", "\xc3\xa4\xe2\x82\xac"};

	switch (what >> 5) {
	case 0:
		return json_null();
	case 1:
		return json_object();
	case 2:
		return json_array();
	case 3:
		return json_boolean(what & 1);
	case 4:
		return json_integer(INT64_C(1) << (what & 31) << (what & 31));
	case 5:
		return json_real(reals[what & 7]);
	default:
		return json_string(words[what & 15]);
	}
}

static void edit(json_t *all, const uint8_t *op)
{
	struct place p = {.left = op[0] | (op[1] & 7) << 8};

	walk(all, &p);
	if (!p.parent)
		return;
	if (op[1] & 0x80 && p.key)
		json_object_del(p.parent, p.key);
	else if (op[1] & 0x80)
		json_array_remove(p.parent, p.index);
	else if (p.key)
		json_object_set_new(p.parent, p.key, another(op[2]));
	else
		json_array_set_new(p.parent, p.index, another(op[2]));
}

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
		json_object_set_new(copy, "id", json_string(i == 1 ? "aa" : "bb"));
		json_object_set_new(case_, "id", json_string(i == 1 ? "aa" : "bb"));
		json_object_set_new(p, "gpu.power", json_string(i == 1 ? "500W" : "300W"));
		json_array_append_new(all, copy);
	}
	for (size_t i = 0; i + 3 <= size; i += 3)
		edit(all, data + i);
	return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *all = records(data, size);

	if (!json_is_array(all)) {
		json_decref(all);
		return 0;
	}
	for (int format = JM_REPORT_TABLE; format <= JM_REPORT_HTML; format++) {
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
		free(text);
	}
	json_decref(all);
	return 0;
}
