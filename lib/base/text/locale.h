/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses the library may have set a locale whose numbers have a comma. What the
 * library reads and writes has a point: each of its threads, and each public function that reads or
 * writes numbers, has the locale "C".
 */
#ifndef JM_LOCALE_H
#define JM_LOCALE_H

#include <locale.h>

/* Of the calling thread, until jm_locale_leave with what this returned. */
static inline locale_t jm_locale_enter(void)
{
	locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a constant of the C library */

	return uselocale(plain);
}

static inline void jm_locale_leave(locale_t before)
{
	uselocale(before);
}

#endif
