/* SPDX-License-Identifier: Apache-2.0 */
#include "number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool jm_number_real(const char *text, double *ret)
{
	double value;
	char *end;

	if (!*text || text[strspn(text, "+-.0123456789eE")])
		return false;
	value = strtod(text, &end);
	if (*end || !isfinite(value))
		return false;
	*ret = value;
	return true;
}

bool jm_number_whole(const char *text, uint64_t most, uint64_t *ret)
{
	unsigned long long value;

	if (!*text || text[strspn(text, "0123456789")])
		return false;
	errno = 0;
	value = strtoull(text, NULL, 10);
	if (errno || value > most)
		return false;
	*ret = value;
	return true;
}

int jm_number_digits(double size)
{
	int digits = 2;

	for (double shown = size * 100; size > 0 && shown < 9.95 && digits < 9; digits++)
		shown *= 10;
	return digits;
}
