/* SPDX-License-Identifier: Apache-2.0 */
/* Readings from bytes of devices: any bytes give a possible number or none. */
#include "../../sources/parse_reading.h"
#include "fuzz.h"

static void check_watts(double value)
{
	assert(isnan(value) || (value > 0 && value <= JM_MAX_WATTS));
}

static void cray(const char *text)
{
	int64_t stamp_us = -1;
	double value = jm_parse_cray(text, 'J', &stamp_us);

	assert(stamp_us >= 0);
	assert(isnan(value) || (value >= 0 && value <= 0x1p52));
}

static void hsmp(const uint8_t *bytes, size_t size)
{
	struct jm_hsmp_table table;

	if (!jm_parse_hsmp(bytes, size, &table))
		return;
	for (int i = 0; i < 5; i++)
		assert(table.joules[i] >= 0 && table.joules[i] < 0x1p44);
	check_watts(table.watts);
	check_watts(table.limit);
}

static void list(const char *text)
{
	double value[3] = {7, 7, 7};
	int n = jm_parse_list(text, value, 3);

	assert(n >= 1 && n <= 4);
	for (int i = 0; i < n && i < 3; i++)
		assert(isnan(value[i]) || isfinite(value[i]));
}

static void ptd(const char *text)
{
	struct jm_ptd_sample s;

	if (!jm_parse_ptd(text, &s))
		return;
	assert(s.t_ns >= 0);
	check_watts(s.watts);
	assert(isnan(s.factor) || (s.factor >= 0 && s.factor <= 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	check_watts(jm_parse_dcmi((const uint8_t *)text, size));
	cray(text);
	hsmp((const uint8_t *)text, size);
	list(text);
	assert(!(jm_parse_pressure(text, "some") < 0));
	check_watts(jm_parse_unit(text, 'W'));
	ptd(text);
	free(text);
	return 0;
}
