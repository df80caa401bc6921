/* SPDX-License-Identifier: Apache-2.0 */
#include "parse_reading.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text/number.h"

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

	return watts > 0 && watts <= JM_MAX_DEVICE_WATTS ? watts : NAN;
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

/* The field at *at, up to a comma; *at goes behind it. False: there is none left. */
static bool next_field(const char **at, char *out, size_t size)
{
	size_t n, lead;

	if (!*at)
		return false;
	lead = strspn(*at, " \t");
	n = strcspn(*at + lead, ",");
	snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), *at + lead);
	*at = (*at)[lead + n] ? *at + lead + n + 1 : NULL;
	for (size_t end = strlen(out); end && strchr(" \t\r", out[end - 1]); end--)
		out[end - 1] = '\0';
	return true;
}

int jm_parse_list(const char *text, double *ret, int most)
{
	char field[48];
	int n = 0;

	while (n <= most && next_field(&text, field, sizeof(field))) {
		if (n < most && !jm_number_real(field, &ret[n]))
			ret[n] = NAN;
		n++;
	}
	return n;
}

double jm_parse_pressure(const char *text, const char *what)
{
	size_t n = strlen(what);

	while (text && (strncmp(text, what, n) != 0 || text[n] != ' ')) {
		text = strchr(text, '\n');
		if (text)
			text++;
	}
	if (text) {
		size_t line = strcspn(text, "\n");
		const char *total = strstr(text, " total=");
		char number[24];
		uint64_t us;

		if (!total || total >= text + line)
			return NAN;
		total += strlen(" total=");
		snprintf(number, sizeof(number), "%.*s", (int)strcspn(total, "\n"), total);
		if (jm_number_whole(number, UINT64_MAX, &us))
			return (double)us * 1e-6;
	}
	return NAN;
}

double jm_parse_unit(const char *text, char unit)
{
	const char ends[] = {' ', unit, '\0'};
	size_t n = strcspn(text, ends);
	char number[32];
	double value;

	if (n >= sizeof(number))
		return NAN;
	snprintf(number, sizeof(number), "%.*s", (int)n, text);
	text += n + strspn(text + n, " ");
	if (text[0] != unit || text[1] || !jm_number_real(number, &value))
		return NAN;
	return value > 0 && value <= JM_MAX_DEVICE_WATTS ? value : NAN;
}

#define LAST_YEAR 2261 /* nanoseconds since 1970 in 64 bits */

static bool ptd_time(const char *text, int64_t *ret)
{
	int month, day, year, hour, minute, second, ms, used = 0;
	struct tm tm = {0};

	if (sscanf(text, "%2d-%2d-%4d %2d:%2d:%2d.%3d%n", &month, &day, &year, &hour, &minute,
		    &second, &ms, &used) != 7 ||
		text[used] || month < 1 || month > 12 || day < 1 || day > 31 || year < 1970 ||
		year > LAST_YEAR || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
		second < 0 || second > 60 || ms < 0)
		return false;
	tm.tm_mon = month - 1;
	tm.tm_mday = day;
	tm.tm_year = year - 1900;
	tm.tm_hour = hour;
	tm.tm_min = minute;
	tm.tm_sec = second;
	*ret = (int64_t)timegm(&tm) * 1000000000 + ms * INT64_C(1000000);
	return *ret >= 0;
}

bool jm_parse_ptd(const char *line, struct jm_ptd_sample *ret)
{
	struct jm_ptd_sample s = {0, NAN, NAN, NAN, NAN};
	const struct {
		const char *name;
		double *value, most;
	} fields[] = {{"Watts", &s.watts, JM_MAX_WATTS}, {"Volts", &s.volts, 1e5},
		{"Amps", &s.amps, 1e5}, {"PF", &s.factor, 1}};
	char name[32], text[48];

	if (!next_field(&line, name, sizeof(name)) || strcmp(name, "Time") != 0 ||
		!next_field(&line, text, sizeof(text)) || !ptd_time(text, &s.t_ns))
		return false;
	while (next_field(&line, name, sizeof(name)) && next_field(&line, text, sizeof(text))) {
		for (int i = 0; i < 4; i++) {
			double value;

			if (!strcmp(fields[i].name, name) && isnan(*fields[i].value) &&
				jm_number_real(text, &value) && value >= 0 &&
				value <= fields[i].most)
				*fields[i].value = value;
		}
		if (!strncmp(name, "Ch", 2)) /* the channels stand behind their sum */
			break;
		if (!strcmp(name, "Mark"))
			break;
	}
	if (s.watts == 0)
		s.watts = NAN;
	*ret = s;
	return true;
}
