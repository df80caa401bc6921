/* SPDX-License-Identifier: Apache-2.0 */
#include "meter/source.h"

#include <ctype.h>
#include <string.h>

#include "base/member.h"

JM_DEFINE_FIND(source)

size_t jm_source_length(const char *list)
{
	size_t n = strcspn(list, ",");

	while (list[n] && isdigit((unsigned char)list[n + 1]))
		n += 1 + strcspn(list + n + 1, ",");
	return n;
}
