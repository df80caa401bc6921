/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of hand-made records, and traces thinned for the page. */
#include "kit/test.h"
#include "report/format/text.h"

#include "base/clock.h"
#include "report/judge/series_table.h"
#include "report/page/page_trace.h"
#include "report/report.h"
#include "report/systems/systems.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct jm_meters two_meters(void)
{
	struct jm_meters set = {0};
	struct jm_meter meter = {.id = "a", .label = "GPU 0", .origin = JM_SIMULATED};
	struct jm_signal power = {.quantity = JM_Q_POWER, .accuracy = NAN};
	struct jm_signal count = {.quantity = JM_Q_ENERGY, .wrap = 1000, .accuracy = NAN};

	assert_int_equal(jm_meters_add(&set, &meter, NULL), 0);
	assert_int_equal(jm_meters_add_signal(&set, &power, NULL), 0);
	snprintf(meter.id, sizeof(meter.id), "b");
	assert_int_equal(jm_meters_add(&set, &meter, NULL), 1);
	assert_int_equal(jm_meters_add_signal(&set, &count, NULL), 1);
	return set;
}

static double at(const json_t *points, size_t i, size_t k)
{
	return json_number_value(json_array_get(json_array_get(points, i), k));
}

static size_t from_base64(const char *text, uint8_t *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	uint32_t bits = 0;
	size_t n = 0;
	int have = 0;

	for (; *text && *text != '='; text++) {
		bits = bits << 6 | (uint32_t)(strchr(digits, *text) - digits);
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		out[n++] = (uint8_t)(bits >> have);
	}
	return n;
}

static uint64_t varint(const uint8_t **at)
{
	uint64_t v = 0;
	unsigned int shift = 0;

	do {
		v |= (uint64_t)(**at & 0x7f) << shift;
		shift += 7;
	} while (*(*at)++ & 0x80);
	return v;
}

/* [[s, W or null]] of a meter, for the caller to decref. */
static json_t *points_of(const json_t *trace, size_t meter)
{
	const json_t *one = json_array_get(json_object_get(trace, "meters"), meter);
	const char *text = json_string_value(json_object_get(one, "points"));
	uint8_t *bytes = malloc(strlen(text) + 1);
	const uint8_t *at = bytes, *end = bytes + from_base64(text, bytes);
	json_t *out = json_array();
	double ms = 0, tenths = 0;

	while (at < end) {
		uint64_t dt = varint(&at), code = varint(&at);

		ms += (double)dt;
		tenths += code % 2 ? (double)(code / 2) : -(double)(code / 2);
		json_array_append_new(out, code ? json_pack("[f, f]", ms * 1e-3, tenths * 0.1)
						: json_pack("[f, n]", ms * 1e-3));
	}
	assert_int_equal(json_array_size(out), json_integer_value(json_object_get(one, "n")));
	free(bytes);
	return out;
}

/* A saw of 100..199 W at 1 kHz with one spike and one gap; 150 W by a counter that wraps at 1000
 * J. */
static json_t *make_trace(const struct jm_meters *set, int record)
{
	struct jm_page_trace *t = jm_page_trace_new(set, 700);
	json_t *json;

	assert_non_null(t);
	for (int i = 0; i <= 20000; i++) {
		double watts = i == 7777 ? 950.0 : i == 12000 ? (double)NAN : 100.0 + i % 100;
		struct jm_reading r = {watts, JM_SECOND * 5 + i * JM_MILLISECOND};

		jm_page_trace_take(t, 0, r);
		r.value = fmod(900 + i / 100 * 15, 1000);
		if (i % 100 == 0)
			jm_page_trace_take(t, 1, r);
	}
	json = jm_page_trace_json(t, record);
	jm_page_trace_free(t);
	assert_non_null(json);
	return json;
}

static void thinning_keeps_extremes_and_gaps(void **state)
{
	struct jm_meters set = two_meters();
	double high = 0, low = 1e9, last = -1;
	json_t *json = make_trace(&set, 3), *points;
	int gaps = 0;

	(void)state;
	assert_int_equal(json_integer_value(json_object_get(json, "record")), 3);
	assert_near(json_number_value(json_object_get(json, "end_s")), 20, 1e-3);
	points = points_of(json, 0);
	assert_in_range(json_array_size(points), 1400, 2801);
	for (size_t i = 0; i < json_array_size(points); i++) {
		assert_true(at(points, i, 0) > last);
		last = at(points, i, 0);
		if (json_is_null(json_array_get(json_array_get(points, i), 1))) {
			gaps++;
			continue;
		}
		high = fmax(high, at(points, i, 1));
		low = fmin(low, at(points, i, 1));
	}
	assert_near(high, 950, 0);
	assert_near(low, 100, 0);
	assert_int_equal(gaps, 1);
	json_decref(points);
	json_decref(json);
	jm_meters_done(&set);
}

static void a_counter_gives_mean_power(void **state)
{
	struct jm_meters set = two_meters();
	json_t *json = make_trace(&set, 0), *points;

	(void)state;
	points = points_of(json, 1);
	assert_int_equal(json_array_size(points), 200); /* over each wrap too */
	for (size_t i = 0; i < json_array_size(points); i++) {
		assert_near(at(points, i, 0), (double)i * 0.1, 1e-3);
		assert_near(at(points, i, 1), 150, 0.1);
	}
	json_decref(points);
	json_decref(json);
	jm_meters_done(&set);
}

/* What was used while the counter was silent is not drawn back into the time before. */
static void a_silent_counter_is_a_gap(void **state)
{
	static const struct jm_reading readings[] = {{0, JM_SECOND}, {100, 2 * JM_SECOND},
		{(double)NAN, 3 * JM_SECOND}, {900, 9 * JM_SECOND}, {950, 10 * JM_SECOND},
		{1000, 11 * JM_SECOND}};
	struct jm_meters set = two_meters();
	struct jm_page_trace *t = jm_page_trace_new(&set, 700);
	json_t *json, *points;

	(void)state;
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++)
		jm_page_trace_take(t, 1, readings[i]);
	json = jm_page_trace_json(t, 0);
	points = points_of(json, 0);
	for (size_t i = 1; i < json_array_size(points); i++)
		assert_true(at(points, i, 0) > at(points, i - 1, 0));
	assert_near(at(points, 0, 1), 100, 0.1);
	assert_true(json_is_null(json_array_get(json_array_get(points, 1), 1)));
	assert_near(at(points, 2, 1), 50, 0.1);
	json_decref(points);
	json_decref(json);
	jm_page_trace_free(t);
	jm_meters_done(&set);
}

/* 100 W, a counter of 1000 J that falls from 700 J to 250 J, then 50 W: the 550 J over its end
 * would be a peak that nothing drew. */
static void a_reset_counter_is_a_gap(void **state)
{
	static const struct jm_reading readings[] = {{500, JM_SECOND}, {600, 2 * JM_SECOND},
		{700, 3 * JM_SECOND}, {250, 4 * JM_SECOND}, {300, 5 * JM_SECOND}};
	struct jm_meters set = two_meters();
	struct jm_page_trace *t = jm_page_trace_new(&set, 700);
	json_t *json, *points;

	(void)state;
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++)
		jm_page_trace_take(t, 1, readings[i]);
	json = jm_page_trace_json(t, 0);
	points = points_of(json, 0);
	assert_near(at(points, 0, 1), 100, 0.1);
	assert_near(at(points, 1, 1), 100, 0.1);
	assert_true(json_is_null(json_array_get(json_array_get(points, 2), 1)));
	assert_near(at(points, 3, 1), 50, 0.1);
	json_decref(points);
	json_decref(json);
	jm_page_trace_free(t);
	jm_meters_done(&set);
}

static void no_power_is_null(void **state)
{
	struct jm_meters set = two_meters();
	struct jm_page_trace *t = jm_page_trace_new(&set, 700);
	json_t *json = jm_page_trace_json(t, 0);

	(void)state;
	assert_true(json_is_null(json));
	json_decref(json);
	jm_page_trace_free(t);
	jm_meters_done(&set);
}

static void nothing_to_report_is_an_error(void **state)
{
	static const char *const texts[] = {"[]", "{}", "[3]", "[{\"schema\": \"other/2\"}]"};
	char *text = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		json_t *records = json_loads(texts[i], 0, NULL);
		int rc = jm_report_render(records, JM_REPORT_TABLE, NULL, &text, &err);

		assert_true(rc < 0);
		assert_sentence(&err, rc);
		assert_null(text);
		json_decref(records);
	}
}

/* Every format of a record that has nothing, which is unknown and never 0, and of those with
 * members of every wrong type, which are refused. */
static void garbage_is_unknown_or_refused(void **state)
{
	static const char *const texts[] = {
		"[{\"schema\": \"joulemark.run/1\"}]",
		"[{\"schema\": \"joulemark.run/1\", \"settings\": [1, {\"knob\": \"a\"}, {}], "
		"\"case\": 4}]",
		"[{\"schema\": \"joulemark.run/1\", \"case\": {\"parameters\": {\"a\": [1], \"b\": "
		"null}}},"
		" {\"schema\": \"joulemark.run/1\", \"case\": {\"parameters\": {\"a\": 2, \"b\": "
		"{}}},"
		"  \"meters\": {}, \"quality\": [], \"status\": \"failed\", \"reason\": 4}]",
		"[{\"schema\": \"joulemark.run/1\", \"workload\": 3, \"unit\": \"\", \"quality\":"
		" {\"grade\": \"a grade that is too long\", \"reasons\": [null, 2]}}]",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		json_t *records = json_loads(texts[i], 0, NULL);

		assert_non_null(records);
		for (int format = JM_REPORT_TABLE; format <= JM_REPORT_OPENMETRICS; format++) {
			struct jm_err err = JM_ERR_INIT;
			char *text = NULL;

			int rc = jm_report_render(
				records, (enum jm_report_format)format, NULL, &text, &err);

			assert_int_equal(rc, i ? JM_EFORMAT : 0);
			if (rc) {
				assert_sentence(&err, rc);
				continue;
			}
			if (format != JM_REPORT_HTML) /* ECharts has such words */
				assert_null(strstr(text, "nan"));
			if (format != JM_REPORT_HTML)
				assert_null(strstr(text, "(null)"));
			free(text);
		}
		json_decref(records);
	}
}

/* What does not fit ends in "...", however little room is left, and in no half of a character. */
static void appended_text_is_cut(void **state)
{
	static const struct {
		size_t size;
		const char *before, *what, *result;
	} rows[] = {
		{11, "abc\u00e9", "xyz", "abc\u00e9, xyz"},
		{10, "abc\u00e9", "xyz", "abc\u00e9,..."},
		{9, "abc\u00e9", "xyz", "ab..."},
		{8, "\u00e9ab", "xyz", "..."},
		{7, "abc\u00e9", "", "abc\u00e9"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char out[16];

		snprintf(out, sizeof(out), "%s", rows[i].before);
		jm_text_append(out, rows[i].size, ", ", rows[i].what);
		assert_string_equal(out, rows[i].result);
	}
}

/* "device", cap in W and items/s; NAN = not given */
static void add_row(json_t *rows, double cap, double rate)
{
	json_array_append_new(rows, json_pack("{s:s, s:o, s:o, s:f}", "device", "a", "cap_watts",
					    isnan(cap) ? json_null() : json_real(cap), "batch",
					    json_null(), "items_per_s", rate));
}

/* Watts and items/s are never compared: of a capped run the capped rows count, of another one the
 * others. */
static void published_rows_with_and_without_cap(void **state)
{
	json_t *rows = json_array(), *record = json_object();
	struct jm_system capped = {.record = record, .cap_watts = 300};
	struct jm_system free_running = {.record = record, .cap_watts = NAN};

	(void)state;
	add_row(rows, 500, 80);
	add_row(rows, 700, 100);
	add_row(rows, NAN, 9000);
	add_row(rows, NAN, 90);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(jm_systems_is_best_row(rows, i, &capped), i == 1);
		assert_int_equal(jm_systems_is_best_row(rows, i, &free_running), i == 2);
	}
	capped.cap_watts = 500;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(jm_systems_is_best_row(rows, i, &capped), i == 0);
	json_array_clear(rows);
	add_row(rows, 700, 100);
	add_row(rows, NAN, 90);
	assert_true(jm_systems_is_best_row(rows, 1, &free_running));
	json_decref(rows);
	json_decref(record);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_rows_with_and_without_cap),
		cmocka_unit_test(thinning_keeps_extremes_and_gaps),
		cmocka_unit_test(a_counter_gives_mean_power),
		cmocka_unit_test(a_silent_counter_is_a_gap),
		cmocka_unit_test(a_reset_counter_is_a_gap),
		cmocka_unit_test(no_power_is_null),
		cmocka_unit_test(nothing_to_report_is_an_error),
		cmocka_unit_test(garbage_is_unknown_or_refused),
		cmocka_unit_test(appended_text_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
