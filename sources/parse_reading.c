/* SPDX-License-Identifier: Apache-2.0 */
#include "parse_reading.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

#define DCMI_LENGTH   19
#define DCMI_GROUP    0xdc
#define DCMI_MEASURES 0x40

static uint64_t little(const uint8_t *bytes, int n)
{
	uint64_t value = 0;

	for (int i = n - 1; i >= 0; i--)
		value = value << 8 | bytes[i];
	return value;
}

double jm_parse_dcmi(const uint8_t *bytes, size_t n)
{
	double watts;

	if (n < DCMI_LENGTH || bytes[0] || bytes[1] != DCMI_GROUP || !(bytes[18] & DCMI_MEASURES))
		return NAN;
	watts = (double)little(bytes + 2, 2);
	/* a controller without a sensor reports 0 or all bits set */
	return watts > 0 && watts < 65535 ? watts : NAN;
}

double jm_parse_cray(const char *text, char unit, int64_t *ret_stamp_us)
{
	char number[24], sign[4] = "", stamp[24], us[4] = "";
	uint64_t value, time;
	int n = sscanf(text, "%23s %3s %23s %3s", number, sign, stamp, us);

	*ret_stamp_us = 0;
	if (n < 2 || sign[0] != unit || sign[1] ||
		!jm_number_whole(number, UINT64_C(1) << 52, &value))
		return NAN;
	if (n == 4 && !strcmp(us, "us") && jm_number_whole(stamp, UINT64_C(1) << 60, &time))
		*ret_stamp_us = (int64_t)time;
	return (double)value;
}

static double hsmp_watts(const uint8_t *bytes)
{
	double watts = (double)little(bytes, 4) * JM_HSMP_WATT;

	return watts > 0 && watts < 1e5 ? watts : NAN;
}

bool jm_parse_hsmp(const uint8_t *bytes, size_t n, struct jm_hsmp_table *ret)
{
	struct jm_hsmp_table table;

	if (n != JM_HSMP_TABLE)
		return false;
	table.limit = hsmp_watts(bytes + 40);
	table.watts = hsmp_watts(bytes + 48);
	table.stamp = little(bytes + 52, 8);
	for (int i = 0; i < 5; i++) {
		uint64_t value = little(bytes + 60 + 8 * i, 8);

		if (value >> 60) /* 17.6 TJ: all bits set, as of a device that does not answer */
			return false;
		table.joules[i] = (double)value * JM_HSMP_JOULE;
	}
	*ret = table;
	return true;
}
